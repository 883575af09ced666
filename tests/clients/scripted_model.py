"""The model behind the server of the scenarios: what it says depends on the prompt alone, in each provider's format.

Scenarios run in other processes and cannot script it, so their messages say what they want:
`Say X`, `Spell X`, `Count to N`, `Fail with N`, `Fail once`, `the weather in X`, `Hand over`, `as JSON`,
`What did I say?`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from palaver.testing.providers import Fail, Say

PAUSE = 0.05  # seconds per word of a slow count, so that there is time to cancel it
PERSON = {"name": "Ada", "age": 36}


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a request to the model that the rules look at."""

    said: list[str]  # the user's texts, oldest first
    results: list[str]  # of the tools, after the last text of the user
    tools: list[str]


@dataclass(slots=True)
class ScriptedModel:
    failed: set[str] = field(default_factory=set)  # messages that were refused once

    def __call__(self, body: dict[str, Any]) -> Say | Fail:
        prompt = read_prompt(body)
        last = prompt.said[-1] if prompt.said else ""
        for pattern, answer in RULES:
            found = re.search(pattern, last)
            if found and (step := answer(self, prompt, found)) is not None:
                return step
        return Say("Yes.")


# ---- reading a request ---------------------------------------------------------------------------------------------


def read_prompt(body: dict[str, Any]) -> Prompt:
    said, results = [], []
    for role, text in _messages(body):
        if role == "user":
            said.append(text)
            results.clear()
        elif role == "tool":
            results.append(text)
    tools = [str(one.get("name") or one.get("function", {}).get("name")) for one in body.get("tools") or ()]
    return Prompt(said, results, tools)


def _messages(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    sent = body["input"] if "input" in body else body["messages"]
    if isinstance(sent, str):
        yield "user", sent
        return
    for one in sent:
        if one.get("type") == "function_call_output":
            yield "tool", _text(one["output"])
        elif isinstance(content := one.get("content"), list) and any(p.get("type") == "tool_result" for p in content):
            yield from (("tool", _text(p.get("content"))) for p in content if p["type"] == "tool_result")
        elif "role" in one:
            yield one["role"], _text(content)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text(part.get("text", part.get("content", ""))) for part in content)
    return "" if content is None else str(content)


# ---- what it says --------------------------------------------------------------------------------------------------

Rule = Callable[[ScriptedModel, Prompt, re.Match[str]], Say | Fail | None]


def _after_tools(_: ScriptedModel, prompt: Prompt, __: re.Match[str]) -> Say | None:
    return Say("Tools: " + "; ".join(prompt.results)) if prompt.results else None


def _call_tools(_: ScriptedModel, prompt: Prompt, found: re.Match[str]) -> Say | None:
    name = next((one for one in prompt.tools if "weather" in one), None)
    return None if name is None else Say("", calls=[(name, {"city": city}) for city in found[1].split(" and ")])


def _hand_over(_: ScriptedModel, prompt: Prompt, __: re.Match[str]) -> Say | None:
    name = next((one for one in prompt.tools if one.startswith("transfer_to")), None)
    return Say("", calls=[(name, {})]) if name else None


def _as_json(_: ScriptedModel, prompt: Prompt, __: re.Match[str]) -> Say:
    """An object as text, or in a call of the tool that some clients use instead."""
    name = next((one for one in prompt.tools if one in ("final_result", "Person", "person", "json")), None)
    return Say("", calls=[(name, PERSON)]) if name else Say('{"name": "Ada", "age": 36}')


def _count(_: ScriptedModel, __: Prompt, found: re.Match[str]) -> Say:
    return Say([f"{n} " for n in range(1, int(found[2]) + 1)], pause=PAUSE if found[1] == "slowly " else 0.0)


def _fail_once(model: ScriptedModel, prompt: Prompt, _: re.Match[str]) -> Say | Fail:
    if prompt.said[-1] in model.failed:
        return Say("At last.")
    model.failed.add(prompt.said[-1])
    return Fail(529, kind="overloaded_error")


RULES: tuple[tuple[str, Rule], ...] = (
    ("", _after_tools),
    (r"weather in ([\w ]+)", _call_tools),
    (r"Hand over", _hand_over),
    (r"as JSON", _as_json),
    (r"Count (slowly )?to (\d+)", _count),
    (r"Fail with (\d+)", lambda _, __, found: Fail(int(found[1]), kind="invalid_request_error")),
    (r"Fail once", _fail_once),
    (r"What did I say", lambda _, prompt, __: Say("You said: " + " | ".join(prompt.said[:-1]))),
    (r"Spell (.+)", lambda _, __, found: Say(list(found[1]), pause=PAUSE)),
    (r"Say (.+)", lambda _, __, found: Say(found[1])),
)
