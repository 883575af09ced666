"""The cross-tenant suite: attacks every function and every table of a Postgres database as callers without access.

    from palaver.testing.rls_probe import attack

    report = await attack("postgresql://admin@localhost/chat")
    assert report.ok, report.breaches

or `python -m palaver.testing postgresql://admin@localhost/chat`. The address is an administrator's, who may become
every role and bypasses every policy. The suite makes tenants of its own, with names that nobody else has, and removes
them when it is done.

Functions and tables are read from the catalogue, so that a new one is attacked as well, or the suite fails until it can
be. Each function is called with the names and numbers of a victim, on a connection that the victim has just used. The
result must be exactly the one that it returned for invented names before the victim had any data: the same rows, counts
and words. The victim's rows are compared after each attack, and the attack is rolled back.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg

from palaver.engines.postgres.transports import open_connection
from palaver.errors import InvalidInput
from palaver.testing.tenant_fixture import Known, NoAttack, Parameter, made_up, remove, tables, victim

DENIED = "42501"
# Inside one tenant, a key or an id that is taken is refused, and the answer names only what was asked for.
TAKEN = ("23505", "PV031")
PATIENCE = "20s"  # a verb that goes round in circles is a breach too
EVERYTHING = "read,write,system,admin"
# Functions that show a worker, for every tenant, that there is work, and when. The application is its own worker.
WORK = {
    "tenants_waiting": {"tenant"},
    "waiting": {"tenant", "lease_end", "files"},
    "next_job_anywhere": {"due"},
    "any_key": {"found"},
    "tenants": {"tenant"},
    "health": {"schema", "oldest_code", "waiting", "put_aside", "oldest"},
}
# The application finds a key before it knows whose it is; no verb shows one.
BEFORE_ANYBODY_IS_KNOWN = {"api_keys"}
# Keys and their log, who was erased, and budgets are for all admins of the tenant.
KEYS = {
    "put_key", "api_key", "api_keys", "revoke_key", "log_key", "key_events",
    "erasures", "erased_items", "put_erasure", "note_erased", "erase_keys",
    "budgets", "put_budget", "spend", "spent", "measure_storage", "take_lease",
    "budget_use", "leases",  # tables
}  # fmt: skip
# How a model counts is known to everybody inside the tenant: its name and numbers.
FOR_THE_TENANT, ABOUT_COUNTING = {"counter_bounds"}, {"counter_bound", "put_counter_bound"}
SET = "SELECT set_config(s.name, s.value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)"
IN_PAIRS = {"tail_n", "tail"}  # one means nothing without the other
# Numbers and times of the moment, which differ from call to call whatever is in the database.
OF_THE_MOMENT = {
    "cid", "tid", "pid", "created", "updated", "minute", "expires_at", "hash", "tip_hash", "content_hash", "bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Breach:
    """Data that a stranger reached. It names the attack, and contains none of the data."""

    stranger: str
    way: str
    problem: str

    def __str__(self) -> str:
        return f"{self.stranger}: {self.way}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteReport:
    """The functions that a suite has called, and the breaches that it has found."""

    left_out: tuple[str, ...]  # callers whose role this database does not have
    functions: tuple[str, ...]
    breaches: tuple[Breach, ...]

    @property
    def ok(self) -> bool:
        return not self.breaches

    def describe_breaches(self) -> str:
        """Return the number of breaches, and the callers that were left out."""
        left = f" (left out, because a role is missing: {', '.join(self.left_out)})" if self.left_out else ""
        return f"{len(self.breaches)} breaches{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(SuiteReport):
    strangers: tuple[str, ...]
    tables: tuple[str, ...]
    attacks: int

    def __str__(self) -> str:
        what = f"{len(self.strangers)} strangers, {len(self.functions)} functions, {len(self.tables)} tables"
        return f"{what}: {self.attacks:,} attacks, {self.describe_breaches()}"


# ---- who attacks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stranger:
    """A role, the claims of a token, settings left by an earlier user, and the scope that the caller sends."""

    name: str
    role: str
    who: dict[str, str]
    claims: dict[str, Any] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    inside: bool = False  # of the victim's own tenant

    @property
    def is_admin(self) -> bool:
        return self.claims is None and "admin" in self.who.get("rights", "")

    def left(self, known: Known) -> dict[str, str]:
        """The settings of another user, which a function finds on the connection."""
        return {**self.settings, "cid": known["cid"]} if self.settings else {}

    def said(self, known: Known) -> dict[str, str]:
        """The settings that plain SQL finds. The application says there who it is; nobody else is trusted."""
        return {**self.who, "cid": ""} if self.role == "palaver_app" else self.left(known)


def strangers(tenant: str, elsewhere: str, run: str) -> list[Stranger]:
    ada, eve = f"ada-{run}", f"eve-{run}"
    left = lie = {"tenant": tenant, "user": ada, "sight": "tenant", "rights": EVERYTHING}
    whole = {"sight": "tenant", "rights": EVERYTHING}

    def app(name: str, who: dict[str, str], settings: dict[str, str] | None = None) -> Stranger:
        return Stranger(name, "palaver_app", who, settings=settings or {}, inside=who.get("tenant") == tenant)

    def signed_in(name: str, sub: str, app_metadata: dict[str, Any], **more: Any) -> Stranger:
        claims = {"sub": sub, "role": "authenticated", "app_metadata": app_metadata, **more}
        return Stranger(name, "authenticated", lie, claims, left, inside=app_metadata.get("tenant") == tenant)

    def anonymous(name: str, claims: dict[str, Any] | None) -> Stranger:
        return Stranger(name, "anon", lie, claims, left)

    return [
        app("nobody set a tenant", {}),
        app("an empty tenant", {"tenant": "", **whole}),
        app("another tenant's application", {"tenant": elsewhere, **whole}),
        app("another tenant, on a connection with leftover settings", {"tenant": elsewhere, **whole}, left),
        app("the same user of another tenant", {"tenant": elsewhere, "user": ada}),
        app("another user", {"tenant": tenant, "user": eve, "rights": "read,write"}),
        app("another user who may act for others", {"tenant": tenant, "user": eve, "rights": EVERYTHING}),
        app("another workspace", {"tenant": tenant, "user": eve, "sight": "workspace", "workspace": "elsewhere"}),
        app("no workspace", {"tenant": tenant, "user": eve, "sight": "workspace"}),
        app("nobody of the same tenant", {"tenant": tenant, "rights": EVERYTHING}),
        signed_in("signed in, without a tenant", ada, {}),
        signed_in("signed in, with a tenant of one's own making", ada, {}, user_metadata={"tenant": tenant}),
        signed_in("signed in, as another user", eve, {"tenant": tenant}),
        signed_in("signed in, elsewhere", ada, {"tenant": elsewhere, "palaver_sight": "tenant"}),
        signed_in(
            "signed in, with a sight of one's own making",
            eve,
            {"tenant": tenant},
            user_metadata={"palaver_sight": "tenant", "palaver_rights": EVERYTHING},
            palaver_sight="tenant",
        ),
        anonymous("not signed in", None),
        anonymous("not signed in, with a token", {"sub": ada, "app_metadata": {"tenant": tenant}}),
    ]


# ---- what is attacked ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    parameters: tuple[Parameter, ...]  # without `who`

    def forms(self) -> list[tuple[Parameter, ...]]:
        """Return the calls to make: with the required arguments, with each optional one as well, and with all."""
        needed = tuple(one for one in self.parameters if not one.optional)
        single = [(*needed, one) for one in self.parameters if one.optional and one.name not in IN_PAIRS]
        return list(dict.fromkeys([needed, *single, self.parameters]))


async def verbs(admin: Any) -> list[Verb]:
    rows = await admin.fetch(
        """SELECT p.proname AS name, p.oid::regprocedure::text AS signature, p.pronargdefaults AS defaults,
          p.proargnames[1:p.pronargs] AS names,
          ARRAY(SELECT format_type(t.oid, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS t (oid, n) ORDER BY t.n)
          AS types
        FROM pg_proc p WHERE p.pronamespace = 'palaver_api'::regnamespace ORDER BY 1, 2"""
    )
    return [_verb(row) for row in rows]


def _verb(row: Any) -> Verb:
    names, types = list(row["names"] or ()), list(row["types"])
    if names[:1] != ["who"] or len(names) != len(types):
        raise NoAttack(f"{row['signature']}: a function takes the scope first, and every argument has a name")
    first_optional = len(names) - row["defaults"]
    found = [
        Parameter(name, kind, place >= first_optional)
        for place, (name, kind) in enumerate(zip(names, types, strict=True))
    ]
    return Verb(row["name"], tuple(found[1:]))


# ---- attacking -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The stranger's result, without the names that were part of the request."""

    sqlstate: str | None
    told: str
    columns: frozenset[str] = frozenset()
    changed: bool = False


class Siege:
    """One run: a connection, two tenants, and what was found."""

    def __init__(self, admin: asyncpg.Connection[Any], tenant: str, elsewhere: str) -> None:
        self.admin, self.tenant, self.elsewhere = admin, tenant, elsewhere
        self.attacks = 0
        self.breaches: list[Breach] = []
        self.known: Known | None = None  # of the victim, once there is one
        self.digest = self.untouched = ""

    async def begin(self, known: Known) -> None:
        """Record the rows of the victim, which no attack may change."""
        self.known = known
        self.digest = await _digest(self.admin, self.tenant, known["cid"])
        self.untouched = await self.fingerprint()

    def owner(self) -> Stranger:
        assert self.known is not None
        who = {"tenant": self.tenant, "user": self.known["owner"], "sight": "own", "rights": EVERYTHING}
        return Stranger("the victim itself", "palaver_app", who, inside=True)

    def found(self, stranger: Stranger, way: str, problem: str) -> None:
        self.breaches.append(Breach(stranger.name, way, problem))

    @asynccontextmanager
    async def acting(self, stranger: Stranger, said: dict[str, str]) -> AsyncIterator[None]:
        """A transaction of this stranger, after one of the victim on the same connection. Nothing of it stays."""
        if self.known is not None:
            who = json.dumps(self.owner().who)
            await self.admin.fetch("SELECT palaver_api.conversation($1, $2)", who, self.known["conversation"])
        wanted = {"statement_timeout": PATIENCE, "role": stranger.role}
        if stranger.claims is not None:
            wanted["request.jwt.claims"] = json.dumps(stranger.claims)
        wanted |= {f"palaver.{name}": value for name, value in said.items()}
        transaction = self.admin.transaction()
        await transaction.start()
        try:
            await self.admin.fetch(SET, list(wanted), list(wanted.values()))
            yield
        finally:
            await transaction.rollback()

    # ---- verbs

    async def call(self, stranger: Stranger, verb: Verb, form: Sequence[Parameter], known: Known) -> Answer:
        given = [known.argument(verb.name, one) for one in form]
        places = ", ".join(f'"{one.name}" => ${n}::text::{one.type}' for n, one in enumerate(form, 2))
        arguments = ", ".join(part for part in ("who => $1::text::jsonb", places) if part)
        sql = f"SELECT to_jsonb(answer) FROM palaver_api.{verb.name}({arguments}) AS answer"
        self.attacks += self.known is not None
        async with self.acting(stranger, stranger.left(known)):
            try:
                rows = await self.admin.fetch(sql, json.dumps(stranger.who), *given)
            except asyncpg.PostgresError as problem:
                return Answer(problem.sqlstate, known.masked(f"{problem} {problem.detail or ''}"))
            answers = [json.loads(row[0]) for row in rows if row[0] is not None]
            columns = frozenset(name for one in answers if isinstance(one, dict) for name in one)
            told = known.masked(json.dumps(_timeless(answers), sort_keys=True))
            await self.admin.execute("RESET ROLE")
            return Answer(None, told, columns, changed=await self.fingerprint() != self.untouched)

    async def fingerprint(self) -> str:
        """Return a fingerprint of every row of the victim."""
        return str(await self.admin.fetchval(self.digest)) if self.digest else ""

    def judge(self, stranger: Stranger, way: str, before: Answer, now: Answer) -> None:
        if stranger.inside and (way in ABOUT_COUNTING or (way in KEYS and stranger.is_admin)):
            return
        if now.changed:
            self.found(stranger, way, "it changed rows of the victim's")
        if "<word>" in now.told and "<word>" not in before.told:
            self.found(stranger, way, "the answer holds what the victim said")
        elif stranger.role == "palaver_app" and way in WORK:
            if not now.columns <= WORK[way]:
                self.found(stranger, way, "a worker learns more than that there is work")
        elif now.sqlstate in TAKEN and stranger.inside:
            return
        elif now.sqlstate == before.sqlstate == DENIED:
            return  # by the schema or by the function, whichever is looked at first
        elif (now.sqlstate, now.told) != (before.sqlstate, before.told):
            self.found(stranger, way, f"the answer differs from the one about nobody (SQLSTATE {now.sqlstate})")

    def sanity(self, way: str, now: Answer) -> None:
        """Require that the victim succeeds or gets an expected error: an attack that always fails proves nothing."""
        if now.sqlstate is not None and not now.sqlstate.startswith("PV"):
            self.found(self.owner(), way, f"the arguments of this attack do not fit (SQLSTATE {now.sqlstate})")

    # ---- tables

    async def table(self, stranger: Stranger, name: str, known: Known) -> None:
        if stranger.role == "palaver_app" and stranger.inside and name in BEFORE_ANYBODY_IS_KNOWN:
            return
        if stranger.inside and (name in FOR_THE_TENANT or (name in KEYS and stranger.is_admin)):
            return
        await self._touch(stranger, f"SELECT FROM palaver.{name}", known, allowed=0)
        await self._touch(stranger, f"DELETE FROM palaver.{name}", known, allowed=0)
        await self._touch(stranger, f"UPDATE palaver.{name} SET tenant = tenant", known, allowed=0)
        await self._touch(stranger, f"TRUNCATE palaver.{name} CASCADE", known, allowed=None)
        one_row = f"SELECT o::text FROM palaver.{name} AS o WHERE tenant = $1 LIMIT 1"
        insert = f"INSERT INTO palaver.{name} SELECT (($1::text)::palaver.{name}).*"
        await self._touch(stranger, insert, known, await self.admin.fetchval(one_row, self.tenant), allowed=None)

    async def _touch(self, stranger: Stranger, sql: str, known: Known, *given: str, allowed: int | None) -> None:
        """Run plain SQL: it must be denied or, where that is `allowed`, affect no row."""
        self.attacks += 1
        way = sql.partition(" SELECT ((")[0]
        async with self.acting(stranger, stranger.said(known)):
            try:
                touched = len(await self.admin.fetch(f"{sql} RETURNING 1" if _writes(sql) else sql, *given))
            except asyncpg.PostgresError as problem:
                if problem.sqlstate != DENIED:
                    self.found(stranger, way, f"it was refused for another reason (SQLSTATE {problem.sqlstate})")
                return
        if touched != allowed:
            self.found(stranger, way, f"it was let through ({touched} rows)")


def _writes(sql: str) -> bool:
    return sql.startswith(("DELETE", "UPDATE", "INSERT"))


def _timeless(answer: Any) -> Any:
    """Leave out values that depend on the time."""
    if isinstance(answer, list):
        return [_timeless(one) for one in answer]
    if isinstance(answer, dict):
        return {name: _timeless(value) for name, value in answer.items() if name not in OF_THE_MOMENT}
    return answer


async def _digest(admin: Any, tenant: str, cid: str) -> str:
    """Return one statement that reads all rows of a victim."""
    literal = await admin.fetchval("SELECT quote_literal($1)", tenant)
    with_cid = {
        row[0]
        for row in await admin.fetch(
            """SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
            WHERE c.relnamespace = 'palaver'::regnamespace AND a.attname = 'cid' AND a.attnum > 0"""
        )
    }
    parts = [
        f"SELECT {place} AS place, md5(string_agg(o::text, '' ORDER BY o::text)) AS said FROM palaver.{name} o "
        f"WHERE o.tenant = {literal}" + (f" AND o.cid = {cid}" if name in with_cid else "")
        for place, name in enumerate(await tables(admin))
    ]
    return f"SELECT md5(string_agg(said, ',' ORDER BY place)) FROM ({' UNION ALL '.join(parts)}) AS parts"


# ---- the whole of it -----------------------------------------------------------------------------------------------


async def attack(
    url: str, *, only: Collection[str] | None = None, say: Callable[[str], object] | None = None
) -> Report:
    """Attack a migrated database, and report what was reached. Nothing of it stays there.

    `only` names the functions and tables to attack; without it, all are. `say` gets a line for each stranger.
    """
    run = secrets.token_hex(6)
    tenant, elsewhere = f"victim-{run}", f"elsewhere-{run}"
    async with open_connection(url) as admin:
        if not await admin.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"):
            raise InvalidInput("url", "must be an administrator's, who sees past the policies")
        try:
            return await _attack(Siege(admin, tenant, elsewhere), url, run, only, say)
        finally:
            await admin.execute("RESET ROLE")
            await remove(admin, tenant, elsewhere)


async def _attack(
    siege: Siege, url: str, run: str, only: Collection[str] | None, say: Callable[[str], object] | None
) -> Report:
    admin = siege.admin
    roles = {row[0] for row in await admin.fetch("SELECT rolname FROM pg_roles")}
    everybody = strangers(siege.tenant, siege.elsewhere, run)
    here = [one for one in everybody if one.role in roles]
    functions, names = await verbs(admin), await tables(admin)
    if only is not None:
        functions, names = [one for one in functions if one.name in only], [one for one in names if one in only]
    calls = [(verb, form) for verb in functions for form in verb.forms()]
    nobody = made_up(siege.tenant, run)
    before = {  # verb by verb, so that a statement is made ready once
        (one.name, verb.name, form): await siege.call(one, verb, form, nobody) for verb, form in calls for one in here
    }
    with TemporaryDirectory(prefix="palaver-") as folder:
        known = await victim(url, admin, siege.tenant, run, folder=folder)
    await siege.begin(known)
    for verb, form in calls:
        siege.sanity(verb.name, await siege.call(siege.owner(), verb, form, known))
        for one in here:
            now = await siege.call(one, verb, form, known)
            siege.judge(one, verb.name, before[one.name, verb.name, form], now)
    for name in names:
        for one in here:
            await siege.table(one, name, known)
    if say:
        for one in here:
            say(f"{'REACHED' if any(b.stranger == one.name for b in siege.breaches) else 'nothing'}  {one.name}")
    return Report(
        strangers=tuple(one.name for one in here),
        left_out=tuple(one.name for one in everybody if one not in here),
        functions=tuple(verb.name for verb in functions),
        tables=tuple(names),
        attacks=siege.attacks,
        breaches=tuple(siege.breaches),
    )
