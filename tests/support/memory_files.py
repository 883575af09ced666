"""Where the files of a test run lie: in memory, if the machine has enough of it.

A database for each test is some hundred files. On a disk, copying them takes more time than most of the tests.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

FOLDER = Path("/dev/shm")  # a file system in memory, on Linux
ENOUGH = 6 * 2**30  # bytes


def use_memory() -> None:
    """Put temporary files of this process and its children there, unless TMPDIR names another place."""
    if "TMPDIR" not in os.environ and _is_usable(FOLDER):
        os.environ["TMPDIR"] = tempfile.tempdir = str(FOLDER)


def _is_usable(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    runs_programs = not found.f_flag & getattr(os, "ST_NOEXEC", 0)  # Postgres is copied there too
    return os.access(folder, os.W_OK) and runs_programs and found.f_bavail * found.f_frsize >= ENOUGH
