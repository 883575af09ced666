"""Named statements from a `.sql` file: `-- name: one line that says why`, then the statement."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

_HEADER = re.compile(r"^-- ([a-z_]+): .+$", re.MULTILINE)
_INCLUDE = re.compile(r"\{([a-z_]+)\}")


class Queries:
    """The statements of one file, as attributes.

    `{name}` inside a statement includes another one, or one of `fragments`, which are made from lists in Python.
    """

    def __init__(self, package: str, file: str = "queries.sql", **fragments: str) -> None:
        text = files(package).joinpath(file).read_text()
        pieces = _HEADER.split(text)[1:]
        names = pieces[::2]
        if len(set(names)) < len(names):  # the later one would silently replace the first
            raise ValueError(f"{file} has two queries of one name: {sorted({n for n in names if names.count(n) > 1})}")
        raw = {name: body.strip().removesuffix(";") for name, body in zip(names, pieces[1::2], strict=True)}
        for name, body in raw.items():
            setattr(self, name, _expand(body, raw | fragments))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> str: ...


def _expand(body: str, raw: dict[str, str]) -> str:
    while _INCLUDE.search(body):
        body = _INCLUDE.sub(lambda found: raw[found[1]], body)
    return body
