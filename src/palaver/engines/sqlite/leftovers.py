"""Folders that a restore or a backup works in, next to its target. After a kill they stay, and hold a copy of the data.

The process that works in a folder holds a lock on it, which ends with the process. A folder without that lock is a
leftover, and is deleted by the next one that opens the database, restores it or backs up to the same place.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

try:
    import fcntl
except ImportError:  # Windows: leftovers are not removed there
    fcntl = None  # type: ignore[assignment]

_SUFFIX = re.compile(r"[a-z0-9_]{8}")  # as mkdtemp names it
_OURS = frozenset({"palaver.db", "palaver.db-wal", "palaver.db-shm", "palaver.db-files", "palaver.dump", "backup.json"})


@contextmanager
def private_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder next to `target`, for a copy that gets its place when it is complete; then delete it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove(target)
    part = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    handle = os.open(part, os.O_RDONLY)
    try:
        _lock(handle)
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(handle)


def find(target: Path) -> list[Path]:
    """Return the folders next to `target` that a killed process has left."""
    prefix = f".{target.name}-"
    try:
        found = [path for path in target.parent.iterdir() if path.name.startswith(prefix) and path.is_dir()]
    except OSError:
        return []
    return [path for path in found if _SUFFIX.fullmatch(path.name[len(prefix) :]) and _is_left(path)]


def remove(target: Path) -> list[Path]:
    """Delete them. Returns which there were."""
    found = find(target)
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return found


def _is_left(path: Path) -> bool:
    """Return whether a folder has only our files, and no process works in it."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            return all(one.name in _OURS for one in path.iterdir()) and _lock(handle)
        finally:
            os.close(handle)
    return False


def _lock(handle: int) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
