"""The identity of a process in a form that can be stored, and whether it is still running."""

from __future__ import annotations

import hashlib
import os
import platform


def this_process() -> str:
    """Return a short hash of the machine's name and the number of this process."""
    return f"{_machine()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """True if a process of this machine has certainly ended. False for other machines, of which nothing is known."""
    machine, _, number = process.partition(":")
    if machine != _machine() or not number.isdecimal() or len(number) > 9:
        return False
    return not is_alive(int(number))


def is_alive(number: int) -> bool:
    """True if a process of this machine is running, and where the system cannot say."""
    if os.name != "posix":  # elsewhere, signal 0 would not be a mere check
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it belongs to another user
    return True


def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]
