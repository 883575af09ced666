"""Docstrings of methods that take options: the meaning of each option is written once, at the type of the options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def describe_options(*kinds: type) -> Callable[[F], F]:
    """Append the descriptions of these option types to a method's docstring, so that `help()` shows them."""

    def decorate(function: F) -> F:
        parts = [inspect.cleandoc(function.__doc__ or ""), *map(bullets, kinds)]
        function.__doc__ = "\n".join(parts)
        return function

    return decorate


def bullets(kind: type) -> str:
    """Return the list in the docstring of a type of options."""
    lines = inspect.cleandoc(kind.__doc__ or "").split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("- "))
    return "\n".join(lines[start:])
