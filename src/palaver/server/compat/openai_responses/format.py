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
from palaver.server.compat.replay import AnswerEvent, AnswerTotals, Interrupted
from palaver.server.compat.request import (
    MAX_TOOLS,
    ClientRequest,
    arguments_text,
    common_settings,
    invalid,
    optional_text,
    own_settings,
    parse_format,
    parse_tool,
    reject_unsupported,
    require_flag,
    require_list,
    require_name,
    require_object,
    require_text,
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


def parse_request(body: Mapping[str, Any]) -> ClientRequest:
    """From the body of a request. Raises InvalidInput, which names the field."""
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        raise invalid("previous_response_id", "cannot be used together with conversation")
    reject_unsupported(body, ("prompt", "top_logprobs"))
    given = body.get("input")
    entries: Any = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    said = openai_items.parse_items(entries)
    if not said:
        raise invalid("input", "must hold something new")
    may_call, must_call = _parse_tool_choice(body.get("tool_choice"))
    return ClientRequest(
        shape="openai-responses",
        model=require_text("model", body.get("model")),
        said=said,
        instructions=_collect_instructions(body, entries),
        tools=tuple(_parse_tool(one) for one in require_list("tools", body.get("tools") or [], MAX_TOOLS)),
        may_call=may_call,
        must_call=must_call,
        common=common_settings(body, COMMON),
        own=own_settings(body, DECIDED),
        format=parse_format("text.format", require_object("text", body.get("text")).get("format")),
        stream=require_flag("stream", body.get("stream")),
        conversation=_conversation_id(body),
        previous=_previous(body.get("previous_response_id")),
        store=_stored(body),
        kept={"response": echo_of(body)},
    )


def _collect_instructions(body: Mapping[str, Any], entries: Any) -> str | None:
    given = [optional_text("instructions", body.get("instructions")), *openai_items.collect_instructions(entries)]
    return "\n\n".join(text for text in given if text) or None


def _conversation_id(body: Mapping[str, Any]) -> str | None:
    given, metadata = body.get("conversation"), require_object("metadata", body.get("metadata"))
    if given is not None:
        return require_name("conversation", given.get("id") if isinstance(given, Mapping) else given)
    named = metadata.get("conversation_id")
    return None if named is None else require_name("metadata.conversation_id", named)


def _stored(body: Mapping[str, Any]) -> bool:
    stored = require_flag("store", body.get("store"), usual=True)
    if not stored and body.get("previous_response_id") is not None:
        raise invalid("store", "must not be false here: what goes on from a stored response is stored with it")
    if require_flag("background", body.get("background")) and not stored:
        raise invalid("background", "needs store: nobody could fetch the answer")
    return stored


def _previous(given: Any) -> str | None:
    return None if given is None else require_text("previous_response_id", given).removeprefix(PREFIX)


def _parse_tool_choice(given: Any) -> tuple[bool, bool | str]:
    if given in (None, "auto"):
        return True, False
    if given in ("none", "required"):
        return given == "required", given == "required"
    if isinstance(given, Mapping) and given.get("type") == "function":
        return True, require_text("tool_choice.name", given.get("name"))
    raise invalid("tool_choice", "must be none, auto, required or a function")


def _parse_tool(one: Mapping[str, Any]) -> Any:
    if one.get("type") != "function":
        raise invalid("tools", "must be functions")
    return parse_tool("tools", one.get("name"), one.get("description"), one.get("parameters"), one.get("strict"))


def echo_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request its response repeats. It is stored with the message, so there is a limit to it."""
    echo = {name: body[name] for name in (*ECHOED, "model") if body.get(name) is not None}
    for name in ("tools", "instructions", "text"):
        if len(canonical_json(echo)) > MOST_ECHOED:
            echo.pop(name, None)
    return echo


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ResponseFrames:
    """An answer as the events of a response, numbered. `number` is that of the next one."""

    id: str
    created: int
    conversation: str | None
    echo: Mapping[str, Any]
    number: int = 0
    output: list[dict[str, Any]] = field(default_factory=list)
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    status: str = "in_progress"
    error: dict[str, Any] | None = None
    _turn: str = ""
    _text: list[str] | None = None  # of the message that is open
    _thought: list[str] | None = None

    # ---- the object

    def response(self) -> dict[str, Any]:
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(self.totals.reason)
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
            "usage": _usage(self.totals) if self.status != "in_progress" else None,
        }

    # ---- the events

    def start(self) -> list[Any]:
        return [self._about("response.created"), self._about("response.in_progress")]

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        if isinstance(event, TurnOpened):
            self._turn = event.turn.id
            return []
        if isinstance(event, ReasoningDelta):
            return self._reasoning_delta(event.text)
        if isinstance(event, TextDelta):
            return self._output_delta(event.text)
        if isinstance(event, ToolsPlanned):
            return self._close_open()
        if isinstance(event, Answered):
            return self._finish(event)
        return self._interrupted() if isinstance(event, Interrupted) else []

    def encode_error(self, error: Mapping[str, Any]) -> list[Any]:
        """The end of an answer that broke off."""
        self.status, self.error = "failed", {"code": "server_error", "message": error["message"]}
        return [*self._close_open("incomplete"), self._about("response.failed")]

    def _interrupted(self) -> list[Any]:
        return self.encode_error({"message": "The answer was cut off"})

    def _finish(self, event: Answered) -> list[Any]:
        frames = self._close_open()
        for n, call in enumerate(event.turn.tool_calls):
            if call in self.totals.calls:
                frames += self._encode_call(event.turn.id, n, call)
        if self.totals.stopped:
            # The service documents no event for it. Clients know this one as an end that is not a whole answer.
            self.status = "cancelled"
            return [*frames, self._about("response.incomplete")]
        self.status = "incomplete" if self.totals.reason in ("length", "content_filter") else "completed"
        return [*frames, self._about(f"response.{self.status}")]

    def _output_delta(self, text: str) -> list[Any]:
        frames = self._close_reasoning()
        if self._text is None:
            self._text = []
            item = self._message("in_progress", [])
            self.output.append(item)
            part = openai_items.output_text("")
            frames += [self._item("added", item), self._frame("content_part.added", **self._place(), part=part)]
        self._text.append(text)
        return [*frames, self._frame("output_text.delta", **self._place(), delta=text, logprobs=[])]

    def _close_open(self, status: str = "completed") -> list[Any]:
        """The ends of what is open."""
        frames = self._close_reasoning()
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

    def _reasoning_delta(self, text: str) -> list[Any]:
        frames: list[Any] = []
        if self._thought is None:
            frames, self._thought = self._close_open(), []
            item = self._reasoning([])
            self.output.append(item)
            part = {"type": "summary_text", "text": ""}
            frames += [
                self._item("added", item),
                self._frame("reasoning_summary_part.added", **self._aside(), part=part),
            ]
        self._thought.append(text)
        return [*frames, self._frame("reasoning_summary_text.delta", **self._aside(), delta=text)]

    def _close_reasoning(self) -> list[Any]:
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

    def _encode_call(self, turn: str, n: int, call: ToolCall) -> list[Any]:
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
class ResumedFrames:
    """What a client has not heard yet of frames that were told before, after the one with that number."""

    frames: ResponseFrames
    after: int
    exact: bool

    def start(self) -> list[Any]:
        return self._new(self.frames.start())

    def encode(self, event: AnswerEvent) -> list[Any]:
        return self._new(self.frames.encode(event))

    def encode_error(self, error: Mapping[str, Any]) -> list[Any]:
        return self._new(self.frames.encode_error(error))

    def _new(self, told: list[Any]) -> list[Any]:
        if self.exact or self.after < FIRST_FRAMES:
            return [one for one in told if one["sequence_number"] > self.after]
        # Told from the log, where the pieces of the text are others than they were: the ends have all of it.
        ends = [one for one in told if one["type"].endswith((".done", ".completed", ".incomplete", ".failed"))]
        numbered = [{**one, "sequence_number": self.after + n} for n, one in enumerate(ends, 1)]
        self.after += len(numbered)
        return numbered


def response(frames: ResponseFrames, events: list[AnswerEvent]) -> dict[str, Any]:
    """An answer as one object, whole or as far as it came."""
    for event in events:
        frames.encode(event)
    if frames._text is not None:
        frames._close_open("in_progress")
    return frames.response()


def _usage(totals: AnswerTotals) -> dict[str, Any]:
    return {
        "input_tokens": totals.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": totals.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": totals.prompt + totals.completion,
    }
