"""A failing request raises a typed error that quotes neither the request nor the response.

A small server stands in for the project here: a real one does not fail on demand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import palaver
from palaver import EngineError, EngineUnavailable, PalaverError, SchemaMissing, Scope, TokenRefused
from palaver.conversations.open_options import SystemClock
from palaver.engines.postgres.migrate import known_version
from palaver.engines.postgres.supabase import open_supabase

SECRET = "the patient's name is Mallory"
ADA = {"tenant": "acme", "user": "ada", "sight": "own", "workspace": None, "rights": "read,write"}
QUOTING = {"details": f"Failing row contains ({SECRET}).", "hint": SECRET}


@asynccontextmanager
async def answering(status: int | None, body: Any, headers: str = "") -> AsyncIterator[str]:
    """Run a project that accepts every token and sends this response; without a status it closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await reader.readuntil(b"\r\n\r\n")) and (length := _length(head)) is not None:
            await reader.readexactly(length)
            signing_in = b"/rpc/signed_in" in head
            if status is None and not signing_in:
                break
            told = [{**ADA, "schema": known_version(), "oldest_code": 3}] if signing_in else body
            code, more = (200, "") if signing_in else (status, headers)
            text = told if isinstance(told, str) else json.dumps(told)
            writer.write(f"HTTP/1.1 {code} X\r\ncontent-length: {len(text.encode())}\r\n{more}\r\n{text}".encode())
            await writer.drain()
        writer.close()

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(quietly, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"supabase+http://127.0.0.1:{port}"
    finally:
        server.close()


def _length(head: bytes) -> int | None:
    found = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(found[0].split(b":")[1]) if found else None


async def refusal(url: str) -> PalaverError:
    """Return the error of the first call. Opening the store sweeps first, which fails in the same way."""
    with pytest.raises(PalaverError) as refused:
        async with palaver.open(url, key="sb_publishable_x", token="t.o.k", worker=False) as store:
            await store.conversations()
    assert SECRET not in repr(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None  # a traceback would print it
    return refused.value


@pytest.mark.parametrize(
    ("status", "body", "error", "sqlstate"),
    [
        (409, {"code": "23505", "message": SECRET, **QUOTING}, EngineError, "23505"),
        (403, {"code": "42501", "message": SECRET, **QUOTING}, EngineError, "42501"),
        (400, {"code": "PV001", "message": '["01X"]', **QUOTING}, palaver.ConversationNotFound, None),
        (500, {"code": "57014", "message": SECRET, **QUOTING}, EngineUnavailable, "57014"),
        (503, {"code": "53300", "message": SECRET, **QUOTING}, EngineUnavailable, "53300"),
        (405, {"code": "25006", "message": SECRET, **QUOTING}, palaver.DatabaseReadOnly, "25006"),
        (500, {"code": "53100", "message": SECRET, **QUOTING}, palaver.DatabaseFull, "53100"),
        (401, {"code": "PGRST303", "message": "JWT expired"}, TokenRefused, None),
        (401, {"code": "PGRST301", "message": SECRET}, TokenRefused, None),
        (401, {"message": "Invalid API key"}, EngineError, None),
        (406, {"code": "PGRST106", "message": SECRET}, SchemaMissing, None),
        (404, {"code": "PGRST202", "message": SECRET}, SchemaMissing, None),
        (503, {"code": "PGRST002", "message": SECRET}, EngineUnavailable, None),
        (504, {"code": "PGRST003", "message": SECRET}, EngineUnavailable, None),
        (502, f"<html>{SECRET}</html>", EngineUnavailable, None),
        (429, f"<html>{SECRET}</html>", EngineUnavailable, None),
        (413, f"<html>{SECRET}</html>", EngineError, None),
        (200, f"<html>{SECRET}</html>", EngineError, None),
        (None, None, EngineUnavailable, None),
    ],
    ids=lambda value: value if isinstance(value, int) else "",
)
async def test_a_failure_has_a_type_and_says_nothing(
    status: int | None, body: Any, error: type[PalaverError], sqlstate: str | None
) -> None:
    async with answering(status, body) as url:
        found = await refusal(url)
        assert isinstance(found, error)
        assert getattr(found, "sqlstate", None) == sqlstate


async def test_a_project_that_is_silent_is_out_of_reach() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silence, "127.0.0.1", 0)
    try:
        url = f"supabase+http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        home = Scope.of("acme", None)
        with pytest.raises(EngineUnavailable):
            async with open_supabase(
                url, SystemClock(), home=home, key="sb_publishable_x", token="t.o.k", timeout_seconds=0.2
            ):
                pass
    finally:
        server.close()


async def test_a_project_that_is_not_there_is_out_of_reach(unused_tcp_port: int) -> None:
    assert isinstance(await refusal(f"supabase+http://127.0.0.1:{unused_tcp_port}"), EngineUnavailable)


async def test_an_answer_that_was_cut_is_an_error() -> None:
    """`Max rows` truncates silently; a truncated result must not look complete."""
    async with answering(200, [], "content-range: */7\r\n") as url:
        found = await refusal(url)
        assert isinstance(found, EngineError)
        assert "Max rows" in str(found)
