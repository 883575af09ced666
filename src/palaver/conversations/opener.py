"""`palaver.open`, and the object that it returns: it can be awaited, or entered with `async with`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

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

    async with palaver.open(url) as store:     # closed at the end of the block
        ...

    store = await palaver.open(url)            # held for as long as you like
    ...
    await store.aclose()
    """

    def __init__(self, options: StoreOptions) -> None:
        self._options, self._lifetime = options, Lifetime()
        self._is_used = False

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
        raise InvalidInput(sorted(given)[0], "is set where the server runs, not where it is called")
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
    """Open a database: `async with palaver.open(…) as store`, or `store = await palaver.open(…)` and `store.aclose()`.

    - `url`: `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:` (gone when it is closed), `postgresql://…`,
      `supabase+https://…`, or `https://…`: a Palaver server, with `key=` from `palaver keys create`.
    - `tenant`, `user`: whose data this store sees. Without a user it is the application, which sees its whole tenant.
    - `scope`: a `Scope` in place of both, with rights and a visibility.
    - `model`: the model that answers where neither the call, the conversation, the agent nor the workspace names one.
    - `models`: your own names for models, such as `fast`; each is a name, a mapping with `model`, `base_url`,
      `api_key`, `timeout`, `window` and `price`, or an object that is a `ChatModel`.
    - `agents`: `Agent`s by name; `workspaces`: the model of each workspace, or a mapping with its
      `model` and `context`.
    - `generate`: defaults and limits of `generate`, and defaults of contexts (`policy`, `token_budget`, …); see
      `GenerateSettings`.
    - `budgets`: limits of requests, tokens, money, storage and conversations for every tenant, user and API key; see
      `BudgetOptions`.
    - `embedder`: `local`, `openai:MODEL`, `none`, an object with `name`, `dimensions` and `embed`, or `auto`: the local
      one where it is installed.
    - `memory`: `summarizer`, `extractor`, `redactor`, `token_counter`, `model_calls_per_day`, `person`; see
      `MemoryOptions`.
    - `files`: the folder or bucket (`s3://bucket/prefix?endpoint=…`) for attachments, or `FileOptions`.
    - `streams`: `lease` and `flush` in seconds; see `StreamTimes`.
    - `background`: `worker`, `sweep_every`, `retention_minutes`; see `BackgroundOptions`.
    - `database`: `migrate_url`, `listen_url`, `read_url` of Postgres, `key` and `token` of Supabase; see
      `DatabaseOptions`.
    - `telemetry`: `True` for OpenTelemetry spans without content, a tracer provider, or `TelemetryOptions`.
    - `testing`: `clock` and `ids` for tests.
    - `options`: the options of the groups can also be given flat, as `FlatOptions` names them.
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
