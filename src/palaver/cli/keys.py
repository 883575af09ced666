"""Keys of the server's callers: keys create, list, revoke, log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, app, command
from palaver.cli.database import creating, existing
from palaver.cli.output import emit, say, table, wire
from palaver.conversations.api_keys import check_key_log, create_key, key_log, list_keys, revoke_key
from palaver.conversations.internals import clock_of
from palaver.errors import InvalidInput
from palaver.model import READ, RIGHTS, USER_RIGHTS, Right, Scope, Visibility

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.model import ApiKey

PANEL = "Maintenance"
group = typer.Typer(no_args_is_help=True, help="API keys of the server: create, list, revoke; print their log.")
app.add_typer(group, name="keys", rich_help_panel=PANEL)

Rights = Annotated[
    list[str] | None, typer.Option("--right", help=f"Right of the key: one of {', '.join(RIGHTS)}. May be repeated.")
]
PRESETS: Mapping[str, frozenset[Right]] = {
    "backend": frozenset(RIGHTS),  # an application that acts for all of its users
    "frontend": USER_RIGHTS,  # one person's app
    "reader": frozenset({READ}),
}
Preset = Annotated[
    str | None,
    typer.Option(
        help="Rights of the key: backend (all, including system messages), frontend (read, write, generate) or reader. "
        "Default: frontend with --user, otherwise backend."
    ),
]
VISIBILITIES: tuple[Visibility, ...] = ("own", "workspace", "tenant")


def _as_administrator(store: Store) -> Store:
    """Anyone who can open the database may create keys; `--user` says whom a key is for."""
    return store.scoped(Scope.of(store.scope.tenant, None))


@command("create", group=group)
async def create(
    call: Call,
    name: Annotated[str, typer.Argument(help="Purpose of the key, for example: phone.", show_default=False)],
    preset: Preset = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="The same as --preset reader.")] = False,
    right: Rights = None,
    visibility: Annotated[
        str | None,
        typer.Option(
            help="Conversations that the key can see: own, workspace or tenant. Default: own with --user, else tenant."
        ),
    ] = None,
    sight: Annotated[str | None, typer.Option(hidden=True, help="The old name of --visibility.")] = None,
    workspace: Annotated[str | None, typer.Option(help="Name of the workspace, with --visibility workspace.")] = None,
    days: Annotated[float | None, typer.Option(help="Days until the key expires. Default: never.")] = None,
) -> None:
    """Create an API key and print it. It is shown only once, because only its hash is stored.

    With --user, the key belongs to that user. Without it, the key belongs to the application, which acts for all users.

    Examples:

      palaver keys create phone --user ada --days 90
      palaver keys create backend --preset backend
      palaver keys create dashboard --user ada --preset reader
      palaver keys create importer --user ada --right read --right write
    """
    rights = _chosen_rights("reader" if read_only else preset, right, call.user)
    seen = visibility or sight or ("own" if call.user else "tenant")
    if seen not in VISIBILITIES:
        raise InvalidInput("visibility", f"must be one of {', '.join(VISIBILITIES)}")
    async with creating(call, embedder="none") as store:
        secret, key = await create_key(
            _as_administrator(store),
            name,
            user=call.user,
            rights=rights,
            visibility=seen,
            workspace=workspace,
            days=days,
        )
    if call.as_json:
        emit({"key": secret, **_shown(key)})
    else:
        say(secret)


def _chosen_rights(preset: str | None, rights: list[str] | None, user: str | None) -> frozenset[str]:
    """Return the rights of a new key: those of the preset and those that are named."""
    if preset is None and rights:
        return frozenset(rights)
    preset = preset or ("frontend" if user else "backend")
    if preset not in PRESETS:
        raise InvalidInput("preset", f"must be one of {', '.join(PRESETS)}")
    return PRESETS[preset].union(rights or ())


@command("list", group=group)
async def list_(call: Call) -> None:
    """List the keys of a tenant, with their rights and their state. The keys themselves are not stored.

    Example:

      palaver keys list --tenant acme
    """
    async with existing(call, embedder="none") as store:
        found = await list_keys(_as_administrator(store))
        now = clock_of(store).now()
    if call.as_json:
        for key in found:
            emit(_shown(key))
        return
    if not found:
        say("No keys. To create one, run `palaver keys create NAME`.")
        return
    rows = [
        (
            key.id,
            key.name,
            key.scope.user or "",
            ", ".join(one for one in RIGHTS if one in key.scope.rights),
            key.scope.visibility,
            f"{key.created:%Y-%m-%d %H:%M}",
            "never" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d %H:%M}",
            "works" if key.works(now) else "revoked" if key.revoked_at else "expired",
        )
        for key in found
    ]
    table(("id", "name", "user", "rights", "sees", "created", "expires", "state"), rows)


@command("revoke", group=group)
async def revoke(
    call: Call, id: Annotated[str, typer.Argument(help="Id of the key: see `palaver keys list`.", show_default=False)]
) -> None:
    """Revoke a key permanently. It stops working at once.

    Example:

      palaver keys revoke 3f9a0c1b2d4e
    """
    async with existing(call, embedder="none") as store:
        key = await revoke_key(_as_administrator(store), id)
    if call.as_json:
        emit(_shown(key))
    else:
        say(f"Revoked the key {key.id} ({key.name}).")


@command("log", group=group)
async def log(
    call: Call,
    after: Annotated[int, typer.Option(min=0, help="Only events after the one with this number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of events.")] = 1_000,
) -> None:
    """Verify and print the log of keys: which were created, used, refused and revoked.

    Example:

      palaver keys log --tenant acme
    """
    async with existing(call, embedder="none") as store:
        administrator = _as_administrator(store)
        await check_key_log(administrator)
        found = await key_log(administrator, after, limit)
    for event in found:
        if call.as_json:
            emit(wire(event))
        else:
            address = event.payload.get("address") or event.payload.get("name") or ""
            say(f"{event.n:>6}  {event.at:%Y-%m-%d %H:%M:%S}  {event.kind:<7} {event.turn}  {address}")


def _shown(key: ApiKey) -> dict[str, object]:
    """A key as the commands print it. Its scope has the field names that programs read since the first version."""
    data: dict[str, object] = wire(key)
    scope = key.scope
    data["scope"] = {**wire(scope), "sight": scope.visibility}
    return data
