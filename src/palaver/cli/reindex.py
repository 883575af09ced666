"""`palaver reindex`: make the text index and the vectors again, with this or another embedder."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing
from palaver.cli.export_import import progress
from palaver.cli.output import counted, emit, say
from palaver.conversations.internals import engine_of, worker_of

if TYPE_CHECKING:
    from palaver.ports.engine import Engine
from palaver.cli.worker import embedder_name, run_watched

PANEL = "Maintenance"


@command("reindex", PANEL)
async def reindex(
    call: Call,
    embedder: Annotated[
        str, typer.Option(help="Embedder: local, minilm, openai:MODEL, or none, which removes all vectors.")
    ] = "local",
) -> None:
    """Rebuild the text index, embed all turns with this embedder, and delete the vectors of other embedders.

    Existing vectors of this embedder are kept. Until all turns are embedded, recall matches the others only by words.
    The choice of embedder is not stored: applications set it when they open the database. Their default is the local
    embedder, if it is installed.

    Examples:

      palaver reindex
      palaver reindex --embedder none
    """
    async with existing(call, embedder=embedder) as store:
        indexed = await engine_of(store).rebuild_index()
        name = embedder_name(store)
        count = await engine_of(store).embedding_backlog(name)
        with _countdown("Embedding", count, engine_of(store), name) as look:
            await run_watched(worker_of(store).embed(), look)
        await engine_of(store).drop_other_vectors(name)
    if call.as_json:
        emit({"embedder": name, "passages": count, "conversations": indexed})
        return
    say(f"Rebuilt the text index of {counted(indexed, 'conversation')}.")
    say(f"Processed {counted(count, 'passage')}; the embedder is {name}.")


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
