"""`palaver worker`: run background jobs and sweep."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import database_url, existing
from palaver.cli.output import console, counted, emit, note, say, wire
from palaver.conversations.internals import engine_of, single_tenant_warning, worker_of
from palaver.errors import EngineError

if TYPE_CHECKING:
    from palaver.conversations.store import Store

PANEL = "Maintenance"
LOOK_SECONDS = 0.5  # between two looks at what is left


@dataclass(frozen=True, slots=True)
class Backlog:
    """Jobs that are waiting or failed, and passages without a vector."""

    waiting: int
    dead: int
    to_embed: int
    errors: tuple[str, ...]

    def __str__(self) -> str:
        line = f"{counted(self.waiting, 'job')} waiting, {counted(self.to_embed, 'passage')} to embed"
        return f"{line}, {counted(self.dead, 'job')} failed ({', '.join(self.errors)})" if self.dead else line


async def read_backlog(store: Store) -> Backlog:
    outbox = (await store.stats()).storage["outbox"]
    dead = [job for job in outbox if job["dead"]]
    return Backlog(
        waiting=sum(job["jobs"] for job in outbox if not job["dead"]),
        dead=sum(job["jobs"] for job in dead),
        to_embed=await engine_of(store).embedding_backlog(embedder_name(store)),
        errors=tuple(f"{job['kind']}: {job['error']}" for job in dead),
    )


def embedder_name(store: Store) -> str:
    from palaver.memory.worker.jobs.embed import NO_EMBEDDER

    embedder = worker_of(store).embedder
    return NO_EMBEDDER if embedder is None else embedder.name


@command("worker", PANEL)
async def worker(
    call: Call,
    once: Annotated[bool, typer.Option("--once", help="Exit when no job is left. Does not sweep.")] = False,
    sweep_every: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", envvar="PALAVER_SWEEP_EVERY", help="Seconds between two sweeps. 0: never sweep."
        ),
    ] = 300.0,
    retention_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            envvar="PALAVER_RETENTION_MINUTES",
            help="A sweep also deletes every turn that is older than this. By default, old turns are kept.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="TOML file of `palaver serve`, for its database, models, agents and budgets. Default: PALAVER_CONFIG.",
        ),
    ] = None,
) -> None:
    """Run background jobs (embedding, summaries, notes and facts) as they come in, and sweep expired data.

    Servers and programs run these jobs themselves. A separate worker takes the load off them. Several workers can run
    at the same time. Ctrl-C ends this one.

    Examples:

      palaver worker
      palaver worker --once
      palaver worker --config palaver.toml
    """
    call, options = _with_file(call, config)
    async with existing(call, **options) as store:
        await engine_of(store).index_all()
        if not once and call.url.startswith("postgres") and (warning := await single_tenant_warning(store)):
            note(warning)
        _stop_on_sigterm()
        work, screen = worker_of(store), StatusLine(call)
        try:
            with screen:
                task = work.drain() if once else _working(store, sweep_every, retention_minutes)
                await run_watched(task, lambda: _look(store, screen))
        except asyncio.CancelledError:  # Ctrl-C or SIGTERM; what was begun is done by the next worker
            note("Stopped.")
        state = await read_backlog(store)
    if not call.as_json:
        say("No jobs are left." if not state.waiting and not state.dead else f"{state}.")


def _with_file(call: Call, config: str | None) -> tuple[Call, dict[str, Any]]:
    """Take the database and the options of memory from the file of the server, if there is one."""
    if not config and not os.environ.get("PALAVER_CONFIG"):
        return call, {}
    from palaver.server.settings import read_settings

    url = None if "url" in call.unsaid else call.url
    tenant = None if "tenant" in call.unsaid else call.tenant
    settings = read_settings(os.environ, config, url=url, tenant=tenant)
    return replace(call, url=database_url(settings.url), tenant=settings.tenant), settings.store_options()


def _stop_on_sigterm() -> None:
    """Let SIGTERM do what Ctrl-C does, so that another worker need not wait for the lease of the running job."""
    task = asyncio.current_task()
    if task is not None and threading.current_thread() is threading.main_thread():  # only there can signals be handled
        with suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _working(store: Store, sweep_every: float, retention_minutes: float | None) -> None:
    """Work and sweep until cancelled."""
    from palaver.conversations.sweeper import Sweeper

    if not sweep_every:
        return await worker_of(store).run()
    sweeper = asyncio.create_task(Sweeper(store, sweep_every, retention_minutes, every_tenant=True).run())
    try:
        await worker_of(store).run()
    finally:
        sweeper.cancel()
        await asyncio.wait({sweeper})


async def _look(store: Store, screen: StatusLine) -> None:
    if screen.is_shown:
        with suppress(EngineError):  # unavailable now; the work itself waits for the database too
            screen.show(await read_backlog(store))


async def run_watched(work: Coroutine[Any, Any, None], look: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the work to its end, and call `look` regularly. If the caller is cancelled, so is the work."""
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


class StatusLine:
    """A status line on the terminal, or a line of JSON per change."""

    def __init__(self, call: Call) -> None:
        from rich.status import Status

        self._as_json = call.as_json
        self._last: Backlog | None = None
        screen = console(stderr=True)
        self._line = Status("", console=screen) if screen.is_terminal and not call.as_json else None

    @property
    def is_shown(self) -> bool:
        return self._as_json or self._line is not None

    def __enter__(self) -> None:
        if self._line is not None:
            self._line.start()

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.stop()

    def show(self, state: Backlog) -> None:
        if self._line is not None:
            self._line.update(str(state))
        elif self._as_json and state != self._last:
            emit(wire(state))
        self._last = state
