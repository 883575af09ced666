"""Files over HTTP: up in every way, down with ranges and links, and what is refused on the way."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import pytest

from palaver.conversations.api_keys import revoke_key
from palaver.conversations.internals import components_of, engine_of
from palaver.model import Scope
from palaver.server.auth import Caller
from palaver.server.rest.attachments import content_disposition
from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider
from tests.files.bucket import bucket, endpoint  # noqa: F401
from tests.files.samples import REFUSED, TAKEN, pdf, zipped
from tests.server.conftest import PATIENCE, Running, ok, running

PNG = TAKEN["png"][1]


@pytest.fixture
def server_url(database_url: str) -> str:
    """On each engine in turn."""
    return database_url


@pytest.fixture
def settings(server_url: str, tmp_path: Any) -> Callable[..., ServerSettings]:
    def make(**given: Any) -> ServerSettings:
        return ServerSettings(url=server_url, embedder="none", files=str(tmp_path / "files"), **given)

    return make


@pytest.fixture
def guarded(settings: Callable[..., ServerSettings]) -> Iterator[Running]:
    with running(settings(require_auth=True, jwt_secret="x" * 32)) as one:
        yield one


def upload(client: httpx.Client, talk: str, data: bytes = PNG, name: str = "cat.png") -> Any:
    return ok(client.post(f"{talk}/attachments", params={"filename": name}, content=data), 201)


# ---- up ------------------------------------------------------------------------------------------------------------


def test_a_file_goes_up_as_a_body_or_in_a_form(client: httpx.Client, talk: str) -> None:
    raw = upload(client, talk)
    assert (raw["media_type"], raw["bytes"], raw["turn"]) == ("image/png", len(PNG), None)
    form = client.post(f"{talk}/attachments", files={"file": ("Größe.png", PNG, "image/png")})
    file = ok(form, 201)
    assert (file["filename"], file["sha256"]) == ("Größe.png", raw["sha256"])
    assert form.headers["location"] == f"{talk}/attachments/{file['id']}"
    nameless = ok(client.post(f"{talk}/attachments", content=b"only text"), 201)
    assert (nameless["filename"], nameless["media_type"]) == ("file.txt", "text/plain")
    listed = ok(client.get(f"{talk}/attachments", params={"limit": 2}))
    assert [one["id"] for one in listed["items"]] == [nameless["id"], file["id"]]
    assert [one["id"] for one in ok(client.get(listed["next"]))["items"]] == [raw["id"]]


FORMS: dict[str, tuple[Any, str]] = {
    "another field": ({"files": {"other": ("a.png", PNG)}}, "file"),
    "a path": ({"files": {"file": ("../../etc/passwd", b"x")}}, "filename"),
    "a path of Windows": ({"files": {"file": ("a\\b.txt", b"x")}}, "filename"),
    "no file": ({"data": {"file": "no file"}, "files": {"x": ("y", b"")}}, "file"),
}


def test_a_form_that_does_not_fit_is_refused_by_its_field(client: httpx.Client, talk: str) -> None:
    for name, (form, field) in FORMS.items():
        refused = client.post(f"{talk}/attachments", **form)
        assert (refused.status_code, refused.json()["field"]) == (422, field), name


def test_two_files_in_one_form_and_a_broken_form_are_refused(client: httpx.Client, talk: str) -> None:
    two = [("file", ("a.txt", b"x")), ("file", ("b.txt", b"y"))]
    assert client.post(f"{talk}/attachments", files=two).status_code == 400
    headers = {"content-type": "multipart/form-data; boundary=x"}
    assert client.post(f"{talk}/attachments", content=b"no form", headers=headers).status_code in (400, 422)
    assert client.post(
        f"{talk}/attachments", content=b"x", headers={"content-type": "multipart/form-data"}
    ).status_code in (400, 422)


def test_what_is_not_taken_is_refused_with_what_is(client: httpx.Client, talk: str) -> None:
    for name, data in REFUSED.items():
        refused = client.post(f"{talk}/attachments", content=data)
        assert refused.status_code == 415, name
        assert (refused.json()["type"], refused.json()["field"]) == ("urn:palaver:problem:file-refused", "data"), name


def test_lies_bombs_and_giants_are_refused(client: httpx.Client, talk: str, server: Running) -> None:
    def refused(data: bytes, **options: Any) -> httpx.Response:
        return client.post(f"{talk}/attachments", content=data, **options)

    lie = refused(b"<html><script>alert(1)</script>", params={"filename": "cat.png"})
    assert (lie.status_code, lie.json()["field"], lie.json()["media_type"]) == (415, "filename", "text/html")
    assert refused(PNG, headers={"content-type": "application/pdf"}).json()["field"] == "media_type"
    bomb = refused(zipped({"a": bytes(30_000_000)}))
    assert (bomb.status_code, "times its size" in bomb.json()["detail"]) == (415, True)
    giant = refused(bytes(server.settings.max_upload + 1))
    assert (giant.status_code, giant.json()["limit"]) == (413, server.settings.max_upload)
    large = refused(b"x" * 50_000_001)
    assert (large.status_code, large.json()["limit"], large.json()["field"]) == (413, 50_000_000, "data")
    assert ok(client.get(f"{talk}/attachments"))["items"] == []


def test_a_picture_that_is_none_is_refused_in_the_words_of_each_provider(client: httpx.Client) -> None:
    data, headers = b64encode(b"no cat").decode(), {"X-Conversation-Id": "k"}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    body = {"model": "offline", "messages": [{"role": "user", "content": [picture]}]}
    refused = client.post("/v1/chat/completions", json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    body = {"model": "offline", "max_tokens": 9, "messages": [{"role": "user", "content": [picture]}]}
    refused = client.post("/v1/messages", json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_message_takes_ten_files(client: httpx.Client, talk: str) -> None:
    ids = [upload(client, talk)["id"] for _ in range(11)]
    refused = client.post(f"{talk}/turns", json={"role": "user", "content": "x", "attachments": ids})
    assert (refused.status_code, refused.json()["field"], refused.json()["limit"]) == (413, "attachments", 10)
    ok(client.post(f"{talk}/turns", json={"role": "user", "content": "x", "attachments": ids[:10]}), 201)


def test_a_file_that_the_content_names_is_the_turns(client: httpx.Client, talk: str) -> None:
    file, other = upload(client, talk), f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
    body = {"role": "user", "content": ["see", {"type": "image", "attachment": file["id"]}]}
    missing = client.post(f"{other}/turns", json=body)
    assert (missing.status_code, missing.json()["attachment"]) == (404, file["id"])
    turn = ok(client.post(f"{talk}/turns", json={**body, "attachments": [file["id"]]}), 201)
    assert [one["id"] for one in turn["attachments"]] == [file["id"]]
    assert client.post(f"{talk}/turns/batch", json={"turns": [body]}).status_code == 404
    batch = {"turns": [{**body, "content": [{"type": "image", "attachment": upload(client, talk)["id"]}]}]}
    assert len(ok(client.post(f"{talk}/turns/batch", json=batch), 201)["items"][0]["attachments"]) == 1


def test_a_question_that_names_an_image_is_asked_again_with_a_copy(settings: Callable[..., ServerSettings]) -> None:
    with LoopbackProvider() as provider:
        models = {"model": "chat", "models": provider.models(), "generate": {"titles": False}}
        with running(settings(**models)) as server, server.client() as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            parts = ["What is this?", {"type": "image", "attachment": upload(client, talk)["id"]}]
            first = ok(client.post(f"{talk}/generate", json={"message": parts}))
            ok(client.post(f"{talk}/turns/{first['turn']['id']}/regenerate", json={}))
            old, _, new, _ = ok(client.get(f"{talk}/turns", params={"include_superseded": True}))["items"]
            for turn in (old, new):
                assert [one["id"] for one in turn["attachments"]] == [turn["content"][1]["attachment"]]
            assert ok(client.delete(f"{talk}/turns/{old['id']}"), 204) is None
            kept = client.get(f"{talk}/attachments/{new['attachments'][0]['id']}/content")
            assert kept.content == PNG
        assert [str(body).count(b64encode(PNG).decode()) for body in provider.bodies] == [1, 1]


def test_an_edited_question_may_name_the_files_of_the_turn_it_replaces(client: httpx.Client, talk: str) -> None:
    file = upload(client, talk)
    first = {"message": "What is this?", "attachments": [file["id"]]}
    ok(client.post(f"{talk}/generate", json=first))
    question, _ = ok(client.get(f"{talk}/turns"))["items"]
    edit = {"message": "What is in this picture?", "attachments": [file["id"]], "replaces": question["id"]}
    replies = [ok(client.post(f"{talk}/generate", json=edit, headers={"Idempotency-Key": "k"})) for _ in range(2)]
    assert replies[0]["turn"]["id"] == replies[1]["turn"]["id"], "a retry copies the file again and stores nothing"
    edited, _ = ok(client.get(f"{talk}/turns"))["items"]
    assert_is_copy(client, talk, edited, file)
    (kept,) = edited["attachments"]
    body = {"content": "And this?", "attachments": [kept["id"]]}
    again = ok(client.post(f"{talk}/turns/{edited['id']}/edit", json=body), 201)
    assert_is_copy(client, talk, again, kept)
    (kept,) = again["attachments"]
    body = {"role": "user", "content": "So?", "attachments": [kept["id"]]}
    assert client.post(f"{talk}/turns", json=body).status_code == 404, "it replaces nothing"
    body |= {"replaces": again["id"], "discard_after": True}
    assert_is_copy(client, talk, ok(client.post(f"{talk}/turns", json=body), 201), kept)


def assert_is_copy(client: httpx.Client, talk: str, turn: dict[str, Any], file: dict[str, Any]) -> None:
    (copy,) = turn["attachments"]
    assert copy["id"] != file["id"]
    assert [copy[name] for name in ("filename", "sha256")] == [file[name] for name in ("filename", "sha256")]
    assert client.get(f"{talk}/attachments/{copy['id']}/content").content == PNG


def test_a_question_is_sent_with_what_its_file_says(settings: Callable[..., ServerSettings]) -> None:
    with LoopbackProvider() as provider:
        models = {"model": "chat", "models": provider.models(), "generate": {"titles": False}}
        with running(settings(**models)) as server, server.client() as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            file = upload(client, talk, b"The lease ends in March.", "lease.txt")
            archive = upload(client, talk, zipped({"a": b"b"}), "x.zip")
            body = {"message": "Summarise this file for me.", "attachments": [file["id"], archive["id"]]}
            answer = ok(client.post(f"{talk}/generate", json=body))
            sent = provider.bodies[-1]
            assert "The lease ends in March." in sent["messages"][-1]["content"]
            assert [one["function"]["name"] for one in sent["tools"]] == ["read_attachment"]
            states = {"lease.txt": ("in full", "its whole text"), "x.zip": ("not sent", "no text found")}
            context = ok(client.post(f"{talk}/context", json={"preview": True}))
            for explanation in (answer["explanation"], context["explanation"]):
                assert {one["name"]: (one["state"], one["reason"]) for one in explanation["files"]} == states


def test_a_file_is_put_to_its_own_address_and_then_completed(guarded: Running) -> None:
    with guarded.client(guarded.key()) as client, guarded.client() as nobody:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        place = ok(client.post(f"{talk}/uploads", json={"filename": "cat.png", "seconds": 60}), 201)
        assert place["url"].startswith(f"{talk}/uploads/{place['id']}?ticket=")
        complete = f"{talk}/uploads/{place['id']}/complete"
        assert client.post(complete, json={"token": place["token"]}).status_code == 404, "nothing is there yet"
        assert nobody.put(place["url"], content=PNG).status_code == 204, "the address is enough"
        assert nobody.post(complete, json={"token": place["token"]}).status_code == 401
        file = ok(client.post(complete, json={"token": place["token"]}), 201)
        assert (file["id"], file["bytes"], file["media_type"]) == (place["id"], len(PNG), "image/png")
        assert ok(client.post(complete, json={"token": place["token"]}), 201) == file, "a retry changes nothing"
        nobody.put(place["url"], content=b"something else")
        assert client.get(f"{talk}/attachments/{file['id']}/content").content == PNG
        liar = ok(client.post(f"{talk}/uploads", json={"filename": "cat.png"}), 201)
        nobody.put(liar["url"], content=b"no cat")
        refused = client.post(f"{talk}/uploads/{liar['id']}/complete", json={"token": liar["token"]})
        assert refused.status_code == 415


def test_with_a_bucket_the_bytes_pass_by_the_server(bucket: str, tmp_path: Any) -> None:  # noqa: F811
    settings = ServerSettings(url=f"sqlite:///{tmp_path}/b.db?synchronous=NORMAL", embedder="none", files=bucket)
    with running(settings) as server, server.client() as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        place = ok(client.post(f"{talk}/uploads", json={"filename": "cat.png"}), 201)
        assert "X-Amz-Signature" in place["url"]
        assert httpx.put(place["url"], content=PNG, timeout=PATIENCE).status_code == 200
        file = ok(client.post(f"{talk}/uploads/{place['id']}/complete", json={"token": place["token"]}), 201)
        got = client.get(f"{talk}/attachments/{file['id']}/content", headers={"Range": "bytes=0-7"})
        assert (got.status_code, got.content) == (206, PNG[:8])
        turn = ok(client.post(f"{talk}/turns", json={"role": "user", "attachments": [file["id"]]}), 201)
        assert client.delete(f"{talk}/turns/{turn['id']}").status_code == 204
        assert client.get(f"{talk}/attachments/{file['id']}/content").status_code == 404


def test_a_ticket_opens_its_own_door_and_no_other(guarded: Running) -> None:
    ada = guarded.key("acme", "ada")
    with guarded.client(ada) as client, guarded.client() as nobody, guarded.client(guarded.key("acme", "eve")) as eve:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        first, second = upload(client, talk), upload(client, talk)
        link = ok(client.post(f"{talk}/attachments/{first['id']}/link", json={}), 201)
        query = urlsplit(link["url"]).query
        assert nobody.get(link["url"]).content == PNG
        place = ok(client.post(f"{talk}/uploads", json={"filename": "a.txt"}), 201)
        for method, path in (
            ("GET", f"{talk}/attachments/{second['id']}/content"),
            ("GET", f"{talk}/events"),
            ("GET", f"{talk}/attachments"),
            ("GET", f"{talk}/turns"),
            ("PUT", f"{talk}/uploads/{place['id']}"),
            ("POST", f"{talk}/turns"),
        ):
            assert nobody.request(method, f"{path}?{query}").status_code == 401, path
        ticket = ok(client.post("/api/tickets"))["ticket"]
        assert nobody.get(f"{talk}/attachments/{first['id']}/content", params={"ticket": ticket}).status_code == 401
        assert nobody.get(f"{talk}/attachments/{first['id']}/content?{query}x").status_code == 401
        assert client.post(f"{talk}/uploads/{place['id']}/complete", json={"token": query[7:]}).status_code == 401
        assert eve.post(f"{talk}/uploads/{place['id']}/complete", json={"token": place["token"]}).status_code == 404
        own = f"/api/conversations/{ok(eve.post('/api/conversations', json={}))['id']}"
        assert eve.post(f"{own}/uploads/{place['id']}/complete", json={"token": place["token"]}).status_code == 404


def test_a_link_is_over_when_its_time_or_its_key_is(guarded: Running) -> None:
    key = guarded.key()
    with guarded.client(key) as client, guarded.client() as nobody:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        file = upload(client, talk)
        services = guarded.app.state.services
        path = f"{talk}/attachments/{file['id']}/content"
        link = ok(client.post(f"{talk}/attachments/{file['id']}/link", json={"seconds": 60}), 201)
        over = services.authenticator.link_ticket(Caller(Scope.of("acme", "ada"), "x"), f"GET {path}", -1)
        assert nobody.get(path, params={"ticket": over}).status_code == 401
        assert nobody.get(link["url"]).status_code == 200
        store = services.store.scoped(Scope.of("acme", None))
        [known] = guarded.do(engine_of(services.store).api_keys(Scope.of("acme", None)))
        guarded.do(revoke_key(store, known.id))
        assert nobody.get(link["url"]).status_code == 401


def test_a_link_is_over_when_the_jwt_is_that_it_was_made_with(guarded: Running) -> None:
    ends = time.time() + 60
    claims = {"sub": "ada", "aud": "authenticated", "tenant": "acme", "exp": ends}
    with guarded.client(jwt.encode(claims, "x" * 32, "HS256")) as client, guarded.client() as nobody:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        path = f"{talk}/attachments/{upload(client, talk)['id']}"
        link = ok(client.post(f"{path}/link", json={"seconds": 300}), 201)
        assert datetime.fromisoformat(link["expires_at"]).timestamp() == pytest.approx(ends, abs=1)
        assert nobody.get(link["url"]).status_code == 200
        past = Caller(Scope.of("acme", "ada"), "jwt:acme/ada", until=time.time() - 1)
        over = guarded.app.state.services.authenticator.link_ticket(past, f"GET {path}/content", 300)
        assert nobody.get(f"{path}/content", params={"ticket": over}).status_code == 401


# ---- down ----------------------------------------------------------------------------------------------------------


def test_a_file_comes_down_whole_in_ranges_and_not_at_all(client: httpx.Client, talk: str) -> None:
    data = b"0123456789" * 100
    file = upload(client, talk, data, "a.txt")
    path = f"{talk}/attachments/{file['id']}/content"
    whole = client.get(path)
    assert (whole.status_code, whole.content, whole.headers["accept-ranges"]) == (200, data, "bytes")
    tag = whole.headers["etag"]
    assert tag == f'"{file["sha256"]}"'
    for asked, start, end in (
        ("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), ("bytes=990-", 990, 1_000), ("bytes=-5", 995, 1_000),
        ("bytes=-5000", 0, 1_000), ("bytes=995-9999", 995, 1_000),
    ):  # fmt: skip
        part = client.get(path, headers={"Range": asked})
        assert (part.status_code, part.content) == (206, data[start:end]), asked
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/1000"
    for asked in ("bytes=1000-", "bytes=5000-6000", "bytes=-0"):
        none = client.get(path, headers={"Range": asked})
        assert (none.status_code, none.headers["content-range"]) == (416, "bytes */1000"), asked
    for asked in ("bytes=5-2", "bytes=0-1,5-6", "lines=1-2", "bytes=", "bytes=a-b", "bytes=-"):
        assert client.get(path, headers={"Range": asked}).status_code == 200, asked
    assert client.get(path, headers={"Range": "bytes=0-1", "If-Range": tag}).status_code == 206
    assert client.get(path, headers={"Range": "bytes=0-1", "If-Range": '"another"'}).content == data
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304


SHOWN = {"png": "image/png", "pdf": "application/pdf", "mp4": "video/mp4"}
ONLY_BYTES = ("svg", "html", "zip", "txt")


def test_no_file_is_ever_a_page(client: httpx.Client, talk: str) -> None:
    for ending in (*SHOWN, *ONLY_BYTES):
        file = upload(client, talk, TAKEN[ending][1], f"x.{ending}")
        got = client.get(f"{talk}/attachments/{file['id']}/content")
        assert got.headers["content-type"] == SHOWN.get(ending, "application/octet-stream")
        assert got.headers["content-disposition"].startswith("attachment;")
        assert got.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in got.headers["content-security-policy"]
        assert "default-src 'none'" in got.headers["content-security-policy"]


@pytest.mark.parametrize("name", ['a"b.txt', "a;b.txt", "ü.txt", "日本語.pdf", "a%0d%0ab.txt", "x" * 200, "a'b.txt"])
def test_a_name_in_a_header_is_one_name(name: str) -> None:
    value = content_disposition(name)
    plain = value.split('filename="')[1].split('"')[0]
    assert value.isascii()
    assert not set('\r\n;"%') & set(plain)
    assert value.count('"') == 2


def test_what_files_say_is_read_found_and_gone_with_the_turn(client: httpx.Client, talk: str, server: Running) -> None:
    file = upload(client, talk, pdf("The zanzibar clause ends in March."), "contract.pdf")
    body = {"role": "user", "content": "Here it is.", "attachments": [file["id"]]}
    turn = ok(client.post(f"{talk}/turns", json=body), 201)
    text = ok(client.get(f"{talk}/attachments/{file['id']}/text", params={"start": 4, "length": 8}))
    assert (text["text"], text["characters"], text["problem"]) == ("zanzibar", 34, None)
    server.do(server.app.state.services.store.settle())
    [hit] = ok(client.post(f"{talk}/recall", json={"query": "zanzibar", "k": 1}))["items"]
    assert hit["quote"] == {
        "attachment": file["id"], "filename": "contract.pdf", "text": "The zanzibar clause ends in March.",
    }  # fmt: skip
    context = ok(client.post(f"{talk}/context", json={"token_budget": 2_000, "message": "the zanzibar clause?"}))
    assert "ends in March" in str(context["messages"])
    assert client.delete(f"{talk}/turns/{turn['id']}").status_code == 204
    assert client.get(f"{talk}/attachments/{file['id']}/content").status_code == 404
    assert client.get(f"{talk}/attachments/{file['id']}/text").status_code == 404
    hits = ok(client.post(f"{talk}/recall", json={"query": "zanzibar"}))["items"]
    assert not any(one["quote"] for one in hits)
    folder = components_of(server.app.state.services.store).blobs.folder
    assert [one for one in folder.rglob("*") if one.is_file()] == []


def test_a_database_server_without_a_location_for_files_says_what_to_set(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(ServerSettings(url=postgres_url, embedder="none")) as server, server.client() as client:
        assert "attachments are refused" in caplog.text
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}), 201)['id']}"
        for refused in (
            client.post(f"{talk}/attachments", params={"filename": "cat.png"}, content=PNG),
            client.post(f"{talk}/uploads", json={"filename": "cat.png"}),
        ):
            assert (refused.status_code, refused.json()["type"]) == (500, "urn:palaver:problem:files-not-configured")
            assert "PALAVER_FILES" in refused.json()["detail"]
        ok(client.post(f"{talk}/turns", json={"role": "user", "content": "goes on without files"}), 201)


def test_the_log_says_why_files_cannot_be_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start, and for each request that fails: the client is not sent the reason."""
    (tmp_path / "file").write_text("x")
    chosen = ServerSettings(url=f"sqlite:///{tmp_path}/chat.db", embedder="none", files=str(tmp_path / "file"))
    with running(chosen) as server, server.client() as client:
        assert "attachments cannot be stored" in caplog.text
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}), 201)['id']}"
        refused = client.post(f"{talk}/attachments", params={"filename": "cat.png"}, content=PNG)
        assert refused.status_code == 503
        assert "EngineUnavailable: the files cannot be reached (NotADirectoryError)" in caplog.text
        assert "NotADirectoryError" not in refused.text
