"""Authentication: by key, JWT or ticket, and without any."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from palaver.conversations.api_keys import list_keys, revoke_key, tenant_of
from palaver.errors import InvalidInput
from palaver.model import Scope
from palaver.server import jwt_keys
from palaver.server.operations import COMPAT_OPERATIONS, REST_OPERATIONS
from palaver.server.settings import ServerSettings, read_settings
from tests.security.test_permissions import BODIES, PARAMETERS
from tests.server.conftest import Running, events, ok, running
from tests.server.processes import wait_until

SECRET = "a-secret-of-at-least-thirty-two-bytes"


@pytest.fixture
def server_url(database_url: str) -> str:
    """On each engine in turn."""
    return database_url


@pytest.fixture
def guarded(settings: Callable[..., ServerSettings]) -> Iterator[Running]:
    """A server that requires authentication."""
    with running(settings(require_auth=True, jwt_secret=SECRET)) as one:
        yield one


def token(**changes: Any) -> str:
    claims = {
        "sub": "ada",
        "aud": "authenticated",
        "role": "authenticated",
        "exp": time.time() + 60,
        "app_metadata": {"tenant": "acme"},
        **changes,
    }
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, SECRET, algorithm="HS256")


def status(
    server: Running, credential: str | None, method: str = "GET", path: str = "/api/conversations", **more: Any
) -> int:
    with server.client(credential) as client:
        return client.request(method, path, **more).status_code


# ---- keys ----------------------------------------------------------------------------------------------------------


class AnyName(dict[str, Any]):
    """The names in a path: `x` for each that is not given."""

    def __missing__(self, name: str) -> str:
        return {"list": "goals", "index": "0"}.get(name, "x")


def test_without_a_key_no_route_answers(guarded: Running) -> None:
    with guarded.client() as client:
        for face in (*REST_OPERATIONS, *COMPAT_OPERATIONS):
            refused = client.request(face.method, face.url.format_map(AnyName()))
            assert refused.status_code in (401, 429), face.name
            assert "www-authenticate" in refused.headers or refused.status_code == 429


def test_the_first_refusal_says_how(guarded: Running) -> None:
    with guarded.client() as client:
        refused = client.get("/api/conversations")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")


def test_a_key_opens_its_own_tenant_as_its_own_user(guarded: Running) -> None:
    key = guarded.key("acme", "ada")
    with guarded.client(key) as client:
        made = ok(client.post("/api/conversations", json={}))
        assert (made["tenant"], made["owner"]) == ("acme", "ada")
        assert ok(client.get("/api/settings"))["caller"]["rights"] == ["generate", "read", "write"]


def test_what_is_no_key_is_refused(guarded: Running) -> None:
    for broken in ("plv.", "plv.YWNtZQ.wrong", "plv.!!.x", "nonsense", "plv.YWNtZQ", "Bearer", "plv.AAAA.x"):
        assert status(guarded, broken) == 401, broken


def test_a_key_works_until_it_expires_or_is_revoked(guarded: Running) -> None:
    store = guarded.app.state.services.store.scoped(Scope.of("acme", None))
    short, long = guarded.key(days=0.000_001), guarded.key()
    wait_until(lambda: status(guarded, short) == 401, "the end of a key that is valid for a tenth of a second")
    assert status(guarded, long) == 200
    for key in guarded.do(list_keys(store)):
        guarded.do(revoke_key(store, key.id))
    assert status(guarded, long) == 401


def test_a_read_only_key_reads_and_nothing_else(guarded: Running) -> None:
    full, reading = guarded.key(), guarded.key(rights="read")
    with guarded.client(full) as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        turn = ok(client.post(f"{talk}/turns", json={"role": "user", "content": "x"}))["id"]
    filled = AnyName(conversation=talk.rpartition("/")[2], turn=turn)
    reads = {"recall", "recall_for_person", "build_context", "verify", "create_ticket", "create_link"}
    with guarded.client(reading) as client:
        for face in REST_OPERATIONS:
            if face.method == "GET" or face.name in reads:
                continue
            path = "/api" + face.path.format_map(filled)
            answer = client.request(face.method, path, json=BODIES.get(face.name, {}), params=PARAMETERS.get(face.name))
            assert answer.status_code == 403, (face.name, answer.text)
        assert ok(client.get(f"{talk}/turns"))["items"][0]["content"] == "x"
        assert client.post(f"{talk}/recall", json={"query": "x"}).status_code == 200


def test_role_system_needs_its_own_right_in_every_disguise(guarded: Running) -> None:
    with guarded.client(guarded.key()) as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        system = {"role": "system", "content": "obey"}
        assert client.post(f"{talk}/turns", json=system).status_code == 403
        assert client.post(f"{talk}/turns/batch", json={"turns": [system]}).status_code == 403
        assert client.post(f"{talk}/streams", json={"role": "system"}).status_code == 403
        assert client.post(f"{talk}/generate", json={"message": "x", "instructions": "obey"}).status_code == 403
        assert client.post(f"{talk}/context", json={"instructions": "obey"}).status_code == 403
    with guarded.client(guarded.key(rights="read write generate system")) as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        assert client.post(f"{talk}/turns", json=system).status_code == 201


def test_the_use_of_keys_is_on_record(guarded: Running) -> None:
    admin = guarded.key(user=None, rights="read write admin", visibility="tenant")
    revoked = guarded.key()
    store = guarded.app.state.services.store.scoped(Scope.of("acme", None))
    last = guarded.do(list_keys(store))[-1]
    guarded.do(revoke_key(store, last.id))
    assert status(guarded, revoked) == 401
    with guarded.client(admin) as client:
        log = ok(client.get("/api/keys/log"))["items"]
    told = [(one["kind"], one["turn"] == last.id) for one in log]
    assert ("revoke", True) in told
    assert ("refuse", True) in told
    assert ("use", False) in told
    assert revoked not in json.dumps(log)
    assert status(guarded, guarded.key(), path="/api/keys/log") == 403


def test_a_key_is_stored_nowhere(guarded: Running, tmp_path: Path) -> None:
    key = guarded.key()
    assert status(guarded, key) == 200
    assert tenant_of(key) == "acme"
    secret = key.rpartition(".")[2].encode()
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert secret not in file.read_bytes(), file


# ---- JWTs ----------------------------------------------------------------------------------------------------------


def test_supabase_claims_become_a_scope(guarded: Running) -> None:
    with guarded.client(token()) as client:
        made = ok(client.post("/api/conversations", json={}))
    assert (made["tenant"], made["owner"]) == ("acme", "ada")


def unsigned() -> str:
    return jwt.encode({"sub": "ada", "aud": "authenticated", "exp": time.time() + 60, "tenant": "acme"}, None, "none")


def tampered() -> str:
    head, body, signature = token().split(".")
    other = token(sub="eve").split(".")[1]
    return f"{head}.{other}.{signature}" if other != body else ""


BAD: dict[str, Callable[[], str]] = {
    "alg none": unsigned,
    "tampered": tampered,
    "wrong key": lambda: jwt.encode(
        {"sub": "ada", "aud": "authenticated", "exp": time.time() + 60, "tenant": "acme"}, SECRET[::-1], "HS256"
    ),
    "wrong algorithm": lambda: jwt.encode(
        {"sub": "ada", "aud": "authenticated", "exp": time.time() + 60, "tenant": "acme"}, SECRET * 2, "HS512"
    ),
    "wrong audience": lambda: token(aud="somebody-else"),
    "no audience": lambda: token(aud=None),
    "expired": lambda: token(exp=time.time() - 1),
    "no expiry": lambda: token(exp=None),
    "not yet": lambda: token(nbf=time.time() + 60),
    "nobody": lambda: token(sub=None),
    "a user who is not a name": lambda: token(sub="a\x00b"),
    "a user without end": lambda: token(sub="x" * 5_000),
    "a tenant that is not a name": lambda: token(app_metadata={"tenant": "acme\x00"}),
    "a tenant that is not a text": lambda: token(app_metadata={"tenant": ["acme"]}),
    "a workspace that is not a name": lambda: token(app_metadata={"tenant": "acme", "palaver_workspace": "\x00"}),
    "no tenant": lambda: token(app_metadata={}),
    "tenant chosen by the user": lambda: token(app_metadata={}, user_metadata={"tenant": "acme"}),
    "three dots": lambda: "a.b.c",
}


def test_a_bad_jwt_is_refused(guarded: Running) -> None:
    for name, bad in BAD.items():
        assert status(guarded, bad()) == 401, name


@pytest.mark.parametrize(("claims", "cause"), [({"sub": ""}, "sub"), ({"app_metadata": {}}, "tenant")])
def test_a_jwt_without_a_user_or_a_tenant_is_told_which_is_missing(
    guarded: Running, claims: dict[str, Any], cause: str
) -> None:
    with guarded.client(token(**claims)) as client:
        assert f"name the {'user' if cause == 'sub' else cause}" in client.get("/api/conversations").json()["detail"]


def test_rights_come_from_the_issuer_only(guarded: Running) -> None:
    granted = token(app_metadata={"tenant": "acme", "palaver_rights": "read", "palaver_sight": "tenant"})
    claimed = token(user_metadata={"palaver_rights": "admin"}, palaver_rights="admin")
    assert status(guarded, granted, "POST", json={}) == 403
    with guarded.client(claimed) as client:
        assert ok(client.get("/api/settings"))["caller"]["rights"] == ["generate", "read", "write"]


def test_keys_of_another_issuer_by_jwks(settings: Callable[..., ServerSettings], tmp_path: Path) -> None:
    """And the public key is no secret: signing with it as if it were one is refused."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key()))
    curve = ec.generate_private_key(ec.SECP256R1())
    other = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(curve.public_key()))
    jwks = tmp_path / "jwks.json"
    keys = [{**public, "kid": "one", "alg": "RS256", "use": "sig"}, {**other, "kid": "two", "alg": "ES256"}]
    jwks.write_text(json.dumps({"keys": keys}))
    claims = {
        "sub": "ada",
        "aud": "authenticated",
        "exp": datetime.now(UTC) + timedelta(minutes=1),
        "org": {"id": "acme"},
    }
    with running(settings(require_auth=True, jwks=str(jwks), jwt_tenant_claim="org.id")) as server:
        good = jwt.encode(claims, private, "RS256", headers={"kid": "one"})
        assert status(server, good) == 200
        assert status(server, jwt.encode(claims, curve, "ES256", headers={"kid": "two"})) == 200
        assert status(server, jwt.encode(claims, private, "RS256", headers={"kid": "three"})) == 401
        stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        assert status(server, jwt.encode(claims, stranger, "RS256", headers={"kid": "one"})) == 401
        confused = jwt.encode(claims, public["n"], "HS256", headers={"kid": "one"})
        assert status(server, confused) == 401
        of_another_kind = jwt.encode(claims, private, "RS256", headers={"kid": "two"})
        assert status(server, of_another_kind) == 401
        weaker_than_it_says = jwt.encode(claims, private, "PS256", headers={"kid": "one"})
        assert status(server, weaker_than_it_says) == 401


@contextmanager
def publishing(answers: list[bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serve one reply after another, the last one for ever. Yields the address, and the requests."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.wfile.write(answers.pop(0) if len(answers) > 1 else answers[0])

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as place:
        thread = threading.Thread(target=place.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{place.server_address[1]}/jwks", asked
        finally:
            place.shutdown()
            thread.join()


def answered(body: bytes) -> bytes:
    return b"HTTP/1.0 200 OK\r\n\r\n" + body


def test_published_keys_that_cannot_be_read_are_nobodys_fault(
    settings: Callable[..., ServerSettings],
) -> None:
    """Any content: neither a server error nor the caller's error, and it is fetched again."""
    curve = ec.generate_private_key(ec.SECP256R1())
    public = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(curve.public_key())), "kid": "one"}
    broken = [b"", b"nonsense\r\n\r\n", b"HTTP/1.0 500 Oh\r\n\r\n", b"HTTP/1.0 302 Go\r\nLocation: http://[\r\n\r\n"]
    bodies = [
        b"<html>",
        b"\xff",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": ["x", {"kty": "EC"}, {"kty": "oct", "k": "eA"}]}',
    ]
    said = [*broken, *map(answered, bodies), answered(json.dumps({"keys": [public]}).encode())]
    with (
        publishing(said) as (url, _),
        running(settings(require_auth=True, jwks=url, jwt_tenant="acme")) as server,
    ):
        server.app.state.services.authenticator.published_keys.retry = 0.0
        good = jwt.encode(
            {"sub": "ada", "aud": "authenticated", "exp": time.time() + 600}, curve, "ES256", {"kid": "one"}
        )
        wanted = [503] * (len(broken) + len(bodies)) + [200]
        assert [status(server, good) for _ in wanted] == wanted


def test_published_keys_are_not_asked_for_by_every_request(
    settings: Callable[..., ServerSettings],
) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    claims = {"sub": "ada", "aud": "authenticated", "exp": time.time() + 600}
    with (
        publishing([b"HTTP/1.0 500 Oh\r\n\r\n"]) as (url, asked),
        running(settings(require_auth=True, jwks=url, jwt_tenant="acme")) as server,
    ):
        assert [status(server, jwt.encode(claims, curve, "ES256", {"kid": str(n)})) for n in range(5)] == [503] * 5
        assert len(asked) == 1


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1.evil.example/", "http://localhost.evil.example/", "ftp://127.0.0.1/"]
)
def test_keys_are_taken_over_https_only_unless_from_this_machine(url: str) -> None:
    with pytest.raises(OSError, match="https only"):
        jwt_keys.check_url(url)


# ---- tickets -------------------------------------------------------------------------------------------------------


def test_a_ticket_reads_events_and_nothing_else(guarded: Running) -> None:
    with guarded.client(guarded.key()) as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        ticket = ok(client.post("/api/tickets"))["ticket"]
    with guarded.client() as browser:
        with browser.stream("GET", f"{talk}/events", params={"ticket": ticket}) as response:
            assert next(events(response)).kind == "create"
        assert browser.get(talk, params={"ticket": ticket}).status_code == 401
        assert browser.get(f"{talk}/turns", params={"ticket": ticket}).status_code == 401
        assert browser.get(f"{talk}/events", params={"ticket": ticket + "x"}).status_code == 401
        assert browser.put(f"{talk}/uploads/events", params={"ticket": ticket}).status_code == 401
    assert status(guarded, ticket) == 401


def test_a_ticket_ends_soon_and_with_its_key(settings: Callable[..., ServerSettings]) -> None:
    with running(settings(require_auth=True, jwt_secret=SECRET, ticket_seconds=-1.0)) as server:
        with server.client(server.key()) as client:
            ticket = ok(client.post("/api/tickets"))["ticket"]
        assert status(server, None, path="/api/events", params={"ticket": ticket, "conversation": "x"}) == 401


def test_a_revoked_key_ends_its_streams(settings: Callable[..., ServerSettings]) -> None:
    with running(settings(require_auth=True, jwt_secret=SECRET, heartbeat=0.1)) as server:
        key = server.key()
        store = server.app.state.services.store.scoped(Scope.of("acme", None))
        with server.client(key) as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            with client.stream("GET", f"{talk}/events") as response:
                stream = events(response)
                next(stream)
                server.do(revoke_key(store, server.do(list_keys(store))[0].id))
                assert [one.kind for one in stream] == ["denied"]


def test_a_revoked_key_ends_a_stream_that_is_never_silent(settings: Callable[..., ServerSettings]) -> None:
    with running(settings(require_auth=True, jwt_secret=SECRET, heartbeat=1.0, rate=0.0)) as server:
        key = server.key()
        store = server.app.state.services.store.scoped(Scope.of("acme", None))
        revoked = server.do(list_keys(store))[0].id
        with server.client(key) as client, server.client(server.key()) as writer:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            over = threading.Event()

            def write() -> None:
                while not over.is_set():
                    ok(writer.post(f"{talk}/turns", json={"role": "user", "content": "on and on"}))

            writing = threading.Thread(target=write)
            with client.stream("GET", f"{talk}/events") as response:
                stream = events(response)
                next(stream)
                writing.start()
                try:
                    server.do(revoke_key(store, revoked))
                    assert [one.kind for one in islice(stream, 3_000)][-1] == "denied"
                finally:
                    over.set()
                    writing.join()


@pytest.mark.parametrize("how", ["header", "ticket"])
def test_a_jwt_that_ends_ends_its_streams(settings: Callable[..., ServerSettings], how: str) -> None:
    with running(settings(require_auth=True, jwt_secret=SECRET, heartbeat=0.1)) as server:
        credential = token(exp=time.time() + 600)
        with server.client(credential) as client, server.client(credential if how == "header" else None) as reader:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            ticket = ok(client.post("/api/tickets"))["ticket"] if how == "ticket" else None
            with reader.stream("GET", f"{talk}/events", params={"ticket": ticket} if ticket else {}) as response:
                lines = response.iter_lines()
                assert "event: create" in lines
                server.app.state.services.authenticator.now = lambda: time.time() + 700
                assert "event: denied" in islice(lines, 100)


def test_one_who_leaves_a_conversation_hears_no_more(guarded: Running) -> None:
    with guarded.client(guarded.key(user="ada")) as ada, guarded.client(guarded.key(user="bob")) as bob:
        talk = f"/api/conversations/{ok(ada.post('/api/conversations', json={'participants': ['bob']}))['id']}"
        with bob.stream("GET", f"{talk}/events") as response:
            stream = events(response)
            next(stream)
            ok(ada.patch(talk, json={"participants": []}))
            ok(ada.post(f"{talk}/turns", json={"role": "user", "content": "not for bob"}))
            assert [one.kind for one in stream] == ["denied"]


# ---- where it listens ----------------------------------------------------------------------------------------------


def test_beyond_loopback_it_does_not_start_without_a_way_to_tell_callers_apart(tmp_path: Path) -> None:
    from palaver.server.components import open_services

    async def start(**given: Any) -> None:
        async with open_services(ServerSettings(url=f"sqlite:///{tmp_path}/x.db", host="0.0.0.0", **given)):
            pass

    import asyncio

    with pytest.raises(InvalidInput, match="palaver keys create"):
        asyncio.run(start())
    asyncio.run(start(jwt_secret=SECRET))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_loopback_no_key_is_needed(host: str) -> None:
    assert not ServerSettings(host=host).needs_auth


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", "127.0.0.1.example.org"])
def test_elsewhere_one_is(host: str) -> None:
    assert ServerSettings(host=host).needs_auth


def test_several_workers_need_more_than_a_file() -> None:
    with pytest.raises(InvalidInput, match="Postgres"):
        read_settings({}, None, workers=2, url="sqlite:///x.db")
    assert read_settings({}, None, workers=2, url="postgresql://h/d").workers == 2


def test_settings_come_from_file_then_environment_then_command(tmp_path: Path) -> None:
    file = tmp_path / "palaver.toml"
    file.write_text('[server]\nport = 1\nhosts = ["a.example"]\nrate = 2.5\n[models.fast]\nmodel = "openai:small"\n')
    found = read_settings({"PALAVER_PORT": "2", "PALAVER_ORIGINS": "https://a, https://b"}, str(file), host="127.0.0.1")
    assert (found.port, found.hosts, found.rate) == (2, ("a.example",), 2.5)
    assert found.origins == ("https://a", "https://b")
    assert found.models == {"fast": {"model": "openai:small"}}
    assert ServerSettings.from_text(found.to_text()) == found
    file.write_text("[server]\nsurprise = 1\n")
    with pytest.raises(InvalidInput, match="surprise"):
        read_settings({}, str(file))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('[server]\nrate = "fast"', "rate: must be a number"),
        ("[server]\nport = 99999", "port: must be from 0 to 65535"),
        ("[server]\nport = true", "port: must be a whole number"),
        ('[server]\nhosts = "a.example"', "hosts: must be a list"),
        ("[server]\nrequire_auth = 1", "require_auth: must be true or false"),
        ('budgets = "x"', "budgets: must be a mapping"),
        ('[models.fast]\nmodle = "openai:small"', "models.fast: unknown option 'modle'"),
        ("[models]\nfast = 5", "models.fast: must be the name of a model"),
        ("[server\nport = 1", r"is not valid TOML: .*line 1"),
    ],
)
def test_a_value_of_another_type_in_the_file_is_refused_at_the_start(tmp_path: Path, line: str, says: str) -> None:
    """A server that starts with it would fail at each request."""
    file = tmp_path / "palaver.toml"
    file.write_text(line + "\n")
    with pytest.raises(InvalidInput, match=says):
        read_settings({}, str(file))


def test_a_value_in_the_environment_that_cannot_be_read_says_what_it_must_be() -> None:
    with pytest.raises(InvalidInput, match="PALAVER_RATE: must be a number"):
        read_settings({"PALAVER_RATE": "fast"}, None)
    with pytest.raises(InvalidInput, match=r"PALAVER_BUDGETS: must be .* a JSON object"):
        read_settings({"PALAVER_BUDGETS": "none"}, None)


@pytest.mark.parametrize(("text", "flag"), [("1", True), (" True ", True), ("on", True), ("0", False), ("OFF", False)])
def test_a_flag_in_the_environment(text: str, flag: bool) -> None:
    assert read_settings({"PALAVER_REQUIRE_AUTH": text}, None).require_auth is flag


@pytest.mark.parametrize("text", ["ture", "enabled", "2"])
def test_a_typo_in_a_flag_does_not_turn_authentication_off(text: str) -> None:
    with pytest.raises(InvalidInput, match="PALAVER_REQUIRE_AUTH: must be true or false"):
        read_settings({"PALAVER_REQUIRE_AUTH": text}, None)


def test_a_short_secret_and_an_origin_for_all_are_refused() -> None:
    for name in ("jwt_secret", "ticket_secret", "audit_key"):
        with pytest.raises(InvalidInput, match=r"at least \d\d bytes") as refused:
            read_settings({f"PALAVER_{name.upper()}": "short"}, None)
        assert refused.value.field == name
    with pytest.raises(InvalidInput, match="every page"):
        read_settings({}, None, origins=("*",))


def test_secrets_are_not_shown() -> None:
    shown = repr(ServerSettings(jwt_secret=SECRET, audit_key=SECRET))
    assert SECRET not in shown
