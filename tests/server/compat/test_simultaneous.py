"""Simultaneous questions through every protocol: answered in parallel, one after the other, or refused."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from palaver.testing.providers import LoopbackProvider, Say
from tests.generation.test_simultaneous import check_earlier
from tests.server.compat.conftest import on_each_engine
from tests.server.compat.test_several_questions import ai_sdk, chat, messages, responses, rest
from tests.server.conftest import Running, ok, running
from tests.server.processes import serving, wait_until

Ask = Callable[[httpx.Client, str, str], httpx.Response]
PROTOCOLS: list[Ask] = [rest, chat, responses, messages, ai_sdk]
EACH_PROTOCOL = pytest.mark.parametrize("ask", PROTOCOLS)
QUESTION = re.compile(r"question-\d+")


class EchoingModel:
    """Says the question that the prompt ends with, and keeps what its prompts say."""

    def __init__(self) -> None:
        self.prompts: list[list[str]] = []

    def __call__(self, body: dict[str, Any]) -> Say:
        said = [json.dumps(one["content"]) for one in body["messages"]]
        self.prompts.append([text for one in said for text in re.findall(r"(?:about )?question-\d+", one)])
        asked = [one for one in body["messages"] if one["role"] == "user"][-1]
        return Say(f"about {QUESTION.findall(json.dumps(asked))[-1]}")


def said_in(reply: httpx.Response) -> str:
    """The text of an answer, where a protocol streams it in pieces."""
    return re.sub(r'"}\s*data: {"type":"text-delta","id":"[^"]*","delta":"', "", reply.text)


def new_talk(client: httpx.Client, mode: str) -> str:
    talk: str = ok(client.post("/api/conversations", json={"settings": {"simultaneous": mode}}))["id"]
    return talk


def questions_of(client: httpx.Client, talk: str) -> list[str]:
    turns = ok(client.get(f"/api/conversations/{talk}/turns", params={"limit": 200}))["items"]
    return [QUESTION.findall(json.dumps(one["content"]))[0] for one in turns if one["role"] == "user"]


def ask_all(asks: list[tuple[Ask, httpx.Client]], talk: str) -> list[str]:
    """Ask at once, and return the questions that did not get their own answer."""
    with ThreadPoolExecutor(len(asks)) as pool:
        told = list(pool.map(lambda one: one[1][0](one[1][1], talk, f"question-{one[0]}"), enumerate(asks, 10)))
    assert [one.status_code for one in told] == [200] * len(asks), [one.text for one in told]
    return [f"question-{n}" for n, one in enumerate(told, 10) if f"about question-{n}" not in said_in(one)]


def check_queued_prompts(model: EchoingModel, order: list[str]) -> None:
    """The prompts come in the order of the questions, and each has all earlier ones with their answers, and no more."""
    assert [said[-1] for said in model.prompts] == order
    for number, said in enumerate(model.prompts):
        check_earlier(order[:number], said[:-1])


@on_each_engine
@EACH_PROTOCOL
def test_queued_questions_get_their_own_answers_in_order(server: Running, provider: LoopbackProvider, ask: Ask) -> None:
    provider.otherwise = model = EchoingModel()
    with server.client() as client:
        talk = new_talk(client, "queue")
        assert ask_all([(ask, client)] * 5, talk) == []
        check_queued_prompts(model, questions_of(client, talk))


@on_each_engine
@EACH_PROTOCOL
def test_a_second_question_is_refused_in_the_protocols_own_way(
    server: Running, provider: LoopbackProvider, ask: Ask
) -> None:
    held = threading.Event()
    provider.script(Say("about question-1", hold=held))
    provider.otherwise = EchoingModel()
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        talk = new_talk(client, "reject")
        first = pool.submit(ask, client, talk, "question-1")
        wait_until(lambda: provider.bodies, "the first question")
        refused = ask(client, talk, "question-2")
        held.set()
        check_refusal(ask, refused, talk)
        assert "question-1" in said_in(first.result())
        assert questions_of(client, talk) == ["question-1"], "the second one is not stored"
        assert "about question-3" in said_in(ask(client, talk, "question-3"))


def check_refusal(ask: Ask, refused: httpx.Response, talk: str) -> None:
    body = refused.json()
    if ask in (rest, ai_sdk):
        assert refused.status_code == 409
        assert refused.headers["content-type"].startswith("application/problem+json")
        assert body["type"] == "urn:palaver:problem:conversation-busy"
        assert body["conversation"] == talk
    elif ask is messages:
        assert (refused.status_code, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
        assert "being answered" in body["error"]["message"]
    else:
        error = body["error"]
        assert (refused.status_code, error["type"]) == (400, "invalid_request_error")
        assert (error["code"], error["param"]) == ("conversation_locked", "conversation")


def test_a_stream_is_refused_before_it_begins(server: Running, provider: LoopbackProvider) -> None:
    held = threading.Event()
    provider.script(Say("about question-1", hold=held))
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        talk = new_talk(client, "reject")
        first = pool.submit(rest, client, talk, "question-1")
        wait_until(lambda: provider.bodies, "the first question")
        path = f"/api/conversations/{talk}/generate"
        assert client.post(path, json={"message": "question-2", "stream": True}).status_code == 409
        held.set()
        assert first.result().status_code == 200


def test_a_question_that_waits_too_long_is_an_error_that_says_so(
    settings: Callable[..., Any], provider: LoopbackProvider
) -> None:
    held = threading.Event()
    provider.script(Say("about question-1", hold=held))
    provider.otherwise = EchoingModel()
    generate = {"simultaneous": "queue", "queue_timeout": 0.2}
    with running(settings(generate=generate)) as server, server.client() as client, ThreadPoolExecutor(1) as pool:
        talk = ok(client.post("/api/conversations", json={}))["id"]
        first = pool.submit(rest, client, talk, "question-1")
        wait_until(lambda: provider.bodies, "the first question")
        late = rest(client, talk, "question-2")
        assert (late.status_code, late.json()["type"]) == (503, "urn:palaver:problem:queue-timeout")
        assert "retry-after" in late.headers
        assert (late.json()["waited"], late.json()["ahead"]) == (0.2, 1)
        assert chat(client, talk, "question-3").status_code == 503
        held.set()
        assert first.result().status_code == 200


def test_a_question_whose_client_has_gone_while_it_waits_is_not_answered(
    server: Running, provider: LoopbackProvider
) -> None:
    server.app.state.services.answers.return_seconds = 0.05
    held = threading.Event()
    provider.script(Say("about question-1", hold=held))
    provider.otherwise = model = EchoingModel()
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        talk = new_talk(client, "queue")
        first = pool.submit(rest, client, talk, "question-1")
        wait_until(lambda: provider.bodies, "the first question")
        path = f"/api/conversations/{talk}/generate"
        with client.stream("POST", path, json={"message": "question-2", "stream": True}) as going:
            next(line for line in going.iter_lines() if "question-2" in line)
        wait_until(lambda: server.app.state.services.answers.count == 1, "the end of the second answer")
        held.set()
        assert first.result().status_code == 200
        assert "about question-3" in said_in(rest(client, talk, "question-3"))
    assert [one[-1] for one in model.prompts] == ["question-3"]


# ---- two processes -------------------------------------------------------------------------------------------------


@pytest.fixture
def processes(postgres_url: str, tmp_path: Path, provider: LoopbackProvider) -> Iterator[list[httpx.Client]]:
    """Clients of two servers that share a database."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(postgres_url, tmp_path, provider=provider)) for _ in range(2)]
        yield [server.client() for server in servers]


def test_two_processes_give_nobody_the_answer_to_another_question(
    processes: list[httpx.Client], provider: LoopbackProvider
) -> None:
    """Two to twelve askers, by turns through both processes and every protocol, in parallel and queued."""
    for mode in ("parallel", "queue"):
        for askers in (2, 7, 12):
            provider.otherwise = model = EchoingModel()
            talk = new_talk(processes[0], mode)
            asks = [ask for ask, _ in zip(cycle(PROTOCOLS), range(askers), strict=False)]
            pairs = [(ask, processes[n % 2]) for n, ask in enumerate(asks)]
            assert ask_all(pairs, talk) == [], f"{askers} askers, {mode}"
            if mode == "queue":
                check_queued_prompts(model, questions_of(processes[0], talk))


def test_a_question_is_refused_while_the_other_process_answers_one(
    processes: list[httpx.Client], provider: LoopbackProvider
) -> None:
    one, other = processes
    held = threading.Event()
    provider.script(Say("about question-1", hold=held))
    provider.otherwise = EchoingModel()
    talk = new_talk(one, "reject")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(rest, one, talk, "question-1")
        wait_until(lambda: provider.bodies, "the first question")
        for ask in PROTOCOLS:
            check_refusal(ask, ask(other, talk, "question-2"), talk)
        held.set()
        assert first.result().status_code == 200
    assert "about question-3" in said_in(rest(other, talk, "question-3"))


def test_a_process_that_is_killed_blocks_the_queue_until_its_lease_has_ended(
    postgres_url: str, tmp_path: Path, provider: LoopbackProvider
) -> None:
    never = threading.Event()
    provider.script(Say("about question-1", hold=never))
    provider.otherwise = EchoingModel()
    with (
        serving(postgres_url, tmp_path, provider=provider, stream_lease=2) as dying,
        serving(postgres_url, tmp_path, provider=provider, stream_lease=2) as living,
        ThreadPoolExecutor(2) as pool,
    ):
        client = living.client()
        talk = new_talk(client, "queue")
        pool.submit(rest, dying.client(), talk, "question-1")
        wait_until(lambda: provider.bodies, "the first question")
        second = pool.submit(rest, client, talk, "question-2")
        wait_until(lambda: len(questions_of(client, talk)) == 2, "the second question")
        assert not second.done()
        dying.child.kill()
        assert "about question-2" in said_in(second.result())
    never.set()
