"""Compressors as text, for command lines."""

import ast
import inspect
from typing import TYPE_CHECKING

from tf_gc.compressors.compressor import Compressor

if TYPE_CHECKING:
    from tf_gc.diloco import DiLoCo

__all__ = ["from_string"]


def from_string(text: str) -> "Compressor | DiLoCo | None":
    """Returns the compressor that a text such as "THC(bits=4, granularity=30)" stands for.

    Args:
      text: the name of a compressor of `tf_gc.compressors`, or `DiLoCo`, and its
        hyper-parameters, which must be literals, fractions of these, the same again, or
        tuples: "THC(p=1/128)", "DiLoCo(50, compression=ThreeLC())". "none" gives None,
        "auto" `Auto()`.

    Raises:
      ValueError: there is no such compressor, or a hyper-parameter is out of
        range.
    """
    from tf_gc import compressors, diloco

    if text == "none":
        return None
    if text == "auto":
        return compressors.Auto()
    names = {n: getattr(module, n) for module in (compressors, diloco) for n in module.__all__}
    classes = {name: value for name, value in names.items() if isinstance(value, type)}
    try:
        expression = ast.parse(text if "(" in text else f"{text}()", mode="eval").body
        compressor = _evaluate(expression, classes)
    except (ArithmeticError, AttributeError, SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r} is no compressor: {error}") from error
    if not isinstance(compressor, (Compressor, diloco.DiLoCo)):
        raise ValueError(f"{text!r} is no compressor")
    return compressor


def _evaluate(expression, classes):
    if isinstance(expression, (ast.List, ast.Tuple)):
        return tuple(_evaluate(element, classes) for element in expression.elts)
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Div):
        return _evaluate(expression.left, classes) / _evaluate(expression.right, classes)
    if not isinstance(expression, ast.Call):
        return _literal(expression)
    name = ast.unparse(expression.func)
    if name not in classes:
        choices = [n for n, c in classes.items() if n != "OuterSGD" and not inspect.isabstract(c)]
        raise ValueError(f"no compressor {name!r}: choose from {', '.join(choices)}, auto, or none")
    positional = [_evaluate(argument, classes) for argument in expression.args]
    named = {k.arg: _evaluate(k.value, classes) for k in expression.keywords}
    return classes[name](*positional, **named)


def _literal(expression):
    try:
        return ast.literal_eval(expression)
    except ValueError as error:
        raise ValueError(
            f"{ast.unparse(expression)!r} is no hyper-parameter: write texts in quotes, as "
            "'gradient', and compressors with parentheses, as ThreeLC()"
        ) from error
