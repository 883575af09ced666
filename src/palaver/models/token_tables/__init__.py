"""OpenAI's public token tables, for `tiktoken`. They are files of this package, so that nothing is downloaded.

`tools/token_tables.py` writes the files when the package is built.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

# How each table splits a text before it looks up tokens, as tiktoken publishes it.
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
SPLIT = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s"
    ),
    "o200k_base": (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDING}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a public tokenizer."""

    encoding: Encoding

    def count(self, text: str) -> int:
        return len(self.encoding.encode_ordinary(text))


@lru_cache(maxsize=len(SPLIT))
def load_table(name: str) -> Table:
    """Load a table. It takes a tenth of a second, once in a process."""
    from tiktoken import Encoding

    ranks = read_ranks(name)
    encoding = Encoding(name, pat_str=SPLIT[name], mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoding has its own copy, and keeps this one only to be pickled
    return Table(encoding)


def read_ranks(name: str) -> dict[bytes, int]:
    """Read the tokens of a table with their ranks: their number, the length of each in a byte, and all in a row."""
    file = _FOLDER / f"{name}.bin"
    if not file.exists():
        raise FileNotFoundError(f"{file} is written at installation: run `pip install --editable .` in this clone")
    content = zlib.decompress(file.read_bytes())
    size = int.from_bytes(content[:4])
    lengths, tokens = content[4 : 4 + size], content[4 + size :]
    ends = accumulate(lengths, initial=0)
    return {tokens[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}
