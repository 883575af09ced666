"""Which process does something, in a form that can be stored, and whether it still lives."""

from __future__ import annotations

import hashlib
import os
import platform


def this_process() -> str:
    """The machine, as a short hash of its name, and the number of the process."""
    return f"{_machine()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """Whether a process of this machine is certainly gone. Of another machine's, nothing is known."""
    machine, _, number = process.partition(":")
    if machine != _machine() or not number.isdecimal() or len(number) > 9:
        return False
    return not is_alive(int(number))


def is_alive(number: int) -> bool:
    """Whether a process of this machine is there. Where one cannot ask, it is."""
    if os.name != "posix":  # elsewhere, signal 0 is not a question
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # and belongs to somebody else
    return True


def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]
