"""Options of the context in requests of other protocols, with the real SDKs: the field `palaver`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest

from palaver.server.settings import ServerSettings, read_settings
from palaver.testing.providers import LoopbackProvider
from tests.server.compat.conftest import claude_of, conversations, gpt_of
from tests.server.conftest import PATIENCE, Running, running

SHAPES = ("chat", "responses", "messages", "ui")
CHOSEN = {"palaver": {"context": {"policy": "last-20", "token_budget": 900}}}


def ask(server: Running, shape: str, name: str | None = "c", **body: Any) -> None:
    """Ask in one protocol, with more fields in the body."""
    headers = {} if name is None else {"X-Conversation-Id": name}
    said: Any = [{"role": "user", "content": "Hi"}]
    more: Any = {"extra_body": body, "extra_headers": headers}
    if shape == "chat":
        with gpt_of(server) as gpt:
            gpt.chat.completions.create(model="chat", messages=said, **more)
    elif shape == "responses":
        with gpt_of(server) as gpt:
            gpt.responses.create(model="chat", input="Hi", store=name is not None, **more)
    elif shape == "messages":
        with claude_of(server) as claude:
            claude.messages.create(model="chat", messages=said, max_tokens=99, **more)
    else:
        message = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
        posted = httpx.post(
            f"{server.url}/api/chat", json={"id": name, "messages": [message], **body}, timeout=PATIENCE
        )
        posted.raise_for_status()


def prompt_of(server: Running, name: str = "c") -> tuple[str, int]:
    """Policy and budget of the last prompt, from the record of the request."""

    async def read() -> tuple[str, int]:
        talk = await server.app.state.services.store.find(name)
        told = (await talk.requests())[-1].explanation
        return told["policy"], told["budget"]

    found: tuple[str, int] = server.do(read())
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_every_protocol_takes_options_of_the_context(server: Running, provider: LoopbackProvider, shape: str) -> None:
    ask(server, shape, **CHOSEN)
    policy, budget = prompt_of(server)
    assert (policy, budget <= 900) == ("last-20", True)
    assert "palaver" not in provider.bodies[-1]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mistake_is_refused_before_anything_is_stored(server: Running, shape: str) -> None:
    for wrong in ({"context": {"polcy": "last-20"}}, {"contxt": {}}, {"context": {"policy": "x"}}, 5):
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError, httpx.HTTPStatusError)) as refusal:
            ask(server, shape, palaver=wrong)
        assert refusal.value.response.status_code in (400, 422)
        assert "palaver" in refusal.value.response.text
    assert conversations(server) == 0


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_options_without_a_conversation_are_refused_not_ignored(server: Running, shape: str) -> None:
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as refusal:
        ask(server, shape, None, **CHOSEN)
    assert "needs a conversation" in refusal.value.response.text
    assert conversations(server) == 0


def test_counting_tokens_obeys_them(server: Running, claude: anthropic.Anthropic) -> None:
    said: Any = [{"role": "user", "content": "word " * 100}]
    for _ in range(8):
        claude.messages.create(model="chat", messages=said, max_tokens=9, extra_headers={"X-Conversation-Id": "c"})
    count = claude.messages.count_tokens
    more: Any = {"extra_headers": {"X-Conversation-Id": "c"}}
    whole = count(model="chat", messages=said, **more).input_tokens
    small = count(model="chat", messages=said, **more, extra_body={"palaver": {"context": {"token_budget": 300}}})
    assert small.input_tokens <= 300 < whole


def test_the_server_has_defaults_that_a_conversation_and_a_request_override(
    settings: Callable[..., ServerSettings],
) -> None:
    with running(settings(generate={"policy": "recent-chars"})) as server:
        ask(server, "chat")
        assert prompt_of(server) == ("recent-chars", 12_000)
        made: Any = {"key": "d", "settings": {"context": {"policy": "oldest-first"}}}
        httpx.post(f"{server.url}/api/conversations", json=made, timeout=PATIENCE).raise_for_status()
        ask(server, "chat", "d")
        assert prompt_of(server, "d") == ("oldest-first", 400_000)
        ask(server, "chat", "d", **CHOSEN)
        assert prompt_of(server, "d")[0] == "last-20"


def test_defaults_of_the_server_come_from_a_file_and_from_the_environment(tmp_path: Any) -> None:
    file = tmp_path / "palaver.toml"
    lines = ("[generate]", 'policy = "last-20"', "[workspaces.sales]", 'model = "m"', "context = {recent_turns = 3}")
    file.write_text("\n".join(lines))
    found = read_settings({}, str(file))
    assert (found.generate["policy"], found.workspaces["sales"]["context"]) == ("last-20", {"recent_turns": 3})
    found = read_settings({"PALAVER_GENERATE": '{"policy": "recent-chars"}'}, str(file))
    assert found.generate == {"policy": "recent-chars"}
