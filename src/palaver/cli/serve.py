"""Commands of the server: serve."""

from __future__ import annotations

import os
import sys
import threading
import time
import urllib.request
import webbrowser
from dataclasses import replace
from typing import Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import database_url
from palaver.cli.output import note, say
from palaver.conversations.internals import engine_of
from palaver.errors import InvalidInput, MissingExtra

PANEL = "Chat"

Host = Annotated[
    str | None,
    typer.Option(
        help="Address to listen on. Default: 127.0.0.1. On other addresses than loopback, callers need a key or a JWT."
    ),
]
Port = Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to listen on. Default: 8484.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of processes. Default: 1. More than one needs Postgres.")
]
Model = Annotated[
    str | None, typer.Option(help="Default model: openai:MODEL, anthropic:MODEL, … Without it, answers are offline.")
]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="TOML file with settings: see docs/how-to/server.md.")]
Open = Annotated[bool, typer.Option("--open", help="Open the web app in a browser, if the machine has a display.")]
Auth = Annotated[bool, typer.Option("--require-auth", help="Require a key or a JWT on loopback, too.")]

LogFormat = Annotated[str | None, typer.Option(metavar="text|json", help="Format of the log on stderr. Default: text.")]


@command("serve", PANEL)
async def serve(
    call: Call,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    model: Model = None,
    config: Config = None,
    require_auth: Auth = False,
    log_format: LogFormat = None,
    open: Open = False,
) -> None:
    """Serve the web app and the API. On loopback, callers need no key.

    On any other address, callers need a key or a JWT, and the server does not start if there is neither.

    A setting can also be an environment variable (PALAVER_ and its name in capitals) or a line in the file of --config.
    Options override both, and the environment overrides the file.

    Examples:

      palaver serve
      palaver keys create phone --user ada && palaver serve --host 0.0.0.0
    """
    try:
        from palaver.server.process import serve as run
        from palaver.server.settings import misspelt_variables, read_settings
    except ModuleNotFoundError as problem:
        raise MissingExtra("server", "The server") from problem
    settings = read_settings(
        os.environ,
        config,
        url=None if "url" in call.unsaid else call.url,
        tenant=None if "tenant" in call.unsaid else call.tenant,
        host=host,
        port=port,
        workers=workers,
        model=model,
        require_auth=require_auth or None,
        log_format=log_format,
    )
    settings = replace(settings, url=database_url(settings.url)).check()
    for warning in misspelt_variables(os.environ):
        note(warning)
    call = replace(call, url=settings.url)
    await _refuse_an_open_door(call, settings.needs_auth and not settings.has_jwt, settings.host)
    say(f"Palaver on http://{settings.host}:{settings.port}/  ({'keys needed' if settings.needs_auth else 'no key'})")
    if open:
        _show(f"http://{settings.host}:{settings.port}/")
    if not await run(settings):
        raise typer.Exit(1)


def _show(url: str) -> None:
    """Open the web app in a browser, if there is a screen. A thread does this once the server responds."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    threading.Thread(target=_show_when_up, args=(url,), daemon=True).start()


def _show_when_up(url: str) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            webbrowser.open(url)
            return


async def _refuse_an_open_door(call: Call, needs_keys: bool, host: str) -> None:
    """Refuse to start a server that needs keys while there is none."""
    if not needs_keys:
        return
    from palaver.cli.database import creating

    async with creating(call, embedder="none") as store:
        if not await engine_of(store).has_key():
            raise InvalidInput(
                "host",
                f"callers need a key on {host}, and no key exists: run `palaver keys create NAME`, "
                "or set PALAVER_JWT_SECRET or PALAVER_JWKS",
            )
