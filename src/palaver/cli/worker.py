"""Commands that do the work behind the scenes: sweep, worker, reindex."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing
from palaver.cli.export_import import progress
from palaver.cli.output import console, counted, emit, note, say, wire

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.ports.engine import Engine

PANEL = "Keep house"
LOOK_SECONDS = 0.5  # between two looks at what is left


# ---- sweep ---------------------------------------------------------------------------------------------------------


@command("sweep", PANEL)
async def sweep(
    call: Call,
    retention_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N", envvar="RETENTION_MINUTES", help="Also forget every turn that is older. Off unless given."
        ),
    ] = None,
) -> None:
    """Delete what has outlived its time: expired conversations and, when asked for, old turns. Seals dead streams.

    It does not ask, and what it deletes is gone for good. Safe to run in several places at once.

    Examples:

      palaver sweep
      palaver sweep --retention-minutes 43200
    """
    async with existing(call) as store:
        swept = await store.sweep(retention_minutes=retention_minutes)
    if call.as_json:
        emit(wire(swept))
        return
    say(
        f"Deleted {counted(len(swept.conversations), 'expired conversation')} and {counted(swept.turns, 'old turn')}; "
        f"sealed {counted(swept.streams, 'stream')} without a writer; "
        f"removed {counted(swept.files, 'file')} of uploads that came to nothing."
    )
    if retention_minutes is None:
        say("Turns are kept whatever their age: --retention-minutes or RETENTION_MINUTES would limit it.")


# ---- worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Left:
    """What the outbox still holds, and how many passages wait for a vector."""

    waiting: int
    dead: int
    to_embed: int
    errors: tuple[str, ...]

    def __str__(self) -> str:
        line = f"{counted(self.waiting, 'job')} waiting, {counted(self.to_embed, 'passage')} to embed"
        return f"{line}, {counted(self.dead, 'job')} put aside ({', '.join(self.errors)})" if self.dead else line


async def left(store: Store) -> Left:
    outbox = (await store.stats()).storage["outbox"]
    dead = [job for job in outbox if job["dead"]]
    return Left(
        waiting=sum(job["jobs"] for job in outbox if not job["dead"]),
        dead=sum(job["jobs"] for job in dead),
        to_embed=await store.engine.embedding_backlog(embedder_name(store)),
        errors=tuple(f"{job['kind']}: {job['error']}" for job in dead),
    )


def embedder_name(store: Store) -> str:
    from palaver.memory.worker.jobs.embed import NO_EMBEDDER

    embedder = store.parts.worker.embedder
    return NO_EMBEDDER if embedder is None else embedder.name


@command("worker", PANEL)
async def worker(
    call: Call,
    once: Annotated[bool, typer.Option("--once", help="Stop when nothing is left to do. Does not sweep.")] = False,
    sweep_every: Annotated[
        float, typer.Option(metavar="SECONDS", envvar="PALAVER_SWEEP_EVERY", help="Between two sweeps; 0: never.")
    ] = 300.0,
    retention_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N", envvar="PALAVER_RETENTION_MINUTES", help="Sweeps also forget older turns. Off unless given."
        ),
    ] = None,
) -> None:
    """Embed, summarise and extract what was said, as it comes in, and sweep. Any number of workers may run; Ctrl-C
    ends this one.

    Applications do this by themselves; a worker of its own takes the load off them.

    Examples:

      palaver worker
      palaver worker --once
    """
    async with existing(call) as store:
        await store.engine.index_all()
        work, screen = store.parts.worker, Board(call)
        try:
            with screen:
                task = work.drain() if once else _working(store, sweep_every, retention_minutes)
                await watched(task, lambda: _look(store, screen))
        except asyncio.CancelledError:  # Ctrl-C; what was begun is done by the next worker
            note("Stopped.")
        state = await left(store)
    if not call.as_json:
        say("Nothing is left to do." if not state.waiting and not state.dead else f"{state}.")


async def _working(store: Store, sweep_every: float, retention_minutes: float | None) -> None:
    """Work and sweep until cancelled."""
    from palaver.conversations.sweeper import Sweeper

    if not sweep_every:
        return await store.parts.worker.run()
    sweeper = asyncio.create_task(Sweeper(store, sweep_every, retention_minutes, every_tenant=True).run())
    try:
        await store.parts.worker.run()
    finally:
        sweeper.cancel()
        await asyncio.wait({sweeper})


async def _look(store: Store, screen: Board) -> None:
    screen.show(await left(store))


async def watched(work: Coroutine[Any, Any, None], look: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do the work to its end, and look at it now and then. It is cancelled with its watcher."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await look()
            await asyncio.wait({task}, timeout=LOOK_SECONDS)
        await look()
    finally:
        task.cancel()
        await asyncio.wait({task})
    task.result()


class Board:
    """What is left: a line on the terminal that changes, or a line of JSON per change."""

    def __init__(self, call: Call) -> None:
        from rich.status import Status

        self._as_json = call.as_json
        self._last: Left | None = None
        screen = console(stderr=True)
        self._line = Status("", console=screen) if screen.is_terminal and not call.as_json else None

    def __enter__(self) -> None:
        if self._line is not None:
            self._line.start()

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.stop()

    def show(self, state: Left) -> None:
        if self._line is not None:
            self._line.update(str(state))
        elif self._as_json and state != self._last:
            emit(wire(state))
        self._last = state


# ---- reindex -------------------------------------------------------------------------------------------------------


@command("reindex", PANEL)
async def reindex(
    call: Call,
    embedder: Annotated[
        str, typer.Option(help="What makes the vectors: local, minilm, openai:MODEL, or none, which removes them.")
    ] = "local",
) -> None:
    """Give everything that was said its vector by this embedder, and then drop the vectors of any other.

    It goes on where it stopped, and recall goes by words until it is done. The choice is not stored: applications say
    it when they open the database, and use the local embedder where it is installed.

    Examples:

      palaver reindex
      palaver reindex --embedder none
    """
    async with existing(call, embedder=embedder) as store:
        await store.engine.index_all()
        name = embedder_name(store)
        count = await store.engine.embedding_backlog(name)
        with _countdown("Embedding", count, store.engine, name) as look:
            await watched(store.parts.worker.embed(), look)
        await store.engine.drop_other_vectors(name)
    if call.as_json:
        emit({"embedder": name, "passages": count})
    elif count:
        say(f"Went through {counted(count, 'passage')}; the embedder is {name}.")
    else:
        say(f"Nothing was left to do; the embedder is {name}.")


@contextmanager
def _countdown(title: str, total: int, engine: Engine, name: str) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """A bar that fills up as the backlog of an embedder shrinks."""
    before = total
    with progress(title, total) as advance:

        async def look() -> None:
            nonlocal before
            now = await engine.embedding_backlog(name)
            advance(before - now)
            before = now

        yield look
