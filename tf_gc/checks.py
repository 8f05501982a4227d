"""Checks of hyper-parameters at construction: ValueError with the name and what is allowed."""

import numbers
from collections.abc import Callable


def number(name: str, value: float, allowed: str, is_allowed: Callable[[float], bool]) -> None:
    """Raises ValueError unless `value` is a real number that is allowed."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not is_allowed(value):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")


def integer(name: str, value: int, low: int, high: int | None = None, other: str = "") -> None:
    """Raises ValueError unless `value` is an integer, `low` ... `high`.

    Args:
      name: of the hyper-parameter.
      value: what it is.
      low: the least that is allowed.
      high: the most, if there is one.
      other: what is allowed too, for the message.
    """
    allowed = f"{low} or more" if high is None else f"{low} ... {high}"
    if (
        not isinstance(value, numbers.Integral)
        or isinstance(value, bool)
        or value < low
        or (high is not None and value > high)
    ):
        raise ValueError(f"{name} must be {other}an integer, {allowed}, got {value!r}")


def boolean(name: str, value: bool) -> None:
    """Raises ValueError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def choice(name: str, value, choices: tuple) -> None:
    """Raises ValueError unless `value` is one of `choices`; 4.0 is not the integer 4."""
    is_float = isinstance(value, numbers.Number) and not isinstance(value, numbers.Integral)
    if is_float or value not in choices:
        *most, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, got {value!r}")
