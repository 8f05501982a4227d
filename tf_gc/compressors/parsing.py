"""Compressors as text, for command lines."""

import ast

from tf_gc.compressors.compressor import Compressor

__all__ = ["from_string"]


def from_string(text: str) -> Compressor | None:
    """Returns the compressor that a text such as "THC(bits=4, granularity=30)" stands for.

    Args:
      text: the name of a compressor of `tf_gc.compressors` and its
        hyper-parameters, which must be literals; "none" gives None.

    Raises:
      ValueError: there is no such compressor, or a hyper-parameter is out of
        range.
    """
    from tf_gc import compressors

    if text == "none":
        return None
    name, _, arguments = text.partition("(")
    known = [n for n in compressors.__all__ if isinstance(getattr(compressors, n), type)]
    if name not in known:
        raise ValueError(f"no compressor {name!r}: choose from {', '.join(known)}, or none")
    try:
        call = ast.parse(text if arguments else f"{name}()", mode="eval").body
        positional = [ast.literal_eval(argument) for argument in call.args]
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        return getattr(compressors, name)(*positional, **named)
    except (AttributeError, SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r} is no compressor: {error}") from error
