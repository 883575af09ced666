"""Chat memory over supabase-py: the real client, against a service on loopback that returns what a test gives it.

The responses are PostgREST's. `tests/engines/supabase/test_compat.py` runs the adapter against a PostgREST-compatible
server; here are the failures, and the requests that are sent.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps, loads
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage
from supabase import AsyncClient, create_client

from palaver.adapters.chat_memory import PAGE, ChatMemory, PlainMessage
from palaver.errors import EngineError, EngineUnavailable, InvalidInput

SESSION = UUID("6f6a0a57-7b1c-4d62-9c0e-0c8b3f8f2a11")
SECRET = "allergic to peanuts"
KEY = "sb_publishable_k"


@dataclass(frozen=True)
class Answer:
    """One response of the service. Without a status, it hangs up."""

    status: int | None
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


NO_ANSWER = Answer(0)  # it keeps the connection and says nothing, until the test ends
HANGS_UP = Answer(None)


class Service(ThreadingHTTPServer):
    """A PostgREST service on loopback with prepared responses, and the requests that it got."""

    daemon_threads = True

    def __init__(self, *answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests, self.ended = list(answers), list[dict[str, Any]](), threading.Event()
        self.client = AsyncClient(f"http://127.0.0.1:{self.server_port}", KEY)
        self.memory = ChatMemory(self.client, timeout=30)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()

    def asked(self, n: int = 0) -> tuple[str, dict[str, str], dict[str, Any], Any]:
        """Method, parameters, headers and body of the nth request."""
        request = self.requests[n]
        return request["method"], request["params"], request["headers"], request["body"]


class Handler(BaseHTTPRequestHandler):
    server: Service

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        url = urlsplit(self.path)
        request = {"method": self.command, "path": url.path, "params": dict(parse_qsl(url.query))}
        self.server.requests.append({**request, "headers": headers, "body": body})
        self._send(self.server.answers.pop(0))

    do_GET = do_POST = do_DELETE = answer

    def _send(self, given: Answer) -> None:
        self.close_connection = True
        if given is NO_ANSWER:
            self.server.ended.wait()
        elif given.status is not None:
            data = b"" if given.status == 204 else dumps(given.body).encode()
            self.send_response(given.status)
            for name, value in {**given.headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


Serve = Callable[..., Service]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[Service] = []

    def start(*answers: Answer) -> Service:
        started.append(Service(*answers))
        return started[-1]

    yield start
    for one in started:
        one.end()


def rows(*said: tuple[str, str], total: int | None = None, start: int = 0) -> Answer:
    body = [
        {"session_id": str(SESSION), "role": role, "content": text, "metadata": {"n": n}, "created_at": "2026-05-01"}
        for n, (role, text) in enumerate(said, start)
    ]
    count = len(said) if total is None else total
    return answer(200, body, {"content-range": f"0-{len(said)}/{count}"})


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, body, headers or {})


async def test_messages_come_oldest_first_as_langchain_messages(serve: Serve) -> None:
    service = serve(rows(("user", "Hello"), ("assistant", "Hi"), ("system", "Be kind"), ("tool", "42")))
    assert await service.memory.get_messages(SESSION) == [
        HumanMessage("Hello", additional_kwargs={"n": 0}),
        AIMessage("Hi", additional_kwargs={"n": 1}),
        SystemMessage("Be kind", additional_kwargs={"n": 2}),
        ChatMessage(role="tool", content="42", additional_kwargs={"n": 3}),
    ]
    method, params, _, _ = service.asked()
    assert service.requests[0]["path"] == "/rest/v1/conversation_messages"
    assert method == "GET"
    assert params["session_id"] == f"eq.{SESSION}"
    assert params["order"] == "created_at.asc"
    assert params["offset"] == "0"


async def test_without_langchain_messages_are_plain_ones(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    service = serve(rows(("user", "Hello"), ("assistant", "Hi"), ("tool", "42")))
    assert await service.memory.get_messages(SESSION) == [
        PlainMessage("human", "Hello", {"n": 0}),
        PlainMessage("ai", "Hi", {"n": 1}),
        PlainMessage("tool", "42", {"n": 2}),
    ]


async def test_a_service_that_hands_out_pages_is_asked_until_all_are_there(serve: Serve) -> None:
    first, rest = [("user", str(n)) for n in range(100)], [("user", str(n)) for n in range(100, 130)]
    service = serve(rows(*first, total=130), rows(*rest, total=130, start=100))
    found = await service.memory.get_messages(SESSION)
    assert [message.content for message in found] == [str(n) for n in range(130)]
    assert [service.asked(n)[1]["offset"] for n in (0, 1)] == ["0", "100"]
    assert {service.asked(n)[1]["limit"] for n in (0, 1)} == {str(PAGE)}


async def test_a_partial_fetch_asks_from_the_cut_off_on(serve: Serve) -> None:
    cutoff = datetime(2026, 5, 1, 12, tzinfo=UTC)
    service = serve(rows(("user", "later")))
    assert len(await service.memory.get_messages_since(SESSION, cutoff)) == 1
    assert service.asked()[1]["created_at"] == "gte.2026-05-01T12:00:00+00:00"
    with pytest.raises(InvalidInput, match="time zone"):
        await service.memory.get_messages_since(SESSION, datetime(2026, 5, 1))  # noqa: DTZ001


async def test_a_context_is_the_newest_twelve_oldest_first(serve: Serve) -> None:
    service = serve(rows(("assistant", "Hi"), ("user", "Hello")))
    assert [message.content for message in await service.memory.load_context(SESSION)] == ["Hello", "Hi"]
    _, params, _, _ = service.asked()
    assert params["order"] == "created_at.desc"
    assert params["limit"] == "12"
    with pytest.raises(InvalidInput):
        await service.memory.load_context(SESSION, max_messages=0)


@pytest.mark.parametrize(("verb", "role"), [("add_user_message", "user"), ("add_ai_message", "assistant")])
async def test_a_message_is_inserted_and_not_sent_back(serve: Serve, verb: str, role: str) -> None:
    service = serve(answer(201, None))
    await getattr(service.memory, verb)(str(SESSION), "Hello", {"lang": "en"})
    method, _, headers, body = service.asked()
    assert method == "POST"
    assert body == {"session_id": str(SESSION), "role": role, "content": "Hello", "metadata": {"lang": "en"}}
    assert "return=minimal" in headers["prefer"]


@pytest.mark.parametrize("verb", ["delete_session", "reset"])
async def test_a_session_is_deleted_and_counted(serve: Serve, verb: str) -> None:
    service = serve(answer(204, None, {"content-range": "*/7"}))
    assert await getattr(service.memory, verb)(SESSION) == 7
    method, params, headers, _ = service.asked()
    assert method == "DELETE"
    assert params == {"session_id": f"eq.{SESSION}"}
    assert "count=exact" in headers["prefer"]


@pytest.mark.parametrize(("given", "minutes"), [((30,), 30), ((), 60)])
async def test_what_is_older_than_the_retention_is_deleted(serve: Serve, given: tuple[int, ...], minutes: int) -> None:
    service = serve(answer(204, None, {"content-range": "*/3"}))
    before = datetime.now(UTC)
    assert await service.memory.delete_expired_sessions(*given) == 3
    method, params, _, _ = service.asked()
    assert method == "DELETE"
    assert params.keys() == {"created_at"}
    operator, _, moment = params["created_at"].partition(".")
    assert operator == "lt"
    assert before <= datetime.fromisoformat(moment) + timedelta(minutes=minutes) <= datetime.now(UTC)
    with pytest.raises(InvalidInput):
        await service.memory.delete_expired_sessions(0)


async def test_a_session_that_is_no_uuid_is_refused_before_anything_is_sent(serve: Serve) -> None:
    service = serve()
    with pytest.raises(InvalidInput, match="session_id"):
        await service.memory.delete_session("*")
    assert service.requests == []


async def test_a_service_that_does_not_answer_is_given_up(serve: Serve) -> None:
    memory = ChatMemory(serve(NO_ANSWER).client, timeout=0.05)
    with pytest.raises(EngineUnavailable, match="no answer"):
        await memory.add_user_message(SESSION, SECRET)


@pytest.mark.parametrize(("ends", "problem"), [(True, "ConnectError"), (False, "RemoteProtocolError")])
async def test_a_network_failure_is_an_error_and_not_an_empty_list(
    serve: Serve, caplog: pytest.LogCaptureFixture, ends: bool, problem: str
) -> None:
    service = serve(HANGS_UP)
    if ends:
        service.end()  # nothing listens there any more
    with pytest.raises(EngineUnavailable) as caught:
        await service.memory.add_user_message(SESSION, SECRET)
    (record,) = [one for one in caplog.records if one.name == "palaver.chat_memory"]
    assert SECRET not in str(caught.value) + caplog.text
    assert problem in record.getMessage()
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_a_refusal_tells_its_code_and_nothing_of_the_row(serve: Serve) -> None:
    refusal = {"code": "42501", "message": SECRET, "details": f"Failing row contains ({SECRET})", "hint": SECRET}
    service = serve(answer(403, refusal))
    with pytest.raises(EngineError, match="42501") as caught:
        await service.memory.add_ai_message(SESSION, SECRET)
    assert SECRET not in str(caught.value)


async def test_a_refusal_for_lack_of_rights_says_which_key_is_needed(serve: Serve) -> None:
    service = serve(answer(403, {"code": "42501", "message": "permission denied", "details": None, "hint": None}))
    with pytest.raises(EngineError, match=r"--service-tenant NAME.*--anon-tenant NAME"):
        await service.memory.get_messages(SESSION)
    service = serve(answer(400, {"code": "23514", "message": "check", "details": None, "hint": None}))
    with pytest.raises(EngineError, match=r"23514$"):
        await service.memory.add_user_message(SESSION, "x")


@pytest.mark.parametrize(
    ("verb", "args", "session"),
    [
        ("get_messages", (SESSION,), str(SESSION)),
        ("load_context", (SESSION,), str(SESSION)),
        ("add_user_message", (SESSION, SECRET), str(SESSION)),
        ("add_ai_message", (SESSION, SECRET, {"x": SECRET}), str(SESSION)),
        ("delete_session", (SESSION,), str(SESSION)),
        ("delete_expired_sessions", (), "(all)"),
    ],
)
async def test_a_failure_is_logged_with_its_context_and_without_content(
    serve: Serve, caplog: pytest.LogCaptureFixture, verb: str, args: tuple[Any, ...], session: str
) -> None:
    service = serve(answer(400, {"code": "23514", "message": SECRET, "details": SECRET, "hint": SECRET}))
    with pytest.raises(EngineError):
        await getattr(service.memory, verb)(*args)
    (record,) = [one for one in caplog.records if one.name == "palaver.chat_memory"]
    for told in (verb, session, "23514"):
        assert told in record.getMessage()
    assert SECRET not in caplog.text


async def test_an_answer_without_data_is_an_empty_list(serve: Serve) -> None:
    memory = serve(*[answer(200, None)] * 3).memory
    assert await memory.get_messages(SESSION) == []
    assert await memory.get_messages_since(SESSION, datetime.now(UTC)) == []
    assert await memory.load_context(SESSION) == []


@pytest.mark.parametrize(
    "client", ["http://127.0.0.1:9", create_client("http://127.0.0.1:9", "sb_publishable_k")], ids=["address", "sync"]
)
def test_an_address_or_a_synchronous_client_is_refused_with_the_cure(client: Any) -> None:
    with pytest.raises(InvalidInput, match=r"ChatMemory\(await acreate_client\(url, key\)\)"):
        ChatMemory(client, "key")
