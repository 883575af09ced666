"""For operators: is it there, can it work, what has it done, and what does its log say."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from palaver.conversations.internals import engine_of
from palaver.errors import EngineUnavailable, InvalidInput
from palaver.ports.jobs import Health
from palaver.server.ops import logs
from palaver.server.ops.readiness import describe_problems
from palaver.server.settings import ServerSettings, misspelt_variables, read_settings
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import Running, events, ok, running, until

TOKEN = "a-token-for-those-who-watch-the-server"
SECRET = "x" * 32


@pytest.fixture
def server_url(database_url: str) -> str:
    """On each engine in turn."""
    return database_url


def figures(client: httpx.Client, **headers: str) -> dict[str, float]:
    """The figures of /metrics, by name and labels."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {named(one.name, one.labels): one.value for family in families for one in family.samples}


def figures_at_rest(client: httpx.Client) -> dict[str, float]:
    """When no answer is being made any more: its last word is sent a moment before it is counted."""
    deadline = time.monotonic() + 30
    while (found := figures(client))["palaver_answers_in_the_making"] and time.monotonic() < deadline:
        pass
    return found


def named(name: str, labels: dict[str, str]) -> str:
    return name + "".join(f" {label}={value}" for label, value in sorted(labels.items()))


# ---- there, and ready ----------------------------------------------------------------------------------------------


def test_it_is_there_and_ready_for_anybody_who_asks(settings: Callable[..., ServerSettings]) -> None:
    """Even under an address that is not one of its names, as health checks use."""
    with running(settings(require_auth=True, jwt_secret=SECRET)) as server, server.client() as client:
        for path in ("/healthz", "/readyz"):
            assert client.get(path, headers={"Host": "10.0.0.7:8484"}).status_code == 200
        assert ok(client.get("/readyz")) == {"status": "ready", "problems": {}}


def test_a_database_that_does_not_answer_makes_it_unready_and_leaves_it_there(
    server: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(kinds: Sequence[str]) -> Health:
        raise EngineUnavailable("cannot reach postgresql://ada:hunter2@db.internal")

    monkeypatch.setattr(engine_of(server.app.state.services.store), "health", broken)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["problems"] == {"database": "does not respond (EngineUnavailable)"}
    assert "retry-after" in answer.headers
    assert client.get("/healthz").status_code == 200
    assert figures(client)["palaver_database_up"] == 0


def test_a_database_that_is_silent_does_not_keep_it_silent(
    server: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(kinds: Sequence[str]) -> Health:
        await asyncio.sleep(3_600)
        raise AssertionError

    server.app.state.services.readiness.timeout = 0.05
    monkeypatch.setattr(engine_of(server.app.state.services.store), "health", silent)
    assert client.get("/readyz").status_code == 503


HEALTH = Health(schema=6, schema_known=6, compatible=True, waiting=3, put_aside=1, lag=30.0)


@pytest.mark.parametrize(
    ("found", "limit", "names"),
    [
        (HEALTH, 600, set()),
        (replace(HEALTH, schema=7), 600, set()),
        (replace(HEALTH, schema=7, compatible=False), 600, {"schema"}),
        (replace(HEALTH, schema=5, compatible=False), 600, {"schema"}),
        (replace(HEALTH, lag=601.0), 600, {"worker"}),
        (replace(HEALTH, lag=601.0), 0, set()),
    ],
)
def test_what_keeps_it_from_being_ready_is_named(found: Health, limit: float, names: set[str]) -> None:
    assert describe_problems(found, limit).keys() == names


def test_the_database_is_asked_once_however_many_ask(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    engine = engine_of(server.app.state.services.store)
    really = engine.health

    async def counted(kinds: Sequence[str]) -> Health:
        nonlocal looks
        looks += 1
        return await really(kinds)

    server.app.state.services.readiness.fresh_seconds = 3_600.0
    monkeypatch.setattr(engine, "health", counted)

    async def many() -> None:
        await asyncio.gather(*(server.app.state.services.readiness.check() for _ in range(50)))

    server.do(many())
    assert looks == 1


def test_one_that_is_closing_asks_for_no_more_requests(server: Running, client: httpx.Client) -> None:
    server.loop.call_soon_threadsafe(server.app.state.services.begin_shutdown)
    deadline = time.monotonic() + 30
    while (answer := client.get("/readyz")).status_code == 200 and time.monotonic() < deadline:
        pass
    assert answer.json()["problems"] == {"server": "is shutting down"}


# ---- figures -------------------------------------------------------------------------------------------------------


def test_figures_tell_what_was_done(settings: Callable[..., ServerSettings]) -> None:
    with LoopbackProvider() as provider:
        provider.script(Say("Hello."), Say("Again."))
        chosen = settings(model="chat", models=provider.models(), generate={"titles": False})
        with running(chosen) as server, server.client() as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            ok(client.post(f"{talk}/turns", json={"role": "user", "content": "one"}))
            ok(client.post(f"{talk}/generate", json={"message": "two"}))
            ok(client.post(f"{talk}/context", json={}))
            client.get("/somewhere/else")
            with client.stream("GET", f"{talk}/events") as response:
                stream = events(response)  # kept: letting go of it hangs up
                until(stream, "commit")
                found = figures_at_rest(client)
    appends = "method=POST route=/api/conversations/{conversation}/turns"
    assert found[f"palaver_requests_total {appends} status=201"] == 1
    assert found[f"palaver_request_seconds_count {appends}"] == 1
    assert found["palaver_requests_total method=GET route=- status=404"] == 1
    assert found["palaver_turns_stored_total"] == 3
    assert found["palaver_context_build_seconds_count"] >= 2
    assert found["palaver_tokens_total kind=prompt"] > 0
    assert found["palaver_tokens_total kind=completion"] > 0
    assert found["palaver_tokens_total kind=cached"] >= 0
    assert found["palaver_answers_total outcome=done"] == 1
    assert found["palaver_answers_in_the_making"] == 0
    assert found["palaver_live_readers"] == 1
    assert found["palaver_database_up"] == 1
    assert found["palaver_outbox_jobs"] >= 0
    assert found["palaver_outbox_lag_seconds"] >= 0
    assert found["process_resident_memory_bytes"] > 0


def test_a_failed_and_a_stopped_answer_are_told_apart(settings: Callable[..., ServerSettings]) -> None:
    never = threading.Event()
    words = [f"word{n} " for n in range(20)]
    with LoopbackProvider() as provider:
        provider.script(Say(words, cut_after=5), Say(words, hold_after=(5, never)))
        chosen = settings(
            model="chat", models=provider.models(), generate={"titles": False, "retries": 0}, heartbeat=0.2
        )
        with running(chosen) as server, server.client() as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            assert client.post(f"{talk}/generate", json={"message": "one"}).status_code == 503
            with client.stream("POST", f"{talk}/generate", json={"message": "two", "stream": True}) as response:
                stream = events(response)
                until(stream, "delta")
                ok(client.post(f"{talk}/stop"), 202)
                until(stream, "done")
            never.set()
            found = figures_at_rest(client)
    assert found["palaver_answers_total outcome=failed"] == 1
    assert found["palaver_answers_total outcome=stopped"] == 1


def test_figures_of_all_tenants_are_for_no_tenant(settings: Callable[..., ServerSettings]) -> None:
    """Not even its admins: a count of everybody's requests is something of the others."""
    with running(settings(require_auth=True, jwt_secret=SECRET)) as server:
        admin = server.key(user=None, rights="read write admin", visibility="tenant")
        for credential in (None, admin):
            with server.client(credential) as client:
                assert client.get("/metrics").status_code == 403


def test_figures_are_for_those_who_have_the_token(settings: Callable[..., ServerSettings]) -> None:
    for chosen in (settings(metrics_token=TOKEN), settings(metrics_token=TOKEN, require_auth=True, jwt_secret=SECRET)):
        with running(chosen) as server:
            for wrong in (None, TOKEN[:-1], TOKEN + "x", server.key()):
                with server.client(wrong) as client:
                    assert client.get("/metrics").status_code == 401
            with server.client(TOKEN) as client:
                assert "palaver_database_up" in figures(client)


def test_no_figure_names_anybody(settings: Callable[..., ServerSettings]) -> None:
    words = ("tenant-marker", "user-marker", "key-marker", "title-marker", "said-marker", "path-marker")
    with running(settings(require_auth=True, jwt_secret=SECRET, metrics_token=TOKEN)) as server:
        with server.client(server.key("tenant-marker", "user-marker")) as client:
            made = ok(client.post("/api/conversations", json={"key": "key-marker", "title": "title-marker"}))
            talk = f"/api/conversations/{made['id']}"
            ok(client.post(f"{talk}/turns", json={"role": "user", "content": "said-marker"}))
            client.get("/path-marker/x")
            client.request("PATHMARKER", talk)
            client.get(f"{talk}/turns/path-marker")
        with server.client(TOKEN) as client:
            text = client.get("/metrics").text
    assert not [word for word in (*words, "PATHMARKER", made["id"]) if word in text]


# ---- the log -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["text", "json"])
def logged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """The log as `palaver serve` writes it. Restore the handlers of others afterwards."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    kept = [logging.getLogger(name) for name in (logs.OWN, *logs.LIBRARIES)]
    before = [(log.handlers, log.propagate, log.level) for log in kept]
    logs.set_up(ServerSettings(log_format=request.param, log_level="debug"))
    yield written.getvalue
    logging.captureWarnings(False)
    for log, (handlers, propagate, level) in zip(kept, before, strict=True):
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


MARKERS = {
    "content": "said-marker", "query": "query-marker", "title": "title-marker", "tenant": "tenant-marker",
    "user": "user-marker", "path": "path-marker", "key": "key-marker",
}  # fmt: skip


def test_the_log_of_a_whole_run_has_every_request_and_no_word_of_it(
    settings: Callable[..., ServerSettings], logged: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    said, query = MARKERS["content"], MARKERS["query"]
    with LoopbackProvider() as provider:
        provider.script(Say(said), Say([said, " ", said], cut_after=1), Say(said))
        chosen = settings(
            model="chat", models=provider.models(), generate={"retries": 0}, require_auth=True, jwt_secret=SECRET
        )
        with running(chosen) as server:
            key = server.key(MARKERS["tenant"], MARKERS["user"])
            engine_of(server.app.state.services.store).usage = _raises(said)
            with server.client(key) as client:
                body = {"key": MARKERS["key"], "title": MARKERS["title"]}
                talk = f"/api/conversations/{ok(client.post('/api/conversations', json=body))['id']}"
                first = {"role": "user", "content": said}
                answers = [
                    client.post(f"{talk}/turns", json=first, headers={"X-Request-Id": "r1"}),
                    client.post(f"{talk}/turns", json={"role": said, "content": said}),
                    client.post(f"{talk}/turns", content=f'{{"content": "{said}'.encode()),
                    client.post(f"{talk}/generate", json={"message": said}),
                    client.post(f"{talk}/generate", json={"message": said}),
                    client.get("/api/search", params={"q": query}),
                    client.get(f"/{MARKERS['path']}", params={"q": query}),
                    client.get(f"/api/conversations/{MARKERS['path']}"),
                    client.get("/api/usage", headers={"X-Request-Id": "r2"}),
                    client.get("/api/events", params={"ticket": query, "conversation": "x"}),
                    client.delete(talk),
                ]
            with server.client("plv.YWNtZQ.secret-marker") as client:
                answers.append(client.get("/api/conversations"))
    assert {500, 503, 422, 404, 401} <= {one.status_code for one in answers}
    text = logged()
    found = [word for word in (*MARKERS.values(), "secret-marker", key.rpartition(".")[2]) if word in text]
    assert not found, text
    assert "request r2: unexpected RuntimeError at" in text
    if request.node.callspec.params["logged"] == "json":
        rows = [json.loads(line) for line in text.splitlines()]
        told = [row for row in rows if row["event"] == "request"]
        assert len(told) == len(answers) + 1
        (append,) = [row for row in told if row["request"] == "r1"]
        assert append["route"] == "/api/conversations/{conversation}/turns"
        assert (append["method"], append["status"], append["level"]) == ("POST", 201, "info")
        assert append["caller"].startswith("key:")
        assert append["ms"] >= 0
    else:
        assert " info POST /api/conversations/{conversation}/turns 201 " in text


def _raises(said: str) -> Callable[..., Any]:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError(said)

    return broken


def test_what_others_log_is_told_without_what_it_quotes(logged: Callable[[], str]) -> None:
    """asyncio and uvicorn put exceptions, with all their words, into their messages."""
    try:
        raise ValueError("said-marker")
    except ValueError as problem:
        render = f"Task exception was never retrieved\nfuture: <Task exception={problem!r}>"
        logging.getLogger("asyncio").error(render, exc_info=problem)
        trace = "Traceback (most recent call last):\n  said-marker\nValueError: said-marker"
        logging.getLogger("uvicorn.error").error(trace)
    text = logged()
    assert "said-marker" not in text
    assert "Task exception was never retrieved (ValueError at " in text
    assert text.count("\n") == 2


def test_a_collector_that_cannot_be_reached_is_logged_in_the_configured_format(logged: Callable[[], str]) -> None:
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").warning("Transient error")
    assert "Transient error" in logged()


def test_probes_do_not_fill_the_log(server: Running, client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "palaver.server")
    for path in ("/healthz", "/readyz", "/api/settings"):
        client.get(path)
    told = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "request"]
    assert len(told) == 1
    assert told[0].startswith("GET /api/settings 200 ")


@pytest.mark.parametrize(("field", "value"), [("log_format", "xml"), ("log_level", "loud"), ("metrics_token", "short")])
def test_settings_of_operations_are_checked(field: str, value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_settings({f"PALAVER_{field.upper()}": value}, None)
    assert refused.value.field == field


def test_a_misspelt_setting_of_the_file_gets_a_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "palaver.toml"
    file.write_text("[server]\nretention_minute = 60\n")
    with pytest.raises(InvalidInput, match="did you mean 'retention_minutes'"):
        read_settings({}, str(file))


def test_a_misspelt_variable_gets_a_suggestion_and_others_with_the_prefix_none() -> None:
    others = ("PALAVER_SERVICE_HOST", "PALAVER_PORT_8484_TCP_ADDR", "PALAVER_APP_PASSWORD")
    assert misspelt_variables(dict.fromkeys(("PALAVER_HOSTS", "PALAVER_CONFIG", *others), "x")) == []
    (warning,) = misspelt_variables({"PALAVER_RETENTON_MINUTES": "60"})
    assert warning.startswith("PALAVER_RETENTON_MINUTES is not a setting")
    assert "PALAVER_RETENTION_MINUTES" in warning


def test_the_token_is_not_shown(settings: Callable[..., ServerSettings]) -> None:
    assert TOKEN not in repr(settings(metrics_token=TOKEN))
