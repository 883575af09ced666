"""Measure packages with the same ruler: sizes, types, docstrings, comments and wording.

    python -m tools.code_metrics src/palaver procrastinate starlette httpx

A package is a directory or the name of an installed one. Lengths are in physical lines, docstrings included.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from tools.prose_check import has_strong_marker

Function = ast.FunctionDef | ast.AsyncFunctionDef
IGNORE = re.compile(r"#\s*(?:type:\s*ignore|noqa|pyright:\s*ignore|pragma: no cover)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


@dataclass(frozen=True)
class Package:
    name: str
    directory: Path
    modules: tuple[Module, ...]

    @cached_property
    def lines(self) -> int:
        return sum(len(module.lines) for module in self.modules)

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return [node for module in self.modules for node in module.nodes]

    def per_thousand(self, count: int) -> str:
        return f"{1000 * count / max(self.lines, 1):.1f}"


# Finding a package


def load(name: str) -> Package:
    directory = Path(name) if Path(name).is_dir() else _installed(name)
    files = sorted(path for path in directory.rglob("*.py") if "__pycache__" not in path.parts)
    modules = (Module(path, path.read_text(encoding="utf-8")) for path in files)
    return Package(directory.name, directory, tuple(module for module in modules if module.text.strip()))


def _installed(name: str) -> Path:
    spec = importlib.util.find_spec(name.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name}: neither a directory nor an installed package")
    return Path(next(iter(spec.submodule_search_locations)))


# Sizes


def modules(package: Package) -> str:
    sizes = [len(module.lines) for module in package.modules]
    return f"{len(sizes)} / {median(sizes):.0f} / {max(sizes)}"


def lines(package: Package) -> str:
    return f"{package.lines:,}"


def function_length(package: Package) -> str:
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in package.functions]
    return f"{median(lengths):.0f} / {_p95(lengths)} / {max(lengths)}"


def parameters(package: Package) -> str:
    counts = [_parameter_count(node) for node in package.functions]
    return f"{_p95(counts)} / {max(counts)}"


def _parameter_count(node: Function) -> int:
    given = node.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    own = named[1:] if named[:1] in (["self"], ["cls"]) else named
    return len(own) + (given.vararg is not None) + (given.kwarg is not None)


def _p95(values: Sequence[int]) -> int:
    return sorted(values)[int(0.95 * (len(values) - 1))]


def top_level_modules(package: Package) -> str:
    special = {"__init__.py", "__main__.py"}
    return str(sum(path.name not in special for path in package.directory.glob("*.py")))


# Types and errors


def catch_alls(package: Package) -> str:
    handlers = (node for node in package.nodes if isinstance(node, ast.ExceptHandler))
    return package.per_thousand(sum(_is_catch_all(node) for node in handlers))


def _is_catch_all(node: ast.ExceptHandler) -> bool:
    names = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)} if node.type else {"BaseException"}
    return bool(names & {"Exception", "BaseException"})


def anys(package: Package) -> str:
    return package.per_thousand(sum(_is_any(node) for node in package.nodes))


def _is_any(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "Any"
    if isinstance(node, ast.alias):
        return node.name == "Any"
    return isinstance(node, ast.Name) and node.id == "Any"


def ignores(package: Package) -> str:
    return package.per_thousand(sum(len(IGNORE.findall(module.text)) for module in package.modules))


def typed_returns(package: Package) -> str:
    return _percent([node.returns is not None for node in package.functions if node.name != "__init__"])


# Docstrings and comments


def documented_functions(package: Package) -> str:
    public = (node for node in package.functions if not node.name.startswith("_"))
    return _percent([ast.get_docstring(node) is not None for node in public])


def documented_modules(package: Package) -> str:
    return _percent([ast.get_docstring(module.tree) is not None for module in package.modules])


def comment_lines(package: Package) -> str:
    return package.per_thousand(sum(line.lstrip().startswith("#") for one in package.modules for line in one.lines))


def marked_docstrings(package: Package) -> str:
    found = (ast.get_docstring(node) for node in package.nodes if isinstance(node, DOCUMENTED))
    return _percent([has_strong_marker(text) for text in found if text])


def _percent(flags: Sequence[bool]) -> str:
    return f"{100 * sum(flags) / len(flags):.0f}" if flags else "-"


# Exported names, looked at in the imported package


def undocumented_exports(package: Package) -> str:
    """Exported classes, functions and public methods without a meaningful docstring, of how many."""
    try:
        root = importlib.import_module(package.name)
    except ImportError:
        return "-"
    exports = list(exported(root))
    return f"{len([name for name, value in exports if not is_documented(name, value)])} of {len(exports)}"


def exported(root: ModuleType) -> Iterator[tuple[str, Any]]:
    names = getattr(root, "__all__", None) or [name for name in dir(root) if not name.startswith("_")]
    for name in names:
        value = getattr(root, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            yield name, value
        if inspect.isclass(value):
            yield from _methods(name, value)


def _methods(owner: str, value: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(value).items():
        bare = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and (inspect.isfunction(bare) or isinstance(bare, property)):
            yield f"{owner}.{name}", bare


def is_documented(name: str, value: Any) -> bool:
    """True for a docstring of three words and more that is not made of the name alone or by `dataclass`."""
    text = (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
    words = re.findall(r"[a-z]+", text.lower())
    of_name = set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", name).lower()))
    is_generated = inspect.isclass(value) and text.startswith(f"{value.__name__}(")
    return len(words) >= 3 and not set(words) <= of_name and not is_generated


# The table

ROWS = (
    ("modules n / median / max", modules),
    ("LOC", lines),
    ("function length median / p95 / max", function_length),
    ("parameters p95 / max", parameters),
    ("catch-alls per 1,000 lines", catch_alls),
    ("Any per 1,000 lines", anys),
    ("ignores per 1,000 lines", ignores),
    ("public functions with docstring %", documented_functions),
    ("returns typed %", typed_returns),
    ("module docstring %", documented_modules),
    ("comment lines per 1,000", comment_lines),
    ("top-level modules", top_level_modules),
    ("docstrings with markers %", marked_docstrings),
    ("exported names without docstring", undocumented_exports),
)


def table(packages: Sequence[Package]) -> str:
    head = ["", *(package.name for package in packages)]
    rows = [[label, *(measure(package) for package in packages)] for label, measure in ROWS]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("packages", nargs="+", help="directories or installed packages")
    parser.add_argument("--undocumented", action="store_true", help="list the exported names without a docstring")
    given = parser.parse_args()
    packages = [load(name) for name in given.packages]
    print(table(packages))
    for package in packages if given.undocumented else ():
        names = exported(importlib.import_module(package.name))
        print(f"\n{package.name}:", *(name for name, value in names if not is_documented(name, value)))


if __name__ == "__main__":
    main()
