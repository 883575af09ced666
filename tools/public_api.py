"""The public names with their parameters and fields, which a release promises to keep.

`python -m tools.public_api` compares them with tests/typing/public_api.txt: it prints broken promises and additions.
`--write` records them as they are now. Run that before a release; after an intended break too, and say in the CHANGELOG
what callers have to do.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

RECORDED = Path(__file__).parents[1] / "tests/typing/public_api.txt"
MODULES = ("palaver", "palaver.errors", "palaver.testing")  # palaver.sync follows: its stub is made from these
REQUIRED = re.compile(r"^(\S+)\((?!\*)[^=]*\)$")  # a parameter without a default; the group is its function
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public_api() -> list[str]:
    """Return a line for each public name, parameter, return type and field, in a fixed order."""
    return [line for module in MODULES for line in _module_lines(module)]


def broken_promises(recorded: list[str], now: list[str]) -> list[str]:
    """Return the recorded lines that are gone, and new parameters that callers would have to give."""
    functions = {line.partition("(")[0] for line in recorded}
    added = [line for line in now if line not in set(recorded)]
    required = [line for line in added if (found := REQUIRED.match(line)) and found[1] in functions]
    return [f"- {line}" for line in recorded if line not in set(now)] + [f"+ {line}" for line in required]


def read_recorded() -> list[str]:
    return RECORDED.read_text(encoding="utf-8").splitlines()


def _module_lines(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    for attribute in sorted(set(getattr(module, "__all__", None) or _own_names(module))):
        yield from _lines(f"{name}.{attribute}", getattr(module, attribute))


def _own_names(module: ModuleType) -> list[str]:
    """The public names that a module without `__all__` defines itself."""
    here = {name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
    return sorted(name for name in here if not name.startswith("_"))


def _lines(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}"
        yield from (f"class {name}: {base.__name__}" for base in value.__bases__ if base is not object)
        yield from _members(name, value)
    elif callable(value):
        yield from _signature(name, value)
    else:
        yield f"{name}: {type(value).__name__}"


def _members(name: str, owner: type) -> Iterator[str]:
    yield from (f"{name}.{line}" for line in _fields(owner))
    for member, value in sorted(vars(owner).items()):
        if member.startswith("_") or member in getattr(owner, "__dataclass_fields__", {}):
            continue
        if isinstance(value, property):
            yield f"{name}.{member} (property)"
        elif callable(plain := getattr(value, "__func__", value)):
            yield from _signature(f"{name}.{member}", plain)


def _fields(owner: Any) -> Iterator[str]:
    if issubclass(owner, enum.Enum):
        yield from (f"{one.name} = {one.value!r}" for one in owner)
    elif is_typeddict(owner):
        hints = sorted(owner.__annotations__.items())
        yield from (f"{key}: {getattr(hint, '__forward_arg__', hint)}" for key, hint in hints)
    elif dataclasses.is_dataclass(owner):
        yield from (f"{field.name}: {field.type}" for field in dataclasses.fields(owner))


def _signature(name: str, function: Callable[..., object]) -> Iterator[str]:
    """Yield a line for each parameter; those that may be given by position have their number."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        yield f"{name}(…)"
        return
    yield f"{name} -> {signature.return_annotation}"
    for place, parameter in enumerate(signature.parameters.values()):
        if parameter.name != "self":
            number = f"[{place}]" if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else ""
            yield _ADDRESS.sub("", f"{name}({number}{parameter})")


def main() -> int:
    now = public_api()
    if "--write" in sys.argv:
        RECORDED.write_text("\n".join(now) + "\n", encoding="utf-8")
        return 0
    recorded = read_recorded()
    broken = broken_promises(recorded, now)
    print("\n".join([*broken, *(f"  new: {line}" for line in now if line not in set(recorded))]))
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
