"""The OpenAI embedder: the real SDK against a server on this machine that speaks the embeddings wire format."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import palaver
from palaver.conversations.internals import components_of, engine_of
from palaver.errors import InvalidInput, ModelUnavailable
from palaver.models.offline.embedder import open_embedder
from palaver.models.openai.embedder import MAX_BATCH, MAX_BATCH_BYTES, MAX_TEXT_BYTES, OpenAIEmbedder

KEY = "sk-this-must-not-be-seen"
SECRET = "the words of the answer"
TOPICS = (("kitten", "feline"), ("soup", "broth"), ("train", "railway"))

Reply = tuple[int, dict[str, str], bytes]


def meaning(text: str) -> list[float]:
    """A longer vector than 1, that points where the text's topic is."""
    words = text.lower()
    return [3.0 if any(word in words for word in topic) else 0.01 for topic in TOPICS] + [0.02]


def answer(vectors: list[list[float]], order: Callable[[list[Any]], list[Any]] = list) -> Reply:
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    body = {"object": "list", "data": order(data), "model": "m", "usage": usage}
    return 200, {}, json.dumps(body).encode()


def refusal(status: int, **headers: str) -> Reply:
    body = {"error": {"message": f"{SECRET} {KEY}", "type": "server_error", "code": None}}
    return status, headers, json.dumps(body).encode()


class Service:
    """Answers each request with the next of `replies`; when they are used up, with what the texts mean."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.replies: list[Reply] = []
        self.order: Callable[[list[Any]], list[Any]] = list
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()

    def reply(self, body: dict[str, Any]) -> Reply:
        self.requests.append(body)
        self.may_answer.wait(20)
        return self.replies.pop(0) if self.replies else answer([meaning(t) for t in body["input"]], self.order)

    def _handler(service) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert self.path == "/v1/embeddings"
                service.keys.append(self.headers["authorization"])
                status, headers, data = service.reply(body)
                try:
                    self.send_response(status)
                    for name, value in {"content-type": "application/json", **headers}.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:
                    pass  # the client did not wait

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    service = Service()
    yield service
    service.stop()


def embedder(service: Service, model: str = "tiny", *, timeout: float = 20.0, retries: int = 0) -> OpenAIEmbedder:
    return OpenAIEmbedder(model, api_key=KEY, base_url=service.url, timeout=timeout, retries=retries)


async def failure(model: OpenAIEmbedder) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as caught:
        await model.embed(["the text of a turn"])
    await model.aclose()
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(model) + repr(vars(model))
    assert KEY not in told
    assert SECRET not in told
    assert "the text of a turn" not in str(caught.value)
    assert caught.value.__context__ is None
    return caught.value


async def test_vectors_have_unit_length_and_the_dimensions_are_learned(service: Service) -> None:
    model = embedder(service)
    assert (model.name, model.dimensions) == ("openai:tiny", 0)
    (vector,) = await model.embed(["a kitten"])
    assert model.dimensions == len(vector) == 4
    assert math.hypot(*vector) == pytest.approx(1)
    assert service.requests == [{"model": "tiny", "input": ["a kitten"], "encoding_format": "float"}]
    assert service.keys == [f"Bearer {KEY}"]
    assert await model.embed([]) == []
    await model.aclose()


@pytest.mark.parametrize(
    ("model", "dimensions"),
    [("text-embedding-3-small", 1536), ("text-embedding-3-large", 3072), ("text-embedding-ada-002", 1536)],
)
def test_the_dimensions_of_known_models_are_there_before_the_first_answer(
    service: Service, model: str, dimensions: int
) -> None:
    assert embedder(service, model).dimensions == dimensions


async def test_vectors_come_in_the_order_of_the_texts_whatever_the_order_of_the_answer(service: Service) -> None:
    service.order = lambda data: data[::-1]
    model = embedder(service)
    texts = [("kitten", "soup", "train")[i % 3] for i in range(2 * MAX_BATCH + 5)]
    vectors = await model.embed(texts)
    assert [max(range(4), key=vector.__getitem__) for vector in vectors] == [i % 3 for i in range(len(texts))]
    assert [len(request["input"]) for request in service.requests] == [MAX_BATCH, MAX_BATCH, 5]
    await model.aclose()


async def test_what_is_sent_is_within_the_limits_and_never_blank(service: Service) -> None:
    model = embedder(service)
    assert len(await model.embed(["", " \n", "\ud800 half", "x" * 5_000_000, *["語" * 9_000] * 60])) == 64
    sent = [text for request in service.requests for text in request["input"]]
    assert sent[:3] == [".", ".", "? half"]
    assert all(0 < len(text.encode()) <= MAX_TEXT_BYTES for text in sent)
    assert sent[4] == "語" * (MAX_TEXT_BYTES // 3)
    assert all(len("".join(request["input"]).encode()) <= MAX_BATCH_BYTES for request in service.requests)
    await model.aclose()


async def test_one_that_is_told_to_wait_waits_and_asks_again(service: Service) -> None:
    service.replies = [refusal(429, **{"retry-after": "1"})]
    model = embedder(service, retries=2)
    began = asyncio.get_running_loop().time()
    assert len(await model.embed(["soup"])) == 1
    assert asyncio.get_running_loop().time() - began >= 0.95
    assert len(service.requests) == 2
    await model.aclose()


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_a_refusal_carries_its_status_and_nothing_of_its_text(service: Service, status: int) -> None:
    service.replies = [refusal(status)]
    problem = await failure(embedder(service))
    assert (problem.status, problem.model) == (status, "openai:tiny")


async def test_a_failure_is_told_after_the_retries(service: Service) -> None:
    service.replies = [refusal(500, **{"retry-after-ms": "1"})] * 3
    assert (await failure(embedder(service, retries=2))).status == 500
    assert len(service.requests) == 3


@pytest.mark.parametrize(
    "reply",
    [
        (200, {}, b'{"data": [{"index": 0, "embed'),
        (200, {}, b""),
        (200, {}, b"\xff\xfe"),
        (200, {"content-type": "text/html"}, b"<html>" + SECRET.encode()),
        (200, {}, b'{"data": null}'),
        (200, {}, b'{"data": []}'),
        (200, {}, b'{"data": [{"index": 0, "embedding": []}]}'),
        (200, {}, b'{"data": [{"index": 0, "embedding": "AAAA"}]}'),
        (200, {}, b'{"data": [{"index": 1, "embedding": [1.0]}]}'),
        (200, {}, b'{"data": [{"index": 0, "embedding": [NaN]}]}'),
        answer([[0.0, 0.0]]),
        answer([[1.0], [1.0]]),
    ],
)
async def test_a_malformed_answer_is_a_failure_and_teaches_nothing(service: Service, reply: Reply) -> None:
    service.replies = [reply]
    model = embedder(service)
    assert (await failure(model)).status is None
    assert model.dimensions == 0


async def test_vectors_of_another_length_are_refused(service: Service) -> None:
    assert "not 1,536" in str(await failure(embedder(service, "text-embedding-3-small")))


async def test_a_slow_answer_is_not_waited_for(service: Service) -> None:
    service.may_answer.clear()
    problem = await failure(embedder(service, timeout=0.2, retries=2))
    assert (problem.status, problem.problem) == (None, "took too long")


async def test_long_pauses_between_tries_count_as_time(service: Service) -> None:
    service.replies = [refusal(429, **{"retry-after": "60"})]
    assert (await failure(embedder(service, timeout=0.3, retries=2))).problem == "took too long"


async def test_a_service_that_is_down_is_out_of_reach(service: Service) -> None:
    service.stop()
    assert (await failure(embedder(service))).problem == "cannot be reached"


def test_one_embedder_serves_one_event_loop_after_another(service: Service) -> None:
    model = embedder(service)
    for _ in range(3):
        assert len(asyncio.run(model.embed(["soup"]))) == 1


async def test_it_opens_by_name_with_the_settings_of_the_sdk(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", service.url)
    model = open_embedder("openai:org/tiny:v2")
    assert isinstance(model, OpenAIEmbedder)
    assert model.name == "openai:org/tiny:v2"
    assert len(await model.embed(["train"])) == 1
    assert service.requests[0]["model"] == "org/tiny:v2"
    await model.aclose()


def test_without_a_key_or_a_model_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY"):
        open_embedder("openai:text-embedding-3-small")
    with pytest.raises(InvalidInput, match="has no model"):
        open_embedder("openai:")


def test_a_missing_package_names_the_extra_and_is_not_missed_before() -> None:
    code = """
import sys
sys.modules["openai"] = None
import palaver
from palaver.errors import MissingExtra
from palaver.models.offline.embedder import open_embedder
try:
    open_embedder("openai:text-embedding-3-small")
except MissingExtra as problem:
    assert problem.extra == "openai" and "palaver[openai]" in str(problem), problem
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_recall_finds_by_meaning_what_shares_no_word(service: Service) -> None:
    model = embedder(service)
    async with palaver.open("memory:", embedder=model, worker=False) as store:
        chat = await store.conversation("pets")
        assert await chat.recall("feline") == []  # nothing is there, and no dimension is known yet
        for text in ("The railway was late.", "Our kitten is called Miso.", "Broth needs salt.", "Good evening."):
            await chat.append("user", text)
        await store.settle()
        hits = await chat.recall("Which feline?", k=1)
        assert [hit.turn.text for hit in hits] == ["Our kitten is called Miso."]
        assert await engine_of(store).embedding_backlog("openai:tiny") == 0
    await model.aclose()


async def test_while_the_service_is_down_words_still_work_and_vectors_come_later(service: Service) -> None:
    model = embedder(service)
    async with palaver.open("memory:", embedder=model, worker=False) as store:
        chat = await store.conversation("pets")
        service.replies = [refusal(503)] * 2
        for text in ("The railway was late.", "Our kitten is called Miso."):
            await chat.append("user", text)
        hits = await chat.recall("Miso", k=1)
        assert [hit.turn.text for hit in hits] == ["Our kitten is called Miso."]
        recaller = components_of(store).contexts.recall
        ranking = await recaller.rank(store.scope, palaver.ports.RecallScope(conversation=chat.id), "Miso", 5)
        assert ranking.note == "by words alone: openai:tiny failed"
        service.replies = [refusal(503)]  # for the first try at the vectors; the second comes a second later
        await store.settle()
        assert service.replies == []
        hits = await chat.recall("Which feline?", k=1)
        assert [hit.turn.text for hit in hits] == ["Our kitten is called Miso."]
        service.stop()
        await chat.append("user", "Broth needs salt.")
        assert (await chat.recall("salt", k=1))[0].turn.text == "Broth needs salt."
        assert "salt" in (await chat.build_context(500)).text
    await model.aclose()
