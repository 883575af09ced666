"""`palaver.open`, and the object that it returns: it can be awaited, or entered with `async with`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from palaver.conversations.lifetime import Lifetime
from palaver.conversations.open_options import (
    DEFAULT_URL,
    AnswerOptions,
    BackgroundOptions,
    DatabaseOptions,
    FileOptions,
    FlatOptions,
    MemoryOptions,
    StoreOptions,
    StreamTimes,
    TelemetryOptions,
    TestingOptions,
    group_options,
)
from palaver.conversations.opening import assemble_store
from palaver.conversations.store import Store
from palaver.core.budgets import BudgetOptions
from palaver.core.event_loop import require_asyncio
from palaver.errors import InvalidInput
from palaver.generation.settings import Agent, GenerateSettings, Workspace
from palaver.model import Scope
from palaver.models.registry import Named
from palaver.ports.models import Embedder

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class Opening:
    """A database that is being opened, as `palaver.open` returns it.

    Use it in a block, or await it to keep the store open:

        async with palaver.open(url) as store:     # closed at the end of the block
            ...

        store = await palaver.open(url)            # stays open until you close it
        ...
        await store.aclose()
    """

    def __init__(self, options: StoreOptions) -> None:
        self._options, self._lifetime = options, Lifetime()
        self._is_used = False

    if not TYPE_CHECKING:  # type checkers know that these names do not exist

        def __getattr__(self, name: str) -> object:
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                problem += ": open the store with `async with palaver.open(…) as store` or `await palaver.open(…)`"
            raise AttributeError(problem)

        def __enter__(self) -> NoReturn:
            raise TypeError("use `async with palaver.open(…)` in async code, or `with palaver.sync.open(…)` elsewhere")

        def __exit__(self, *_: object) -> None: ...

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the database, if it is open."""
        await self._lifetime.close()

    async def _open(self) -> Store:
        require_asyncio()
        if self._is_used:
            raise InvalidInput("store", "this call of palaver.open was used before: call it again for another store")
        self._is_used = True
        url: object = self._options.url  # anything that is not a text is refused below
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            remote = await _connect(self._options)
            self._lifetime.manager = remote
            return remote
        manager = assemble_store(self._options, self._lifetime)
        store = await manager.__aenter__()
        self._lifetime.manager = manager
        return store


async def _connect(options: StoreOptions) -> Store:
    """Connect to a Palaver server, which has its own models, files and workers."""
    from palaver.conversations.remote.store import RemoteStore
    from palaver.conversations.remote.transport import Transport

    given = {**{name: one for name, one in options.answers.items() if one is not None}, **options.memory}
    given |= {**options.files, **options.streams, **options.background, **options.telemetry, **options.testing}
    if given:
        raise InvalidInput(sorted(given)[0], "is set on the server, not by its clients")
    if options.scope != Scope.of("default", None):
        raise InvalidInput("scope", "the key decides who the caller is: open the store with a key of that user")
    database = options.database
    transport = Transport(options.url, database.get("key") or database.get("token"), database.get("command_timeout"))
    try:
        return await RemoteStore.connect(transport)
    except BaseException:  # re-raised: nobody else closes it
        await transport.aclose()
        raise


def open(
    url: str = DEFAULT_URL,
    *,
    tenant: str = "default",
    user: str | None = None,
    scope: Scope | None = None,
    model: str | None = None,
    models: Mapping[str, Named] | None = None,
    agents: Mapping[str, Agent | Mapping[str, object]] | None = None,
    workspaces: Mapping[str, str | Workspace | Mapping[str, object]] | None = None,
    generate: GenerateSettings | Mapping[str, object] | None = None,
    budgets: BudgetOptions | None = None,
    embedder: Embedder | str | None = "auto",
    memory: MemoryOptions | None = None,
    files: Path | str | FileOptions | None = None,
    streams: StreamTimes | None = None,
    background: BackgroundOptions | None = None,
    database: DatabaseOptions | None = None,
    telemetry: bool | TracerProvider | TelemetryOptions | None = None,
    testing: TestingOptions | None = None,
    **options: Unpack[FlatOptions],
) -> Opening:
    """Open a database as a `Store`.

    Use `async with palaver.open(…) as store:`, or `store = await palaver.open(…)` and later `await store.aclose()`.

    - `url`: the database; by default the file `palaver.db` in the current folder. One of `sqlite:///relative.db`,
      `sqlite:////absolute.db`, `memory:` (deleted when the store is closed), `postgresql://…`, `supabase+https://…`, or
      the `https://…` address of a Palaver server, with a `key=` from `palaver keys create`.
    - `tenant`, `user`: the tenant and the user whose data the store shows. Without a user, the store acts for the
      application, with all rights, and sees the whole tenant.
    - `scope`: a `Scope` in place of `tenant` and `user`, to choose rights and visibility as well.
    - `model`: the default model, such as `openai:gpt-5`; without it, `offline`, which needs no network. A call, a
      conversation, an agent or a workspace may name another model.
    - `models`: your own names for models, such as `fast`. Each value is the name of a model, a mapping with `model`,
      `base_url`, `api_key`, `timeout`, `window` and `price`, or a `ChatModel` object.
    - `agents`: agents by name; each is an `Agent`, or a mapping with its fields.
    - `workspaces`: workspaces by name; each is the name of its model, a `Workspace`, or a mapping with its fields.
    - `generate`: defaults and limits of `generate`, and defaults of contexts (`policy`, `token_budget`, …); see
      `GenerateSettings`.
    - `budgets`: limits of requests, tokens, money, storage and conversations for every tenant, user and API key; see
      `BudgetOptions`. None: no limits.
    - `embedder`: the model that makes vectors for recall by meaning: `local`, `minilm` (the previous local model),
      `openai:MODEL`, or your own object with `name`, `dimensions` and `embed`. `none`: no vectors. `auto`, the default:
      `local` if it is installed, otherwise `none`.
    - `memory`: how summaries, notes, facts and the memory of persons are made; see `MemoryOptions`.
    - `files`: the folder or bucket (`s3://bucket/prefix?endpoint=…`) for attachments, or `FileOptions`.
    - `streams`: the `lease` and `flush` times of streamed turns, in seconds; see `StreamTimes`.
    - `background`: the work that this process does in the background; see `BackgroundOptions`.
    - `database`: options of the connection to Postgres, Supabase or a Palaver server; see `DatabaseOptions`.
    - `telemetry`: `True` for OpenTelemetry spans, a tracer provider, or `TelemetryOptions`. Spans never have content.
    - `testing`: a `clock` and `ids` for tests; see `TestingOptions`.
    - `options`: the options of these groups can also be direct keywords, such as `sweep_every=600`; see `FlatOptions`.
    """
    groups = group_options(
        options,
        memory=memory,
        files=files,
        streams=streams,
        background=background,
        database=database,
        telemetry=telemetry,
        testing=testing,
    )
    answers: AnswerOptions = {
        "model": model, "models": models, "agents": agents, "workspaces": workspaces, "generate": generate,
    }  # fmt: skip
    whole = scope or Scope.of(tenant, user)
    return Opening(StoreOptions(url=url, scope=whole, embedder=embedder, answers=answers, budgets=budgets, **groups))
