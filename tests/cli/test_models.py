"""palaver chat with a model, and palaver requests: against a provider on this machine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

import pytest

from palaver.testing.providers import KEY, Fail, LoopbackProvider, Say
from tests.cli.conftest import interrupt, process, running


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as provider:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        yield provider


@pytest.mark.parametrize("model", ["openai:gpt-5", "responses:gpt-5", "anthropic:claude-5"])
def test_a_model_answers_with_tools_and_the_tools_are_shown(provider: LoopbackProvider, lines, model: str) -> None:
    provider.script(Say("Let me look.", calls=[("recall", {"query": "tea"})]), Say("You like tea."))
    done = process("chat", "notes", "--model", model, input="What do I like?\n")
    assert done.returncode == 0, done.stderr
    assert f"Model: {model}." in done.stdout
    assert done.stdout.index("[recall") < done.stdout.index("You like tea.")
    turns = lines("show", "notes")
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert turns[-1]["model"] == model


def test_the_environment_may_name_the_model(provider: LoopbackProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_MODEL", "openai:gpt-5")
    assert "Yes." in process("chat", input="Well?\n").stdout


def test_model_is_switched_and_kept(provider: LoopbackProvider, lines) -> None:
    out = process("chat", "notes", input="/model\n/model openai:gpt-5\nWell?\n/model nonsense\n").stdout
    assert "The model is now offline." in out
    assert "The model is now openai:gpt-5." in out
    assert "Yes." in out
    again = process("chat", "notes", input="And?\n")
    assert "Model: openai:gpt-5." in again.stdout


def test_explain_tells_what_the_model_saw(provider: LoopbackProvider) -> None:
    out = process("chat", "--model", "openai:gpt-5", input="/explain\nWell?\n/explain\n").stdout
    assert "There is no answer yet." in out
    assert "the message to answer; always included" in out


def test_branches_are_listed_and_switched(store) -> None:
    talk = store.conversation("notes")
    first = talk.append("user", "Tea, please.")
    talk.append("user", "Coffee, please.", replaces=first)
    out = process("chat", "notes", input=f"/branch\n/branch {first.id}\n/history\n").stdout
    assert "2 versions" in out
    assert "is active." in out
    assert out.rstrip().count("Tea, please.") >= 2
    assert "No branches: every turn has one version." in process("chat", "other", input="/branch\n").stdout


def test_a_failure_is_told_and_the_chat_goes_on(provider: LoopbackProvider) -> None:
    provider.script(Fail(401), Say("Now I can."))
    done = process("chat", "--model", "openai:gpt-5", input="One?\nTwo?\n")
    assert "does not accept the key" in done.stderr
    assert "Now I can." in done.stdout
    assert KEY not in done.stderr + done.stdout
    assert done.returncode == 1


def test_ctrl_c_stops_the_answer_and_keeps_what_came(provider: LoopbackProvider, lines) -> None:
    gate = threading.Event()
    provider.script(Say(["Once", " upon"], hold_after=(1, gate)))
    with running("chat", "notes", "--model", "openai:gpt-5", stdin=-1) as chat:
        chat.stdin.write(b"Tell me.\n")
        chat.stdin.flush()
        seen = b""
        while b"Once" not in seen:
            piece = os.read(chat.stdout.fileno(), 1000)
            assert piece, chat.stderr.read()
            seen += piece
        interrupt(chat)
        gate.set()
    answer = lines("show", "notes")[-1]
    assert (answer["content"], answer["finish_reason"]) == ("Once", "stopped")


def test_json_tells_of_tools_too(provider: LoopbackProvider) -> None:
    provider.script(Say(calls=[("recall", {"query": "tea"})]), Say("You like tea."))
    out = process("chat", "notes", "--model", "openai:gpt-5", "--json", input="What?\n/branch\n/model\n").stdout
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == ["start", "turn", "tools", "result", "turn", "nothing", "model"]


def test_requests_are_listed_explained_and_shown(provider: LoopbackProvider, ok, lines) -> None:
    provider.script(Fail(503), Say("Yes.", prompt_tokens=1_234))
    process("chat", "notes", "--model", "responses:gpt-5", input="Well?\nAnd?\n")
    out = ok("requests", "notes")
    assert "1,234" in out
    assert "ModelUnavailable" in out
    assert "continued the previous answer" in " ".join(out.split())
    first, second = lines("requests", "notes")
    assert second["previous_response_id"] == first["response"]["id"]
    assert json.loads(ok("requests", "notes", "--body")) == provider.bodies[-1]
    assert "the message to answer" in ok("requests", "notes", "--why")
    assert len(lines("requests", "notes", "--turn", first["turn"])) == 1
    process("chat", "empty", input="\n")
    assert "No request to a model yet." in ok("requests", "empty")
