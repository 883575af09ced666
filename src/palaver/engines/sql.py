"""Named statements from a `.sql` file: `-- name: one line that says why`, then the statement."""

from __future__ import annotations

import re
from importlib.resources import files

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
        self._statements = {name: _expand(body, raw | fragments) for name, body in raw.items()}

    def __getattr__(self, name: str) -> str:
        try:
            return self._statements[name]
        except KeyError:
            raise AttributeError(f"no query {name!r}") from None


def _expand(body: str, raw: dict[str, str]) -> str:
    while _INCLUDE.search(body):
        body = _INCLUDE.sub(lambda found: raw[found[1]], body)
    return body
