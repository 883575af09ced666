"""Write the token tables that ship in the package: OpenAI's public tables in a compact form. Standard library only.

The build hook calls this if the files are missing. It takes the tables from a package that contains them as OpenAI
publishes them. Their SHA-256 are those that tiktoken checks after a download.
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import zlib
from hashlib import sha256
from pathlib import Path

PUBLISHED = "bpe-openai==0.1.4"  # the package that brings the tables; only its data files are read
SHA256 = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
FOLDER = Path(__file__).parents[1] / "src/palaver/models/token_tables"


def is_missing(folder: Path = FOLDER) -> bool:
    return not all((folder / f"{name}.bin").exists() for name in SHA256)


def write(folder: Path = FOLDER) -> None:
    """Write every table, in the format that `palaver.models.token_tables` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHA256:
        unfinished = folder / f"{name}.unfinished"  # renamed when it is whole: a file that exists is taken as it is
        unfinished.write_bytes(zlib.compress(_compact(_published(name)), 9))
        unfinished.replace(folder / f"{name}.bin")


def _published(name: str) -> bytes:
    """Read a table from the installed package, without importing it."""
    spec = importlib.util.find_spec("bpe_openai")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the token tables cannot be built: install {PUBLISHED} first")
    table = gzip.decompress(Path(spec.submodule_search_locations[0], "data", f"{name}.tiktoken.gz").read_bytes())
    if sha256(table).hexdigest() != SHA256[name]:
        raise SystemExit(f"{name}: the table of {PUBLISHED} is not the one that OpenAI publishes")
    return table


def _compact(published: bytes) -> bytes:
    """Turn lines of "base64 rank" into the number of tokens, the length of each in a byte, and all tokens in a row."""
    ranks = {int(rank): base64.b64decode(token) for token, rank in map(bytes.split, published.splitlines())}
    tokens = [ranks[rank] for rank in range(len(ranks))]
    return len(tokens).to_bytes(4) + bytes(map(len, tokens)) + b"".join(tokens)


if __name__ == "__main__":
    write()
