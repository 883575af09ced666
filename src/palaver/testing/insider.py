"""The insider: a participant of a conversation who calls the functions of a Postgres database without the library.

    from palaver.testing.insider import probe

    report = await probe("postgresql://admin@localhost/chat")
    assert report.ok, report.breaches

or `python -m palaver.testing postgresql://admin@localhost/chat`. The suite of strangers (`rls_probe`) shows that nobody
reaches the data of others. This one shows what a participant cannot do: every function is called by owners and
participants with every set of rights, signed in, anonymous and through the application, in a shared conversation and in
one of their own; and then with invalid and hostile values in every argument and every field. The same is done with the
tables of older systems (`--compat`), where the database has them.

A call that succeeds must leave a conversation that the others can read in every way the library has and that `verify`
accepts. A caller without the right to write changes no row; without `system` nobody stores a `system` turn; and no user
writes under the name of another. Every call is rolled back.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import asyncpg

from palaver.conversations.internals import clock_of, components_of
from palaver.conversations.opener import open as open_store
from palaver.conversations.store import Store
from palaver.core.identity import new_id
from palaver.engines.postgres.engine import PostgresEngine
from palaver.engines.postgres.failures import translate_errors
from palaver.engines.postgres.transports import Row, Transport, open_connection
from palaver.engines.postgres.watch import CommitHub
from palaver.errors import (
    BudgetTooSmall,
    ConversationGone,
    ConversationNotFound,
    InvalidInput,
    PalaverError,
    VerificationFailed,
)
from palaver.model import Scope
from palaver.testing.fakes import HashEmbedder
from palaver.testing.insider_views import Step, View, views
from palaver.testing.rls_probe import PATIENCE, SET, Breach, SuiteReport, Verb, verbs
from palaver.testing.tenant_fixture import FRESH, Known, Parameter, remove, tables, victim

if TYPE_CHECKING:
    from palaver.conversations.components import SignedInEngine

# Errors that say that a value is not acceptable: ours, denied, and those of Postgres about data and constraints.
STATED = ("PV", "42501", "42601", "22", "23", "54", "0A")
# A caller who may delete may leave nothing to read.
DELETES = {
    "forget_conversation",
    "forget_slice",
    "expire",
    "erase_turns",
    "erase_names",
    "update_conversation",
    "restore",
    "retire",
    "reset",
    "reset_slice",
    "expire_slice",
    "finish_slice",
    "forget_older",
}
ACTING = {"act_for", "admin"}  # rights with which one may write for others
AT_ONCE = 20  # calls with hostile values after which everything is read; of functions
# whose calls do not depend on each other, and of those that change nothing.
APART = {"append", "append_together", "stream_open", "put_request", "open_conversation"}
READING = "SELECT function FROM palaver.function_rights WHERE rights IN ('read', 'worker')"
# Rows that arguments in JSON are made into: every column can be named by a caller.
ROWS = {
    "draft": "turns", "drafts": "turns", "calls": "turns", "seal": "turns", "spec": "conversations",
    "changes": "conversations", "attachment": "attachments", "request": "requests", "new": "facts",
    "put_summary.draft": "summaries", "put_items.changes": "items", "job": "jobs",
}  # fmt: skip
# The files of the conversations are read by `verify`: only others are to be deleted.
OTHER_FILES = "UPDATE palaver.doomed_blobs SET path = path || '.gone' WHERE tenant = $1"
DEEP = "[" * 150 + "]" * 150
NUMBERS = ["-1", "0", "9007199254740992", "9223372036854775807", "-9223372036854775808"]
TEXTS = [
    "", "x", "wizard", "system", "not json", "{}", "[]", "[1]", '{"a": 1e999}', f'{{"a": {DEEP}}}', "mallory\nada: yes",
    "\u202eevil", "a" * 70_000, r"\x00", "-1",
]  # fmt: skip
HOSTILE: dict[str, list[str]] = {
    "text": TEXTS,
    "bigint": NUMBERS,
    "integer": ["-1", "0", "2147483647", "-2147483648"],
    "boolean": ["true", "false"],
    "double precision": ["NaN", "Infinity", "-1", "1e308"],
    "bytea": [r"\x", r"\x00", "\\x" + "00" * 1000],
    "text[]": ["{}", "{NULL}", "{id,owner,tenant,cid,tip_hash,salt}", "{participants,settings,metadata,ttl,title}"],
    "bigint[]": ["{}", "{NULL}", "{-1}", "{9223372036854775807}"],
    "jsonb": ["null", "{}", "[]", "[null]", "[[]]", "1", '"x"', '[["x", "y"]]', "[[null, null, null]]"],
}
# Values for each field of a JSON argument.
FIELDS: list[Any] = [
    None, ..., "", "system", "not json", "[1]", '{"a": 1e999}', "mallory\nada: yes", "a" * 70_000, "\\x00", -1, 2**53,
    2**63 - 1, 30_000, 1.5, True, [[1, 2]], {"a": {"b": 1}},
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Insider:
    """A role, the claims of a token or the scope that the application passes, and the rights that these give."""

    name: str
    role: str
    user: str
    rights: frozenset[str]
    who: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, Any] | None = None
    hostile: bool = False  # whether it also tries invalid values

    @property
    def has_token(self) -> bool:
        return self.role in ("authenticated", "anon")


def insiders(tenant: str, ada: str, bob: str) -> list[Insider]:
    """The owner and a participant of a conversation, with every set of rights, in every role."""

    def token(who: str, user: str, rights: str, *, hostile: bool = False, **more: str) -> Insider:
        known = {"tenant": tenant, "palaver_rights": rights, **more}
        claims = {"sub": user, "role": "authenticated", "app_metadata": known}
        name = f"{who}, signed in, with the rights {rights or 'none'}"
        return Insider(name, "authenticated", user, _split(rights), claims=claims, hostile=hostile)

    def app(who: str, user: str, rights: str, *, hostile: bool = False) -> Insider:
        scope = {"tenant": tenant, "user": user, "sight": "own", "rights": rights}
        return Insider(
            f"{who}, through the application, {rights}", "palaver_app", user, _split(rights), scope, None, hostile
        )

    sets = ("", "read", "write", "read,write", "read,write,system", "read,write,act_for", "read,write,system,admin")
    return [
        *(token("a participant", bob, rights, hostile=rights == "read,write") for rights in sets),
        *(token("the owner", ada, rights) for rights in ("read", "read,write")),
        token("a reader of the whole tenant", f"eve-{tenant}", "read", palaver_sight="tenant"),
        token("a token with an empty subject", "", "read,write,system,admin"),
        *(app("a participant", bob, rights, hostile=rights == "read,write") for rights in ("read", "read,write")),
        Insider("not signed in", "anon", "", frozenset()),
        Insider(
            "not signed in, with a token",
            "anon",
            "",
            frozenset(),
            claims={"sub": bob, "app_metadata": {"tenant": tenant}},
        ),
    ]


def _split(rights: str) -> frozenset[str]:
    return frozenset(one for one in rights.split(",") if one)


# ---- values --------------------------------------------------------------------------------------------------------


def hostile_values(verb: str, one: Parameter, usual: str, columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield invalid and hostile values for an argument, in the notation of its type."""
    yield from HOSTILE.get(one.type, HOSTILE["text"])
    if one.type != "jsonb":
        return
    table = ROWS.get(f"{verb}.{one.name}") or ROWS.get(one.name)
    for known in _with_fields(json.loads(usual), columns.get(table or "", ())):
        yield json.dumps(known)


def _with_fields(value: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield copies of a JSON value in which one field or element is hostile; `names` are further fields to try."""
    if isinstance(value, list):
        for place, inner in enumerate(value):
            others = (
                _with_fields(inner, names)
                if isinstance(inner, list | dict)
                else (one for one in FIELDS if one is not ...)
            )
            for changed in others:
                yield [*value[:place], changed, *value[place + 1 :]]
    elif isinstance(value, dict):
        for name in dict.fromkeys([*value, *([] if "drafts" in value else names)]):
            if isinstance(value.get(name), list | dict) and name in ("drafts",):
                yield from ({**value, name: changed} for changed in _with_fields(value[name], names))
                continue
            for one in FIELDS:
                if one is ...:
                    yield {key: kept for key, kept in value.items() if key != name}
                else:
                    yield {**value, name: one}


# ---- reading inside the transaction --------------------------------------------------------------------------------


class _Inside:
    """A transport that reads what the open transaction of a connection sees, and leaves nothing behind."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        names = ", ".join(f"{name} => ${place}" for place, name in enumerate(args, 1))
        savepoint = self.connection.transaction()
        await savepoint.start()
        try:
            with translate_errors():
                found: Sequence[Row] = await self.connection.fetch(
                    f"SELECT * FROM palaver_api.{function}({names})", *args.values()
                )
                return found
        finally:
            await savepoint.rollback()

    def snapshot(self) -> AbstractAsyncContextManager[Transport]:
        return nullcontext(self)

    async def close(self) -> None:
        """Do nothing: the connection is the suite's."""


class _InsideEngine(PostgresEngine):
    """The engine over such a transport."""

    blobs: Any
    is_service = False


async def read_everything(store: Store, conversation: str) -> None:
    """Read a conversation in every way that the library has, and verify it."""
    talk = await store.get(conversation)
    await talk.history(limit=1_000, include_superseded=True)
    await talk.branches()
    await talk.working_memory()
    await talk.facts(include_invalidated=True)
    await talk.summaries()
    await talk.attachments()
    await talk.requests()
    await talk.audit()
    with suppress(BudgetTooSmall):  # the last message is a long one, or says so
        await talk.build_context(token_budget=2_000)
    await talk.recall("what do you know")
    await talk.search("name")
    await store.conversations()
    await store.search("name")
    await store.stats()
    await talk.verify()


# ---- attempts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(SuiteReport):
    insiders: tuple[str, ...]
    views: tuple[str, ...]  # of older systems
    attempts: int
    refused: int
    changes: int  # transactions that changed a row, after which the conversation was read and verified

    def __str__(self) -> str:
        what = f"{len(self.insiders)} insiders, {len(self.functions)} functions, {len(self.views)} views"
        what += f": {self.attempts:,} attempts"
        return f"{what}, {self.refused:,} refused, {self.changes:,} changes, {self.describe_breaches()}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Statements that are all stored or none, and a name for them in the report."""

    way: str
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Target:
    """The conversation to read afterwards; None: the new ones. With `may_go`, it may be deleted."""

    conversation: str | None = None
    may_go: bool = False


def call(way: str, insider: Insider, verb: Verb, given: Mapping[Parameter, str]) -> Attempt:
    """Return a call of a function with these arguments."""
    places = ", ".join(f'"{one.name}" => ${n}::text::{one.type}' for n, one in enumerate(given, 2))
    arguments = ", ".join(part for part in ("who => $1::text::jsonb", places) if part)
    sql = f"SELECT to_jsonb(answer) FROM palaver_api.{verb.name}({arguments}) AS answer"
    return Attempt(way, [Step(sql, [json.dumps(dict(insider.who)), *given.values()])])


class Probe:
    """One run: a connection, a tenant, its reader, and what was found."""

    def __init__(self, admin: asyncpg.Connection[Any], tenant: str, columns: Mapping[str, Sequence[str]]) -> None:
        self.admin, self.tenant, self.columns = admin, tenant, columns
        self.attempts = self.refused = self.changes = 0
        self.breaches: dict[tuple[str, str, str], Breach] = {}
        self.digest = self.untouched = ""
        self.last_turn = self.last_conversation = 0
        self.reader: Store | None = None

    async def begin(self, reader: Store) -> None:
        self.reader = reader
        literal = await self.admin.fetchval("SELECT quote_literal($1)", self.tenant)
        parts = [
            f"SELECT {n} AS n, md5(string_agg(o::text, '' ORDER BY o::text)) AS said FROM palaver.{name} o "
            f"WHERE o.tenant = {literal}"
            for n, name in enumerate(await tables(self.admin))
        ]
        self.digest = f"SELECT md5(string_agg(said, ',' ORDER BY n)) FROM ({' UNION ALL '.join(parts)}) AS parts"
        self.untouched = str(await self.admin.fetchval(self.digest))
        self.last_turn = await self.admin.fetchval("SELECT max(tid) FROM palaver.turns")
        self.last_conversation = await self.admin.fetchval("SELECT max(cid) FROM palaver.conversations")

    def found(self, insider: Insider, way: str, problem: str) -> None:
        """Note a breach, once for each way and problem."""
        self.breaches.setdefault((insider.name, way, problem), Breach(insider.name, way, problem))

    @asynccontextmanager
    async def acting(self, insider: Insider) -> AsyncIterator[None]:
        wanted = {"statement_timeout": PATIENCE, "role": insider.role}
        if insider.claims is not None:
            wanted["request.jwt.claims"] = json.dumps(insider.claims)
        transaction = self.admin.transaction()
        await transaction.start()
        try:
            await self.admin.fetch(SET, list(wanted), list(wanted.values()))
            yield
        finally:
            await transaction.rollback()

    async def attempt(self, insider: Insider, attempts: Sequence[Attempt], target: Target, *, read: bool) -> None:
        """Make some attempts in one transaction, and judge the outcome: if it is bad, one by one."""
        problems: list[str] = []
        async with self.acting(insider):
            for one in attempts:
                problems += await self._try(one)
            await self.admin.execute("SET LOCAL ROLE NONE")
            if str(await self.admin.fetchval(self.digest)) != self.untouched:
                self.changes += 1
                problems += [problem async for problem in self._judge(insider, target, read=read)]
        if problems and len(attempts) > 1:
            for one in attempts:
                await self.attempt(insider, [one], target, read=read)
            return
        for problem in problems:
            self.found(insider, attempts[0].way, problem)

    async def _try(self, one: Attempt) -> list[str]:
        """Run the statements, and roll back those that are refused. Returns the problem of an unexpected failure."""
        self.attempts += 1
        fresh = new_id()  # or the second of two calls would find the row of the first
        try:
            async with self.admin.transaction():
                for step in one.steps:
                    await self.admin.fetch(step.sql, *(value.replace(FRESH, fresh) for value in step.args))
        except asyncpg.PostgresError as problem:
            self.refused += 1
            if not (problem.sqlstate or "").startswith(STATED):
                return [f"it failed with an unexpected error (SQLSTATE {problem.sqlstate})"]
        return []

    async def _judge(self, insider: Insider, target: Target, *, read: bool) -> AsyncIterator[str]:
        """Check the database after attempts that changed it."""
        if "write" not in insider.rights and not ("admin" in insider.rights and insider.role == "palaver_app"):
            yield "it changed rows without the right to write"
        for role, actor in await self._new_turns():
            if role == "system" and "system" not in insider.rights:
                yield "it stored a system turn without the right"
            elif role == "user" and insider.has_token and actor != insider.user and not insider.rights & ACTING:
                yield "it wrote in the name of another user"
        if read:
            for conversation in [target.conversation] if target.conversation else await self._new_conversations():
                async for problem in self._read(conversation, may_go=target.may_go):
                    yield problem

    async def _read(self, conversation: str, *, may_go: bool) -> AsyncIterator[str]:
        assert self.reader is not None
        try:
            await read_everything(self.reader, conversation)
        except (ConversationGone, ConversationNotFound) as problem:
            if not may_go:
                yield f"the conversation is gone ({type(problem).__name__})"
        except VerificationFailed as problem:
            # Its uploader controls the bytes of a file, so that `verify` is right to name a file that does not match.
            if not problem.row.startswith("attachment"):
                yield f"verify fails: {problem}"[:300]
        except PalaverError as problem:
            yield f"others cannot read it any more: {type(problem).__name__} {problem}"[:300]
        except Exception as problem:  # whatever it is, a reader met it
            yield f"others cannot read it any more: {type(problem).__name__}"

    async def _new_conversations(self) -> list[str]:
        sql = "SELECT id FROM palaver.conversations WHERE tenant = $1 AND cid > $2 AND gone IS NULL"
        return [row["id"] for row in await self.admin.fetch(sql, self.tenant, self.last_conversation)]

    async def _new_turns(self) -> list[tuple[str, str]]:
        rows = await self.admin.fetch(
            "SELECT role, actor FROM palaver.turns WHERE tenant = $1 AND tid > $2 AND status <> 'forgotten'",
            self.tenant,
            self.last_turn,
        )
        return [(row["role"], row["actor"]) for row in rows]


async def probe(url: str, *, only: Collection[str] | None = None, say: Callable[[str], object] | None = None) -> Report:
    """Attack a migrated database from the inside, and report what got through. Nothing of it stays there.

    `only` names the functions to call; without it, all are. `say` gets a line for each insider.
    """
    run = secrets.token_hex(6)
    tenant = f"inside-{run}"
    async with open_connection(url) as admin:
        if not await admin.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"):
            raise InvalidInput("url", "must be an administrator's, who sees past the policies")
        columns = {
            row["name"]: row["columns"]
            for row in await admin.fetch(
                """SELECT c.relname AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns FROM pg_class c
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                WHERE c.relnamespace = 'palaver'::regnamespace AND c.relkind IN ('r', 'p') GROUP BY 1"""
            )
        }
        try:
            return await _probe(Probe(admin, tenant, columns), url, run, only, say)
        finally:
            await admin.execute("RESET ROLE")
            await remove(admin, tenant)


@asynccontextmanager
async def _reading(url: str, admin: Any, scope: Scope, folder: str) -> AsyncIterator[Store]:
    """A store of the owner that sees the uncommitted rows of the suite's connection."""
    async with open_store(url, scope=scope, files=folder, worker=False, embedder=HashEmbedder()) as store:
        parts = components_of(store)
        engine = _InsideEngine(_Inside(admin), clock_of(store), CommitHub(None), scope.tenant)
        engine.blobs = parts.blobs
        yield Store(parts.signed_in(cast("SignedInEngine", engine)), scope)


async def _probe(
    one: Probe, url: str, run: str, only: Collection[str] | None, say: Callable[[str], object] | None
) -> Report:
    admin, tenant = one.admin, one.tenant
    ada, bob = f"ada-{run}", f"bob-{run}"
    roles = {row[0] for row in await admin.fetch("SELECT rolname FROM pg_roles")}
    everybody = insiders(tenant, ada, bob)
    here = [insider for insider in everybody if insider.role in roles]
    functions = [verb for verb in await verbs(admin) if only is None or verb.name in only]
    tables = await views(admin, only)
    with TemporaryDirectory(prefix="palaver-") as folder:
        shared = await victim(url, admin, tenant, run, folder=folder, participants=(bob,))
        await admin.execute(OTHER_FILES, tenant)
        own = await victim(url, admin, tenant, run, folder=folder, owner=bob)
        await admin.execute(OTHER_FILES, tenant)
        async with _reading(url, admin, Scope.of(tenant, None), folder) as reader:
            for known in (shared, own):
                await read_everything(reader, known["conversation"])  # as long as nobody has attacked
            await one.begin(reader)
            for place, known in (("a shared conversation", shared), ("its own conversation", own)):
                for insider in here:
                    await _call_all(one, insider, functions, known.seen_by(insider.user), place)
            for insider in here:
                await _write_all(one, insider, tables)
                if insider.hostile and (insider.has_token or "authenticated" not in roles):
                    await _call_hostile(one, insider, functions, shared.seen_by(insider.user))
                    await _write_hostile(one, insider, tables)
    if say:
        for insider in here:
            reached = any(breach.stranger == insider.name for breach in one.breaches.values())
            say(f"{'REACHED' if reached else 'nothing'}  {insider.name}")
    return Report(
        insiders=tuple(insider.name for insider in here),
        left_out=tuple(insider.name for insider in everybody if insider not in here),
        functions=tuple(verb.name for verb in functions),
        views=tuple(view.name for view in tables),
        attempts=one.attempts,
        refused=one.refused,
        changes=one.changes,
        breaches=tuple(one.breaches.values()),
    )


async def _call_all(one: Probe, insider: Insider, functions: Sequence[Verb], known: Known, place: str) -> None:
    """Call every function with proper values."""
    for verb in functions:
        forms = [{parameter: known.argument(verb.name, parameter) for parameter in form} for form in verb.forms()]
        calls = [call(f"{verb.name}, in {place}", insider, verb, given) for given in forms]
        await one.attempt(insider, calls, _target(verb, known), read=insider.hostile)


async def _call_hostile(one: Probe, insider: Insider, functions: Sequence[Verb], known: Known) -> None:
    """Call every function with each hostile value in each argument, the others proper."""
    reading = {row[0] for row in await one.admin.fetch(READING)}
    for verb in functions:
        usual = {parameter: known.argument(verb.name, parameter) for parameter in verb.parameters}
        needed = {parameter: value for parameter, value in usual.items() if not parameter.optional}
        for parameter, value in usual.items():
            calls = [
                call(
                    f"{verb.name}, with {parameter.name} = {hostile[:200]}",
                    insider,
                    verb,
                    {**needed, parameter: hostile},
                )
                for hostile in hostile_values(verb.name, parameter, value, one.columns)
            ]
            size = AT_ONCE if verb.name in APART or verb.name in reading else 1
            for start in range(0, len(calls), size):
                await one.attempt(insider, calls[start : start + size], _target(verb, known), read=True)


def _target(verb: Verb, known: Known) -> Target:
    return Target(known["conversation"], may_go=verb.name in DELETES)


async def _write_all(one: Probe, insider: Insider, tables: Sequence[View]) -> None:
    """Write to every table of an older system with proper values."""
    for view in tables:
        for way, steps in view.changes():
            await one.attempt(insider, [Attempt(way, steps)], Target(may_go=True), read=insider.hostile)


async def _write_hostile(one: Probe, insider: Insider, tables: Sequence[View]) -> None:
    """Write to every table of an older system with each hostile value in each column."""
    for view in tables:
        attempts = [Attempt(way, steps) for way, steps in view.attacks(HOSTILE)]
        for start in range(0, len(attempts), AT_ONCE):
            await one.attempt(insider, attempts[start : start + AT_ONCE], Target(may_go=True), read=True)
