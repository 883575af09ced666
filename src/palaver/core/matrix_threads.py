"""One thread for the matrix products of numpy, while ours run.

Its library (OpenBLAS) computes each product with all processors, and its threads wait for each other by spinning. When
the processors have other work, the products that we need took ten to fifty times as long, and as much processor time.
They are small, so that one thread is at most a little slower on an idle machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import LibController

OPENMP = "openmp"  # such a library has a limit per thread, not per process; it is left alone. Wheels of numpy have none
P = ParamSpec("P")
T = TypeVar("T")


class OneMatrixThread:
    """Limits the library to one thread inside a `with`. Any number of threads may be in it at once.

    The limit is one of the process, so the first to enter sets it and the last to leave lifts it. A limit that the
    program itself has set in another thread is left as it is.
    """

    def __init__(self) -> None:
        self._libraries: list[LibController] | None = None
        self._limited: list[tuple[LibController, int]] = []  # with the number of threads before
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # a thread of the parent may have been inside

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                before = [(one, one.num_threads) for one in self._find() if one.num_threads > 1]
                for one, _ in before:
                    one.set_num_threads(1)
                self._limited = [(one, count) for one, count in before if one.num_threads == 1]
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for one, count in self._limited:
                    _take_over(one)
                    one.set_num_threads(count)
                    _take_over(one)  # nobody has set a limit now

    def _find(self) -> list[LibController]:
        """Find the libraries that numpy has loaded; later this is remembered, because it takes a millisecond."""
        if self._libraries is None:
            import numpy  # noqa: F401  # loads them
            from threadpoolctl import ThreadpoolController

            found = ThreadpoolController().select(user_api="blas").lib_controllers
            self._libraries = [one for one in found if getattr(one, "threading_layer", None) != OPENMP]
        return self._libraries


def _take_over(library: LibController) -> None:
    """Let this thread change the limit: threadpoolctl ignores changes by others than the thread that set it."""
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


one_matrix_thread = OneMatrixThread()


def with_one_matrix_thread(work: Callable[P, T]) -> Callable[P, T]:
    """Run a function with one thread for its matrix products."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_matrix_thread:
            return work(*args, **kwargs)

    return run
