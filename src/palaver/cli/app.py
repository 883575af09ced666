"""Shared by all commands: the common options, running async code, and reporting failures."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer

from palaver.cli.output import complain, warn
from palaver.conversations.open_options import DEFAULT_URL
from palaver.errors import PalaverError, ScrubPending

# Raised by typer for a wrong option or argument. It has no public name of its own.
USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

DB_HELP = f"Database: a URL or the path of an SQLite file. Default: PALAVER_URL, else {DEFAULT_URL}."
TENANT_HELP = "Tenant to act in. Default: PALAVER_TENANT, else 'default'."
USER_HELP = "User to act as. Default: PALAVER_USER, else the application, which sees the whole tenant."
JSON_HELP = "Print JSON: one object, or one object per line."
PANEL = "Common options"


def _refuse_empty(value: str | None) -> str | None:
    """Reject an empty value: with an unset variable, `--user "$WHO"` would act for everybody."""
    if value == "":
        raise typer.BadParameter("must not be empty: name one, or leave it out")
    return value


Db = Annotated[
    str | None, typer.Option("--db", metavar="URL", callback=_refuse_empty, help=DB_HELP, rich_help_panel=PANEL)
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", callback=_refuse_empty, help=TENANT_HELP, rich_help_panel=PANEL),
]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", callback=_refuse_empty, help=USER_HELP, rich_help_panel=PANEL)
]
Json = Annotated[bool, typer.Option("--json", help=JSON_HELP, rich_help_panel=PANEL)]
# An argument that many commands take.
Name = Annotated[str, typer.Argument(metavar="CONVERSATION", help="Id or key of the conversation.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

app = typer.Typer(
    name="palaver",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables would print what people said.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, slots=True)
class Given:
    """The common options, given before or after the name of the command."""

    db: str | None = None
    tenant: str | None = None
    user: str | None = None
    as_json: bool = False

    def over(self, other: Given) -> Given:
        """Return these options. Take missing ones from `other`."""
        return Given(
            self.db or other.db,
            self.tenant or other.tenant,
            self.user or other.user,
            self.as_json or other.as_json,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a command: the database, the caller, and whether to print JSON."""

    url: str
    tenant: str
    user: str | None
    as_json: bool
    unsaid: frozenset[str] = frozenset()  # of url and tenant, those not given: a configuration file may set them


def _version(wanted: bool) -> None:
    if wanted:
        import palaver

        typer.echo(f"palaver {palaver.__version__}")
        raise typer.Exit


@app.callback()
def common(
    ctx: typer.Context,
    db: Db = None,
    tenant: Tenant = None,
    user: User = None,
    as_json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Store conversations, and build prompts from them that fit a token budget. Works offline, without an API key.

    Start with a chat in the terminal, then look at what it stored:

      palaver chat
      palaver ls
      palaver search peanuts
      palaver --db other.db show support/42

    Refer to a conversation by its id or its key. Every command accepts --json.
    """
    ctx.obj = Given(db, tenant, user, as_json)


# ---- commands ------------------------------------------------------------------------------------------------------

Command = Callable[..., Coroutine[Any, Any, None]]


def command(name: str, panel: str | None = None, group: typer.Typer = app) -> Callable[[Command], Command]:
    """Register an async function as a command. Its first parameter is the Call; the others are typer's.

    The common options are added here, so that every command has them and spells them the same way.
    """

    def register(work: Command) -> Command:
        group.command(name, rich_help_panel=panel)(_entry(work))
        return work

    return register


COMMON = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in (
        ("ctx", inspect.Parameter.empty, typer.Context),
        ("db", None, Db),
        ("tenant", None, Tenant),
        ("user", None, User),
        ("as_json", False, Json),
    )
)


def _entry(work: Command) -> Callable[..., None]:
    """The function that typer sees: the command's own parameters, then the common ones."""
    hints = get_type_hints(work, include_extras=True)
    _, *own = inspect.signature(work).parameters.values()
    parameters = [
        *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in own),
        *COMMON,
    ]

    def entry(
        *, ctx: typer.Context, db: str | None, tenant: str | None, user: str | None, as_json: bool, **options: Any
    ) -> None:
        run(_call(Given(db, tenant, user, as_json).over(ctx.obj)), work, options)

    entry.__doc__ = work.__doc__
    entry.__annotations__ = {one.name: one.annotation for one in parameters}
    entry.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return entry


def _call(given: Given) -> Call:
    from palaver.cli.database import database_url

    url = given.db or os.environ.get("PALAVER_URL")
    tenant = given.tenant or os.environ.get("PALAVER_TENANT")
    return Call(
        url=database_url(url or DEFAULT_URL),
        tenant=tenant or "default",
        user=given.user or os.environ.get("PALAVER_USER") or None,
        as_json=given.as_json,
        unsaid=frozenset(name for name, value in (("url", url), ("tenant", tenant)) if not value),
    )


def run(call: Call, work: Command, options: dict[str, Any]) -> None:
    """Run a command to its end. An expected error is printed as one line, with exit code 1 and no traceback."""
    try:
        asyncio.run(work(call, **options))
    except BrokenPipeError:
        raise  # `palaver show … | head`: the reader has enough, which is not an error
    except ScrubPending as pending:
        warn(pending, as_json=call.as_json)
    except (PalaverError, OSError) as problem:
        complain(problem, as_json=call.as_json)
        raise typer.Exit(1) from None
