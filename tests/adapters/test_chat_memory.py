"""Chat memory over supabase-py. The client is a mock here, and only here: the system that this stands in for tests it
so. The client's own query builders are real, so that what is asserted is the request that would be sent."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from json import loads
from typing import Any
from unittest.mock import AsyncMock, Mock
from uuid import UUID

import httpx
import pytest
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage
from postgrest import AsyncPostgrestClient
from supabase import AsyncClient, create_client

from palaver.adapters.chat_memory import PAGE, ChatMemory, PlainMessage
from palaver.errors import EngineError, EngineUnavailable, InvalidInput

SESSION = UUID("6f6a0a57-7b1c-4d62-9c0e-0c8b3f8f2a11")
SECRET = "allergic to peanuts"


class Service:
    """Responses of a PostgREST service, and the requests it got."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.send = AsyncMock(side_effect=self._answer)
        http = Mock(spec=httpx.AsyncClient, request=self.send, headers=httpx.Headers(), base_url=httpx.URL("http://x"))
        rest = AsyncPostgrestClient("http://localhost", http_client=http)
        self.client = Mock(spec=AsyncClient, table=Mock(side_effect=rest.from_))
        self.memory = ChatMemory(self.client, timeout=5)

    async def _answer(self, method: str, url: str, *, headers: Any, **more: Any) -> httpx.Response:
        given = self.answers.pop(0)
        if isinstance(given, Exception):
            raise given
        given.request = httpx.Request(method, "http://localhost", headers=headers)
        return given

    def asked(self, n: int = 0) -> tuple[str, dict[str, str], dict[str, Any], Any]:
        """Method, parameters, headers and body of the nth request."""
        call = self.send.await_args_list[n]
        method = call.args[0] if call.args else call.kwargs["method"]
        return method, dict(call.kwargs["params"]), dict(call.kwargs["headers"]), _body(**call.kwargs)


def _body(json: Any = None, content: bytes | None = None, **more: Any) -> Any:
    return loads(content) if content else json


def rows(*said: tuple[str, str], total: int | None = None, start: int = 0) -> httpx.Response:
    body = [
        {"session_id": str(SESSION), "role": role, "content": text, "metadata": {"n": n}, "created_at": "2026-05-01"}
        for n, (role, text) in enumerate(said, start)
    ]
    count = len(said) if total is None else total
    return answer(200, body, {"content-range": f"0-{len(said)}/{count}"})


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, json=body, headers=headers)


async def test_messages_come_oldest_first_as_langchain_messages() -> None:
    service = Service(rows(("user", "Hello"), ("assistant", "Hi"), ("system", "Be kind"), ("tool", "42")))
    assert await service.memory.get_messages(SESSION) == [
        HumanMessage("Hello", additional_kwargs={"n": 0}),
        AIMessage("Hi", additional_kwargs={"n": 1}),
        SystemMessage("Be kind", additional_kwargs={"n": 2}),
        ChatMessage(role="tool", content="42", additional_kwargs={"n": 3}),
    ]
    method, params, _, _ = service.asked()
    service.client.table.assert_called_once_with("conversation_messages")
    assert method == "GET"
    assert params["session_id"] == f"eq.{SESSION}"
    assert params["order"] == "created_at.asc"
    assert params["offset"] == "0"


async def test_without_langchain_messages_are_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    service = Service(rows(("user", "Hello"), ("assistant", "Hi"), ("tool", "42")))
    assert await service.memory.get_messages(SESSION) == [
        PlainMessage("human", "Hello", {"n": 0}),
        PlainMessage("ai", "Hi", {"n": 1}),
        PlainMessage("tool", "42", {"n": 2}),
    ]


async def test_a_service_that_hands_out_pages_is_asked_until_all_are_there() -> None:
    first, rest = [("user", str(n)) for n in range(100)], [("user", str(n)) for n in range(100, 130)]
    service = Service(rows(*first, total=130), rows(*rest, total=130, start=100))
    found = await service.memory.get_messages(SESSION)
    assert [message.content for message in found] == [str(n) for n in range(130)]
    assert [service.asked(n)[1]["offset"] for n in (0, 1)] == ["0", "100"]
    assert {service.asked(n)[1]["limit"] for n in (0, 1)} == {str(PAGE)}


async def test_a_partial_fetch_asks_from_the_cut_off_on() -> None:
    cutoff = datetime(2026, 5, 1, 12, tzinfo=UTC)
    service = Service(rows(("user", "later")))
    assert len(await service.memory.get_messages_since(SESSION, cutoff)) == 1
    assert service.asked()[1]["created_at"] == "gte.2026-05-01T12:00:00+00:00"
    with pytest.raises(InvalidInput, match="time zone"):
        await service.memory.get_messages_since(SESSION, datetime(2026, 5, 1))  # noqa: DTZ001


async def test_a_context_is_the_newest_twelve_oldest_first() -> None:
    service = Service(rows(("assistant", "Hi"), ("user", "Hello")))
    assert [message.content for message in await service.memory.load_context(SESSION)] == ["Hello", "Hi"]
    _, params, _, _ = service.asked()
    assert params["order"] == "created_at.desc"
    assert params["limit"] == "12"
    with pytest.raises(InvalidInput):
        await service.memory.load_context(SESSION, max_messages=0)


@pytest.mark.parametrize(("verb", "role"), [("add_user_message", "user"), ("add_ai_message", "assistant")])
async def test_a_message_is_inserted_and_not_sent_back(verb: str, role: str) -> None:
    service = Service(answer(201, None))
    await getattr(service.memory, verb)(str(SESSION), "Hello", {"lang": "en"})
    method, _, headers, body = service.asked()
    assert method == "POST"
    assert body == {"session_id": str(SESSION), "role": role, "content": "Hello", "metadata": {"lang": "en"}}
    assert "return=minimal" in headers["prefer"]


@pytest.mark.parametrize("verb", ["delete_session", "reset"])
async def test_a_session_is_deleted_and_counted(verb: str) -> None:
    service = Service(answer(204, None, {"content-range": "*/7"}))
    assert await getattr(service.memory, verb)(SESSION) == 7
    method, params, headers, _ = service.asked()
    assert method == "DELETE"
    assert params == {"session_id": f"eq.{SESSION}"}
    assert "count=exact" in headers["prefer"]


@pytest.mark.parametrize(("given", "minutes"), [((30,), 30), ((), 60)])
async def test_what_is_older_than_the_retention_is_deleted(given: tuple[int, ...], minutes: int) -> None:
    service = Service(answer(204, None, {"content-range": "*/3"}))
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


async def test_a_session_that_is_no_uuid_is_refused_before_anything_is_sent() -> None:
    service = Service()
    with pytest.raises(InvalidInput, match="session_id"):
        await service.memory.delete_session("*")
    service.send.assert_not_awaited()


async def test_a_service_that_does_not_answer_is_given_up() -> None:
    service = Service()

    async def never(*args: Any, **kwargs: Any) -> None:
        await asyncio.Event().wait()

    service.send.side_effect = never
    memory = ChatMemory(service.client, timeout=0.01)
    with pytest.raises(EngineUnavailable, match="no answer"):
        await memory.add_user_message(SESSION, SECRET)


@pytest.mark.parametrize("problem", [httpx.ConnectError(SECRET), httpx.ReadTimeout(SECRET), httpx.WriteError(SECRET)])
async def test_a_network_failure_is_an_error_and_not_an_empty_list(
    caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    service = Service(problem)
    with pytest.raises(EngineUnavailable) as caught:
        await service.memory.add_user_message(SESSION, SECRET)
    assert SECRET not in str(caught.value) + caplog.text
    assert type(problem).__name__ in caplog.records[0].getMessage()
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_a_refusal_tells_its_code_and_nothing_of_the_row() -> None:
    refusal = {"code": "42501", "message": SECRET, "details": f"Failing row contains ({SECRET})", "hint": SECRET}
    service = Service(answer(403, refusal))
    with pytest.raises(EngineError, match="42501") as caught:
        await service.memory.add_ai_message(SESSION, SECRET)
    assert SECRET not in str(caught.value)


async def test_a_refusal_for_lack_of_rights_says_which_key_is_needed() -> None:
    service = Service(answer(403, {"code": "42501", "message": "permission denied", "details": None, "hint": None}))
    with pytest.raises(EngineError, match=r"--service-tenant NAME.*--anon-tenant NAME"):
        await service.memory.get_messages(SESSION)
    service = Service(answer(400, {"code": "23514", "message": "check", "details": None, "hint": None}))
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
    caplog: pytest.LogCaptureFixture, verb: str, args: tuple[Any, ...], session: str
) -> None:
    service = Service(answer(400, {"code": "23514", "message": SECRET, "details": SECRET, "hint": SECRET}))
    with pytest.raises(EngineError):
        await getattr(service.memory, verb)(*args)
    (record,) = caplog.records
    assert record.name == "palaver.chat_memory"
    for told in (verb, session, "23514"):
        assert told in record.getMessage()
    assert SECRET not in caplog.text


async def test_an_answer_without_data_is_an_empty_list() -> None:
    """As a mock of the client gives it, in the way of the system that this stands in for."""
    response = Mock(data=None, count=None)
    query = Mock()
    for step in ("select", "eq", "gte", "order", "limit", "range"):
        getattr(query, step).return_value = query
    query.execute = AsyncMock(return_value=response)
    memory = ChatMemory(Mock(spec=AsyncClient, table=Mock(return_value=query)))
    assert await memory.get_messages(SESSION) == []
    assert await memory.get_messages_since(SESSION, datetime.now(UTC)) == []
    assert await memory.load_context(SESSION) == []


@pytest.mark.parametrize(
    "client", ["http://127.0.0.1:9", create_client("http://127.0.0.1:9", "sb_publishable_k")], ids=["address", "sync"]
)
def test_an_address_or_a_synchronous_client_is_refused_with_the_cure(client: Any) -> None:
    with pytest.raises(InvalidInput, match=r"ChatMemory\(await acreate_client\(url, key\)\)"):
        ChatMemory(client, "key")
