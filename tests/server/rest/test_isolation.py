"""Another tenant's ids, and another user's, on every route: not found, and not a word more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from palaver.server.operations import COMPAT_OPERATIONS, REST_OPERATIONS, Operation
from palaver.server.settings import ServerSettings
from tests.server.conftest import Running, ok, running

BODIES: dict[str, Any] = {
    "append_turn": {"role": "user", "content": "x"},
    "append_turns": {"turns": [{"role": "user", "content": "x"}]},
    "write_chunk": {"n": 0, "text": "x"},
    "add_note": {"text": "x"},
    "correct_note": {"text": "x"},
    "recall": {"query": "peanuts"},
    "generate": {"message": "x"},
    "open_upload": {"filename": "x"},
    "complete_upload": {"token": "x"},
    "create_items": {"items": []},
}
PARAMETERS = {"upload_attachment": {"filename": "x"}, "search_turns": {"q": "peanuts"}}
NAMING = [face for face in (*REST_OPERATIONS, *COMPAT_OPERATIONS) if "{conversation}" in face.path]


@pytest.fixture(scope="module")
def guarded(shared_url: str) -> Iterator[Running]:
    settings = ServerSettings(
        url=shared_url, files="files", embedder="none", require_auth=True, jwt_secret="x" * 32, rate=0
    )
    with running(settings) as one:
        yield one


def stranger(guarded: Running, tenant: str, user: str) -> str:
    """The key of a user whom Ada's data does not concern, but who may do anything else."""
    return guarded.key(tenant, user, rights="read write generate system")


@pytest.fixture(scope="module")
def ids(guarded: Running) -> dict[str, Any]:
    """Everything that Ada of Acme has: a conversation, a turn, a pending one, a file, a fact."""
    with guarded.client(guarded.key("acme", "ada")) as ada:
        talk = ok(ada.post("/api/conversations", json={"key": "mine", "title": "Peanuts"}))["id"]
        path = f"/api/conversations/{talk}"
        turn = ok(ada.post(f"{path}/turns", json={"role": "user", "content": "My name is Ada: peanuts."}))["id"]
        file = ok(ada.post(f"{path}/attachments", params={"filename": "a.txt"}, content=b"peanuts"))["id"]
        ok(ada.post(f"{path}/memory/goals", json={"text": "peanuts"}))
        ok(ada.post(f"{path}/facts/extract"))
        facts = ok(ada.get(f"{path}/facts"))["items"]
        return {
            "conversation": talk, "turn": turn, "attachment": file, "upload": file, "list": "goals", "index": 0,
            "fact": facts[0]["id"] if facts else "x", "item": f"msg_{turn}",
        }  # fmt: skip


def call(client: httpx.Client, face: Operation, ids: dict[str, Any]) -> httpx.Response:
    return client.request(
        face.method, face.url.format(**ids), json=BODIES.get(face.name, {}), params=PARAMETERS.get(face.name)
    )


@pytest.mark.parametrize("who", [("globex", "ada"), ("globex", "eve"), ("acme", "eve")], ids="/".join)
def test_what_is_not_yours_is_not_found(
    guarded: Running, ids: dict[str, Any], who: tuple[str, str], subtests: pytest.Subtests
) -> None:
    """A resource of another user and one that does not exist get the same answer."""
    with guarded.client(stranger(guarded, *who)) as client:
        for face in NAMING:
            with subtests.test(face.name):
                answer = call(client, face, ids)
                assert answer.status_code == 404, answer.text
                nothing = call(client, face, {**ids, "conversation": "0" * 26})
                assert nothing.status_code == 404
                assert answer.text.replace(ids["conversation"], "") == nothing.text.replace("0" * 26, "")


def test_a_turn_of_another_conversation_is_not_found(
    guarded: Running, ids: dict[str, Any], subtests: pytest.Subtests
) -> None:
    """Not even through a conversation of one's own."""
    with guarded.client(stranger(guarded, "globex", "eve")) as client:
        own = ok(client.post("/api/conversations", json={}))["id"]
        for face in [face for face in NAMING if "{turn}" in face.path]:
            with subtests.test(face.name):
                answer = call(client, face, {**ids, "conversation": own})
                assert answer.status_code == 404, answer.text


def test_files_and_facts_of_another_conversation_are_not_found(guarded: Running, ids: dict[str, Any]) -> None:
    with guarded.client(guarded.key("globex", "eve")) as client:
        own = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        assert client.get(f"{own}/attachments/{ids['attachment']}").status_code == 404
        assert client.get(f"{own}/attachments/{ids['attachment']}/content").status_code == 404
        assert client.get(f"{own}/attachments/{ids['attachment']}/text").status_code == 404
        assert client.post(f"{own}/attachments/{ids['attachment']}/link", json={}).status_code == 404
        assert client.delete(f"{own}/facts/{ids['fact']}").status_code == 404
        body = {"role": "user", "content": "x", "attachments": [ids["attachment"]]}
        assert client.post(f"{own}/turns", json=body).status_code == 404


def test_lists_searches_and_counts_show_ones_own_only(guarded: Running, ids: dict[str, Any]) -> None:
    for tenant in ("globex", "acme"):
        with guarded.client(guarded.key(tenant, "mallory")) as client:
            assert ok(client.get("/api/conversations"))["items"] == []
            assert ok(client.get("/api/search", params={"q": "peanuts"}))["items"] == []
            assert ok(client.get("/api/usage"))["items"] == []
            assert ok(client.get("/api/stats"))["turns"] == 0
            assert client.get("/api/conversations/find", params={"key": "mine"}).status_code == 404
            assert client.get("/api/events", params={"conversation": ids["conversation"]}).status_code == 404
            own = ok(client.post("/api/conversations", json={}))["id"]
            for scope in ("owner", "tenant"):
                found = ok(client.post(f"/api/conversations/{own}/recall", json={"query": "peanuts", "scope": scope}))
                assert found["items"] == []


def test_acting_for_others_and_keeping_house_need_the_right(guarded: Running) -> None:
    with guarded.client(guarded.key("acme", "eve")) as client:
        assert client.post("/api/conversations", json={"owner": "ada"}).status_code == 403
        assert client.post("/api/sweep", json={"retention_minutes": 0.001}).status_code == 403
        assert client.post("/api/erasures", json={"user": "ada"}).status_code == 403
        assert client.get("/api/keys/log").status_code == 403


def test_a_participant_may_not_delete_or_change_what_belongs_to_the_owner(guarded: Running) -> None:
    with guarded.client(guarded.key("acme", "ada")) as ada, guarded.client(guarded.key("acme", "bob")) as bob:
        talk = f"/api/conversations/{ok(ada.post('/api/conversations', json={'participants': ['bob']}))['id']}"
        assert bob.get(talk).status_code == 200
        assert bob.delete(talk).status_code == 403
        assert bob.post(f"{talk}/reset").status_code == 403
        assert bob.patch(talk, json={"participants": []}).status_code == 403
