"""`palaver migrate`: bring a database to the current schema."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import creating, hide_password, sqlite_path
from palaver.cli.output import emit, note, say
from palaver.conversations.engine_choice import scheme_of
from palaver.errors import (
    InvalidInput,
    MissingExtra,
)

if TYPE_CHECKING:
    pass

PANEL = "Maintenance"


@command("migrate", PANEL)
async def migrate(
    call: Call,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for Postgres or Supabase, and run nothing.")
    ] = False,
    since: Annotated[
        int,
        typer.Option(
            "--since", metavar="N", help="With --sql: upgrade from this schema version. 0: an empty database.", min=0
        ),
    ] = 0,
    supabase: Annotated[
        bool, typer.Option("--supabase", help="With --sql: also create the bucket for attachments.")
    ] = False,
    compat: Annotated[
        list[str] | None,
        typer.Option(metavar="hal|librarian", help="Also create the tables of this system. May be repeated."),
    ] = None,
    anon_tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --compat: tenant of Supabase's public key. '': none. Default: unchanged."
        ),
    ] = None,
    service_tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --compat: tenant of Supabase's server key. '': none. Default: unchanged."
        ),
    ] = None,
    distribute: Annotated[
        str | None, typer.Option(metavar="citus", help="Distribute the tables over a Citus cluster, by tenant.")
    ] = None,
) -> None:
    """Create the database, or upgrade it to the current schema. Safe to run again, and in several processes at once.

    On Postgres, --db must be the URL of a role that can create schemas and roles. The role of the application needs
    fewer rights. With --sql, --compat and --distribute print only their own part.

    Examples:

      palaver migrate --db chat.db
      palaver migrate --db postgresql://admin@host/name
      palaver migrate --sql > palaver.sql
      palaver migrate --sql --supabase > palaver.sql
      palaver migrate --compat librarian --db postgresql://admin@host/name
      palaver migrate --compat librarian --service-tenant acme --db postgresql://admin@host/name
    """
    extras = Extras(tuple(compat or ()), anon_tenant, service_tenant, distribute)
    if sql:
        typer.echo(extras.sql(since, storage=supabase), nl=False)
        return
    path = sqlite_path(call.url)
    if path is None and scheme_of(call.url) not in ("postgresql", "postgres"):
        raise InvalidInput("db", "must be a file or a Postgres database")
    extras.check(path)
    if anon_tenant:
        note(f"Anyone with the public key can now read, write and delete everything in the tenant {anon_tenant!r}.")
    before, after = await (_migrated_file(call, path) if path is not None else _migrated_server(call.url, extras))
    if call.as_json:
        fields = {"database": hide_password(call.url), "from": before, "to": after, "changed": before != after}
        emit(fields | ({"compat": list(extras.compat), "distributed": bool(distribute)} if extras.are_given else {}))
    elif extras.are_given:
        say(f"{hide_password(call.url)} is at schema {after}, with {extras.description}.")
    elif before == after:
        say(f"{hide_password(call.url)} is at schema {after}, and up to date.")
    else:
        was = "it was created" if before is None else f"it was at {before}"
        say(f"{hide_password(call.url)} is at schema {after}; {was}.")


@dataclass(frozen=True, slots=True)
class Extras:
    """Optional parts of a Postgres database, besides the schema."""

    compat: tuple[str, ...] = ()
    anon_tenant: str | None = None
    service_tenant: str | None = None
    distribute: str | None = None

    @property
    def are_given(self) -> bool:
        return bool(self.compat or self.distribute)

    @property
    def description(self) -> str:
        return " and ".join(
            [*(f"the tables of {name}" for name in self.compat), *(["distribution"] * bool(self.distribute))]
        )

    def check(self, path: Path | None) -> None:
        """Check the options before anything is changed."""
        if path is None:
            self.sql(0)
        elif self.are_given:
            raise InvalidInput("db", "must be a Postgres database for --compat and --distribute")

    def sql(self, since: int, *, storage: bool = False) -> str:
        try:
            from palaver.engines.postgres import citus, compat, migrate
        except ModuleNotFoundError as problem:
            raise MissingExtra("postgres", "The Postgres engine") from problem

        if self.distribute not in (None, "citus"):
            raise InvalidInput("distribute", f"{self.distribute!r} is unknown: use citus")
        if since > migrate.known_version():
            raise InvalidInput("since", f"{since} is newer than this version's schema, {migrate.known_version()}")
        tables = compat.script(self.compat, compat.Bindings(self.anon_tenant, self.service_tenant))
        steps = [tables] if tables else []
        steps += [citus.script()] if self.distribute else []
        return migrate.as_transaction("\n".join(steps)) if steps else migrate.editor_script(since, storage=storage)

    async def apply(self, connection: Any) -> None:
        from palaver.engines.postgres import citus, compat

        if self.compat:
            await compat.apply(connection, self.compat, compat.Bindings(self.anon_tenant, self.service_tenant))
        if self.distribute:
            await citus.distribute(connection, report=note)


async def _migrated_file(call: Call, path: Path) -> tuple[int | None, int]:
    """Migrate a file. Return its schema before, None if it is new, and after."""
    before = read_schema(path) if path.exists() else None
    async with creating(call):
        return before, read_schema(path)


async def _migrated_server(url: str, extras: Extras) -> tuple[int | None, int]:
    """Migrate a Postgres database. Return its schema before, None if it had none, and after."""
    from palaver.engines.postgres import migrate, transports

    async with transports.open_connection(url, administrator=True) as connection:
        before, after = await migrate.migrate(connection)
        await extras.apply(connection)
    return before or None, after


def read_schema(path: Path) -> int:
    return int(read_pragma(path, "user_version"))


def read_pragma(path: Path, pragma: str) -> Any:
    """Ask SQLite about a file, without changing it. `palaver.open` would migrate what it opens."""
    from palaver.engines.sqlite.connection import SQLiteAddress, connect, translate_errors

    with translate_errors(path):
        db = connect(SQLiteAddress(path), readonly=True)
        try:
            return db.execute(f"PRAGMA {pragma}").fetchall()[0][0]
        finally:
            db.close()
