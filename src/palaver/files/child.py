"""The other side of sandbox.py: one file in, one answer out, and then the process ends.

`python -m palaver.files.child text application/pdf < file`. Whatever a file does to its reader, it does it here: with
no secrets in the environment, little memory, little time, and no way to write a file.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MEMORY = 1_000_000_000  # bytes of address space
SECONDS = 20  # of processor time


def limit() -> None:
    """Before a byte is read. Where the system knows no such limits, the time that the parent waits is the only one."""
    try:
        import resource
    except ImportError:
        return
    os.nice(10)  # whoever talks comes first
    for which, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(which)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(which, (most, most))
        except (ValueError, OSError):  # this system does not know that one
            continue


def answer(task: str, kind: str, data: bytes) -> dict[str, Any]:
    if task == "weigh":
        return _weighed(data)
    from palaver.files.texts import Unreadable, text_of

    try:
        return {"text": text_of(kind, data)}
    except Unreadable as reason:
        return {"problem": str(reason)}


def _weighed(data: bytes) -> dict[str, Any]:
    from palaver.files.archives import Bomb, Damaged, weigh

    try:
        return {"unpacked": weigh(data)}
    except (Bomb, Damaged) as reason:
        return {"problem": str(reason)}


def main() -> None:
    limit()
    sys.setrecursionlimit(5_000)  # some PDFs nest deeply; a stack that overflows would end the process
    task, kind = sys.argv[1:3]
    try:
        found = answer(task, kind, sys.stdin.buffer.read())
    except (MemoryError, RecursionError):
        found = {"problem": "takes too much memory to read"}
    except Exception:  # a parser of hostile bytes may raise anything, and its words may quote them
        found = {"problem": "is damaged"}
    sys.stdout.buffer.write(json.dumps(found).encode())
    sys.stdout.flush()


if __name__ == "__main__":
    main()
