"""OpenAI's Responses: what its clients send, and how an answer is told to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.core.identity import canonical_json
from palaver.generation.events import Answered, ToolsPlanned, TurnOpened
from palaver.model import ToolCall
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server.compat import openai_items
from palaver.server.compat.replay import Beat, Cut, Sum
from palaver.server.compat.request import (
    MAX_TOOLS,
    Ask,
    arguments_text,
    bad,
    common_settings,
    flag_in,
    format_in,
    listed,
    name_in,
    object_in,
    optional_text,
    own_settings,
    refuse,
    spec_in,
    text_in,
)

DECIDED = frozenset(
    "model input instructions previous_response_id conversation store stream stream_options tools tool_choice metadata "
    "background include truncation context_management prompt".split()
)
COMMON = {
    "temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip
# What a response repeats of its request, and what it says where the request said nothing.
ECHOED: Mapping[str, Any] = {
    "instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0, "max_output_tokens": None,
    "max_tool_calls": None, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}}, "reasoning": None, "truncation": "disabled", "top_logprobs": 0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "store": True, "background": False, "service_tier": "default",
    "safety_identifier": None, "prompt_cache_key": None, "user": None, "previous_response_id": None,
}  # fmt: skip
MOST_ECHOED = 32_000  # characters of it that are kept
PREFIX = "resp_"
FIRST_FRAMES = 4  # they are the same in every telling: created, in progress, the message, its text


# ---- what comes in -------------------------------------------------------------------------------------------------


def ask_of(body: Mapping[str, Any]) -> Ask:
    """From the body of a request. Raises InvalidInput, which names the field."""
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        raise bad("previous_response_id", "cannot be used together with conversation")
    refuse(body, ("prompt", "top_logprobs"))
    given = body.get("input")
    entries: Any = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    said = openai_items.said_of(entries)
    if not said:
        raise bad("input", "must hold something new")
    may_call, must_call = _choice(body.get("tool_choice"))
    return Ask(
        shape="openai-responses",
        model=text_in("model", body.get("model")),
        said=said,
        instructions=_instructions(body, entries),
        tools=tuple(_tool(one) for one in listed("tools", body.get("tools") or [], MAX_TOOLS)),
        may_call=may_call,
        must_call=must_call,
        common=common_settings(body, COMMON),
        own=own_settings(body, DECIDED),
        format=format_in("text.format", object_in("text", body.get("text")).get("format")),
        stream=flag_in("stream", body.get("stream")),
        conversation=_conversation(body),
        previous=_previous(body.get("previous_response_id")),
        store=_stored(body),
        kept={"response": echo_of(body)},
    )


def _instructions(body: Mapping[str, Any], entries: Any) -> str | None:
    given = [optional_text("instructions", body.get("instructions")), *openai_items.instructions_of(entries)]
    return "\n\n".join(text for text in given if text) or None


def _conversation(body: Mapping[str, Any]) -> str | None:
    given, metadata = body.get("conversation"), object_in("metadata", body.get("metadata"))
    if given is not None:
        return name_in("conversation", given.get("id") if isinstance(given, Mapping) else given)
    named = metadata.get("conversation_id")
    return None if named is None else name_in("metadata.conversation_id", named)


def _stored(body: Mapping[str, Any]) -> bool:
    stored = flag_in("store", body.get("store"), usual=True)
    if not stored and body.get("previous_response_id") is not None:
        raise bad("store", "must not be false here: what goes on from a stored response is stored with it")
    if flag_in("background", body.get("background")) and not stored:
        raise bad("background", "needs store: nobody could fetch the answer")
    return stored


def _previous(given: Any) -> str | None:
    return None if given is None else text_in("previous_response_id", given).removeprefix(PREFIX)


def _choice(given: Any) -> tuple[bool, bool | str]:
    if given in (None, "auto"):
        return True, False
    if given in ("none", "required"):
        return given == "required", given == "required"
    if isinstance(given, Mapping) and given.get("type") == "function":
        return True, text_in("tool_choice.name", given.get("name"))
    raise bad("tool_choice", "must be none, auto, required or a function")


def _tool(one: Mapping[str, Any]) -> Any:
    if one.get("type") != "function":
        raise bad("tools", "must be functions")
    return spec_in("tools", one.get("name"), one.get("description"), one.get("parameters"), one.get("strict"))


def echo_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request its response repeats. It is stored with the message, so there is a limit to it."""
    echo = {name: body[name] for name in (*ECHOED, "model") if body.get(name) is not None}
    for name in ("tools", "instructions", "text"):
        if len(canonical_json(echo)) > MOST_ECHOED:
            echo.pop(name, None)
    return echo


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Frames:
    """An answer as the events of a response, numbered. `number` is that of the next one."""

    id: str
    created: int
    conversation: str | None
    echo: Mapping[str, Any]
    number: int = 0
    output: list[dict[str, Any]] = field(default_factory=list)
    sum: Sum = field(default_factory=Sum)
    status: str = "in_progress"
    error: dict[str, Any] | None = None
    _turn: str = ""
    _text: list[str] | None = None  # of the message that is open
    _thought: list[str] | None = None

    # ---- the object

    def response(self) -> dict[str, Any]:
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(self.sum.reason)
        details = {"reason": reason} if self.status == "incomplete" else None
        conversation = None if self.conversation is None else {"id": f"conv_{self.conversation}"}
        return {
            "id": f"{PREFIX}{self.id}",
            "object": "response",
            "created_at": self.created,
            "completed_at": self.created if self.status == "completed" else None,
            "status": self.status,
            "error": self.error,
            "incomplete_details": details,
            **{name: self.echo.get(name, usual) for name, usual in ECHOED.items()},
            "model": self.echo.get("model", ""),
            "output": list(self.output),
            "conversation": conversation,
            "usage": _usage(self.sum) if self.status != "in_progress" else None,
        }

    # ---- the events

    def begin(self) -> list[Any]:
        return [self._about("response.created"), self._about("response.in_progress")]

    def take(self, beat: Beat) -> list[Any]:
        self.sum.take(beat)
        if isinstance(beat, TurnOpened):
            self._turn = beat.turn.id
            return []
        if isinstance(beat, ReasoningDelta):
            return self._thinks(beat.text)
        if isinstance(beat, TextDelta):
            return self._says(beat.text)
        if isinstance(beat, ToolsPlanned):
            return self._closed()
        if isinstance(beat, Answered):
            return self._answered(beat)
        return self._cut() if isinstance(beat, Cut) else []

    def fail(self, error: Mapping[str, Any]) -> list[Any]:
        """The end of an answer that broke off."""
        self.status, self.error = "failed", {"code": "server_error", "message": error["message"]}
        return [*self._closed("incomplete"), self._about("response.failed")]

    def _cut(self) -> list[Any]:
        return self.fail({"message": "The answer was cut off"})

    def _answered(self, beat: Answered) -> list[Any]:
        frames = self._closed()
        for n, call in enumerate(beat.turn.tool_calls):
            if call in self.sum.calls:
                frames += self._call(beat.turn.id, n, call)
        if self.sum.stopped:
            # The service documents no event for it. Clients know this one as an end that is not a whole answer.
            self.status = "cancelled"
            return [*frames, self._about("response.incomplete")]
        self.status = "incomplete" if self.sum.reason in ("length", "content_filter") else "completed"
        return [*frames, self._about(f"response.{self.status}")]

    def _says(self, text: str) -> list[Any]:
        frames = self._thought_done()
        if self._text is None:
            self._text = []
            item = self._message("in_progress", [])
            self.output.append(item)
            part = openai_items.output_text("")
            frames += [self._item("added", item), self._frame("content_part.added", **self._place(), part=part)]
        self._text.append(text)
        return [*frames, self._frame("output_text.delta", **self._place(), delta=text, logprobs=[])]

    def _closed(self, status: str = "completed") -> list[Any]:
        """The ends of what is open."""
        frames = self._thought_done()
        if self._text is None:
            return frames
        text, self._text = "".join(self._text), None
        part = openai_items.output_text(text)
        self.output[-1] = item = self._message(status, [part])
        return [
            *frames,
            self._frame("output_text.done", **self._place(), text=text, logprobs=[]),
            self._frame("content_part.done", **self._place(), part=part),
            self._item("done", item),
        ]

    def _thinks(self, text: str) -> list[Any]:
        frames: list[Any] = []
        if self._thought is None:
            frames, self._thought = self._closed(), []
            item = self._reasoning([])
            self.output.append(item)
            part = {"type": "summary_text", "text": ""}
            frames += [
                self._item("added", item),
                self._frame("reasoning_summary_part.added", **self._aside(), part=part),
            ]
        self._thought.append(text)
        return [*frames, self._frame("reasoning_summary_text.delta", **self._aside(), delta=text)]

    def _thought_done(self) -> list[Any]:
        if self._thought is None:
            return []
        text, self._thought = "".join(self._thought), None
        part = {"type": "summary_text", "text": text}
        self.output[-1] = item = self._reasoning([part])
        return [
            self._frame("reasoning_summary_text.done", **self._aside(), text=text),
            self._frame("reasoning_summary_part.done", **self._aside(), part=part),
            self._item("done", item),
        ]

    def _call(self, turn: str, n: int, call: ToolCall) -> list[Any]:
        item, arguments = openai_items.call_item(turn, n, call), arguments_text(call.arguments)
        self.output.append(item)
        at = {"item_id": item["id"], "output_index": len(self.output) - 1}
        return [
            self._item("added", {**item, "arguments": "", "status": "in_progress"}),
            self._frame("function_call_arguments.delta", **at, delta=arguments),
            self._frame("function_call_arguments.done", **at, name=call.name, arguments=arguments),
            self._item("done", item),
        ]

    def _message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": f"msg_{self._turn or self.id}", "type": "message", "status": status}
        return {**head, "role": "assistant", "content": content}

    def _reasoning(self, summary: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": f"rs_{self._turn or self.id}", "type": "reasoning", "summary": summary}

    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._turn or self.id}", "output_index": len(self.output) - 1, "content_index": 0}

    def _aside(self) -> dict[str, Any]:
        return {"item_id": f"rs_{self._turn or self.id}", "output_index": len(self.output) - 1, "summary_index": 0}

    def _item(self, what: str, item: Mapping[str, Any]) -> dict[str, Any]:
        return self._frame(f"output_item.{what}", output_index=len(self.output) - 1, item=item)

    def _about(self, kind: str) -> dict[str, Any]:
        return self._frame(kind.removeprefix("response."), response=self.response())

    def _frame(self, kind: str, **fields: Any) -> dict[str, Any]:
        self.number += 1
        return {"type": f"response.{kind}", "sequence_number": self.number - 1, **fields}


@dataclass(slots=True)
class Rest:
    """What a client has not heard yet of frames that were told before, after the one with that number."""

    frames: Frames
    after: int
    exact: bool

    def begin(self) -> list[Any]:
        return self._new(self.frames.begin())

    def take(self, beat: Beat) -> list[Any]:
        return self._new(self.frames.take(beat))

    def fail(self, error: Mapping[str, Any]) -> list[Any]:
        return self._new(self.frames.fail(error))

    def _new(self, told: list[Any]) -> list[Any]:
        if self.exact or self.after < FIRST_FRAMES:
            return [one for one in told if one["sequence_number"] > self.after]
        # Told from the log, where the pieces of the text are others than they were: the ends have all of it.
        ends = [one for one in told if one["type"].endswith((".done", ".completed", ".incomplete", ".failed"))]
        numbered = [{**one, "sequence_number": self.after + n} for n, one in enumerate(ends, 1)]
        self.after += len(numbered)
        return numbered


def response(frames: Frames, beats: list[Beat]) -> dict[str, Any]:
    """An answer as one object, whole or as far as it came."""
    for beat in beats:
        frames.take(beat)
    if frames._text is not None:
        frames._closed("in_progress")
    return frames.response()


def _usage(sum: Sum) -> dict[str, Any]:
    return {
        "input_tokens": sum.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sum.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum.prompt + sum.completion,
    }
