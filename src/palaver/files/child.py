"""The child process of sandbox.py: reads one file from stdin, writes one JSON answer, and exits.

`python -m palaver.files.child text application/pdf < file`. A hostile file can harm only this process, which has no
secrets in its environment, little memory, little time, and cannot write files.
"""

from __future__ import annotations

import json
import os
import sys

MEMORY = 1_000_000_000  # bytes of address space
SECONDS = 20  # of processor time

Answer = dict[str, str | int]


def limit() -> None:
    """Limit this process before a byte is read. On systems without such limits, only the parent's timeout remains."""
    try:
        import resource
    except ImportError:
        return
    os.nice(10)  # requests come first
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


def answer(task: str, kind: str, data: bytes) -> Answer:
    """Run a task, `text` or `weigh`, on the bytes of a file."""
    if task == "weigh":
        return _weigh(data)
    from palaver.files.texts import Unreadable, text_of

    try:
        return {"text": text_of(kind, data)}
    except Unreadable as reason:
        return {"problem": str(reason)}


def _weigh(data: bytes) -> Answer:
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
        found: Answer = answer(task, kind, sys.stdin.buffer.read())
    except (MemoryError, RecursionError):
        found = {"problem": "takes too much memory to read"}
    except Exception:  # a parser may raise anything, and its message may quote the file
        found = {"problem": "is damaged"}
    sys.stdout.buffer.write(json.dumps(found).encode())
    sys.stdout.flush()


if __name__ == "__main__":
    main()
