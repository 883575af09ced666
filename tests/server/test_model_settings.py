"""Models that administrators add: keys are write-only and in a private file, addresses are on a list."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from palaver.errors import InvalidInput
from palaver.server.model_settings import check_base_url, models_file
from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import ok, running

KEY = "sk-very-secret-0123456789"
USUAL = "read write generate"
ALL = f"{USUAL} admin"


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/chat.db?synchronous=NORMAL"


def added(provider: LoopbackProvider, **more: Any) -> dict[str, Any]:
    options = provider.models("test")["chat"]
    return {"name": "mine", "model": "openai:test", "base_url": options["base_url"], "api_key": KEY, **more}


def test_a_model_is_added_tested_chosen_used_and_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with LoopbackProvider() as provider, running(ServerSettings(url=url_of(tmp_path), embedder="none")) as server:
        provider.otherwise = Say("Rice.")
        with server.client() as api:
            assert ok(api.get("/api/settings"))["models"] == {
                "default": "offline",
                "names": ["offline"],
                "manageable": True,
            }
            replies = [api.put("/api/models", json=added(provider))]
            replies.append(api.post("/api/models/test", json={"name": "mine"}))
            assert ok(replies[-1])["ok"] is True
            replies.append(api.put("/api/models/default", json={"name": "mine"}))
            replies.append(api.get("/api/models"))
            found = next(one for one in ok(replies[-1])["items"] if one["name"] == "mine")
            assert found["has_key"] is True
            assert found["is_default"] is True
            talk = ok(api.post("/api/conversations", json={}))["id"]
            replies.append(api.post(f"/api/conversations/{talk}/generate", json={"message": "What can I eat?"}))
            assert ok(replies[-1])["turn"]["content"] == "Rice."
            replies.append(api.get(f"/api/conversations/{talk}/requests"))
            replies.append(api.get("/api/settings"))
            assert all(KEY not in reply.text for reply in replies)
            file = tmp_path / "chat.db.models.json"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert json.loads(file.read_text())["models"]["mine"]["api_key"] == KEY
            assert KEY.encode() not in (tmp_path / "chat.db").read_bytes()
            ok(api.delete("/api/models", params={"name": "mine"}))
            assert ok(api.get("/api/settings"))["models"]["default"] == "offline"
            assert KEY not in file.read_text()
    assert KEY not in caplog.text


def test_added_models_are_there_after_a_restart_and_in_other_processes(tmp_path: Path) -> None:
    settings = ServerSettings(url=url_of(tmp_path), embedder="none")
    with LoopbackProvider() as provider:
        with running(settings) as server, server.client() as api:
            ok(api.put("/api/models", json=added(provider)))
            ok(api.put("/api/models/default", json={"name": "mine"}))
        file = tmp_path / "chat.db.models.json"
        file.chmod(0o644)
        with running(settings) as server, server.client() as api:
            assert ok(api.get("/api/settings"))["models"]["default"] == "mine"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            content = json.loads(file.read_text())
            content["models"]["another"] = content["models"]["mine"]
            file.write_text(json.dumps(content))  # as another process does
            assert "another" in ok(api.get("/api/settings"))["models"]["names"]


def test_a_stored_key_is_not_sent_to_another_address(tmp_path: Path) -> None:
    settings = ServerSettings(url=url_of(tmp_path), embedder="none")
    with LoopbackProvider() as provider, running(settings) as server, server.client() as api:
        ok(api.put("/api/models", json=added(provider)))
        same = added(provider, model="openai:other")
        del same["api_key"]
        assert has_key(ok(api.put("/api/models", json=same)))
        elsewhere = {**same, "base_url": "http://127.0.0.1:9/v1"}
        assert not has_key(ok(api.put("/api/models", json=elsewhere)))


@pytest.mark.parametrize("environment", [None, "sk-of-the-environment"])
@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
def test_a_server_without_keys_needs_none_and_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, environment: str | None
) -> None:
    """The address was typed in: a key that the server was started with must not be sent there."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
        if environment is not None:
            monkeypatch.setenv(name, environment)
    settings = ServerSettings(url=url_of(tmp_path), embedder="none")
    with LoopbackProvider() as provider, running(settings) as server, server.client() as api:
        provider.otherwise = Say("Rice.")
        options = provider.models("test")[{"openai": "chat", "anthropic": "messages"}.get(kind, kind)]
        given = {"name": "mine", "model": f"{kind}:test", "base_url": options["base_url"]}
        assert not has_key(ok(api.put("/api/models", json=given)))
        assert ok(api.post("/api/models/test", json={"name": "mine"}))["ok"] is True
        assert all("sk-of-the-environment" not in str(one.headers) for one in provider.received)
        assert "api_key" not in (tmp_path / "chat.db.models.json").read_text()


def has_key(listed: dict[str, Any]) -> bool:
    return bool(next(one for one in listed["items"] if one["name"] == "mine")["has_key"])


def test_only_administrators_of_the_servers_own_tenant_manage_models(tmp_path: Path) -> None:
    settings = ServerSettings(
        url=url_of(tmp_path), embedder="none", require_auth=True, tenant="acme", jwt_secret="s" * 32
    )
    calls = [
        ("GET", "/api/models", None),
        ("PUT", "/api/models", {"name": "x", "model": "openai:x", "api_key": KEY}),
        ("DELETE", "/api/models?name=x", None),
        ("POST", "/api/models/test", {"name": "offline"}),
        ("PUT", "/api/models/default", {"name": "offline"}),
    ]
    with running(settings) as server:
        for tenant, rights, status in (("acme", USUAL, 403), ("other", ALL, 403), ("acme", ALL, 200)):
            with server.client(key=server.key(tenant, "ada", rights=rights)) as api:
                assert [api.request(method, path, json=body).status_code for method, path, body in calls] == [
                    status
                ] * 5
                assert ok(api.get("/api/settings"))["models"]["manageable"] is (status == 200)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"base_url": "http://169.254.169.254/latest"}, "base_url"),
        ({"base_url": "https://internal.example/v1"}, "base_url"),
        ({"base_url": "http://api.openai.com/v1"}, "base_url"),
        ({"base_url": "https://api.openai.com@evil.example/v1"}, "base_url"),
        ({"base_url": "https://api.openai.com:99999/v1"}, "base_url"),
        ({"base_url": "file:///etc/passwd"}, "base_url"),
        ({"model": "gpt"}, "model"),
        ({"name": "offline"}, "name"),
        ({"name": "configured"}, "name"),
        ({"name": "a b"}, "name"),
    ],
)
def test_what_cannot_be_added_is_named(tmp_path: Path, change: dict[str, str], field: str) -> None:
    settings = ServerSettings(url=url_of(tmp_path), embedder="none", models={"configured": "offline"})
    with running(settings) as server, server.client() as api:
        reply = api.put("/api/models", json={"name": "mine", "model": "openai:test", "api_key": KEY, **change})
        assert reply.status_code == 422
        assert reply.json()["field"] == field
        assert KEY not in reply.text


def test_hosts_are_listed_by_name_by_port_or_with_their_scheme() -> None:
    check_base_url("https://llm.example/v1", ("llm.example",))
    check_base_url("https://llm.example:8443/v1", ("llm.example:8443",))
    check_base_url("http://llm.example:8000/v1", ("http://llm.example:8000",))
    for url in ("http://llm.example/v1", "https://llm.example:8443/v1"):
        with pytest.raises(InvalidInput, match="base_url"):
            check_base_url(url, ("llm.example:1",) if "8443" in url else ("llm.example",))


def test_behind_keys_this_machine_is_not_on_the_list(tmp_path: Path) -> None:
    settings = ServerSettings(url=url_of(tmp_path), embedder="none", require_auth=True, jwt_secret="s" * 32)
    with running(settings) as server, server.client(key=server.key("default", None, rights=ALL)) as api:
        body = {"name": "mine", "model": "openai:test", "base_url": "http://127.0.0.1:11434/v1"}
        assert api.put("/api/models", json=body).status_code == 422


def test_a_place_for_models_is_next_to_an_sqlite_file_or_set() -> None:
    assert models_file(ServerSettings(url="sqlite:////data/chat.db?x=1")) == Path("/data/chat.db.models.json")
    assert models_file(ServerSettings(url="memory:")) is None
    assert models_file(ServerSettings(url="postgresql://h/d")) is None
    assert models_file(ServerSettings(url="postgresql://h/d", models_file="/etc/m.json")) == Path("/etc/m.json")
