"""A provider on this machine: speaks Chat Completions, Responses and Messages, and does what a script says.

    with LoopbackProvider() as provider:
        provider.script(Say("Rice."), Fail(429, retry_after=0.1))
        async with palaver.open("memory:", model="chat", models=provider.models()) as store: ...

For tests with the real SDKs: nothing leaves the machine, no key is needed, and `provider.received` has every request.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from palaver.ports.models import JsonObject

KEY = "loopback-key"
PATIENCE = 30.0  # seconds that a held answer waits at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request, as it came in."""

    path: str
    headers: dict[str, str]
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Say:
    """An answer: text in pieces, and tool calls as (name, arguments). The usage is counted roughly unless given."""

    text: str | Sequence[str] = ""
    calls: Sequence[tuple[str, Any]] = ()
    prompt_tokens: int | None = None
    finish: str | None = None
    cut_after: int | None = None  # hang up after this many pieces of text
    end_after: int | None = None  # end the stream in good order, but without its last words
    garble_after: int | None = None  # then send something that is not JSON
    hold: threading.Event | None = None  # wait for it before the first byte
    hold_after: tuple[int, threading.Event] | None = None  # wait in the middle, after this many pieces
    thinking: str = ""
    pause: float = 0.0  # seconds before each piece, as a model takes them

    @property
    def pieces(self) -> list[str]:
        if isinstance(self.text, str):
            return [f"{' ' if n else ''}{word}" for n, word in enumerate(self.text.split(" "))] if self.text else []
        return list(self.text)


@dataclass(frozen=True, slots=True)
class Fail:
    """A refusal with a status."""

    status: int = 500
    retry_after: float | None = None
    code: str | None = None
    message: str = "the words of the service"
    kind: str = "server_error"


@dataclass(frozen=True, slots=True)
class Garbage:
    """A 200 response that is not JSON."""

    text: str = "<html>not what you expect</html>"


Step = Say | Fail | Garbage | Callable[[JsonObject], "Say | Fail | Garbage"]


def too_long() -> Fail:
    return Fail(400, code="context_length_exceeded", message="prompt is too long", kind="invalid_request_error")


def previous_missing() -> Fail:
    message = "Previous response with id 'resp_x' not found."
    return Fail(400, code="previous_response_not_found", message=message, kind="invalid_request_error")


class LoopbackProvider:
    """Follows its script, one step per request; at its end, and without one, it says `otherwise`."""

    otherwise: Step = Say("Yes.")

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.asked = threading.Event()  # set with the first request
        self._steps: list[Step] = []
        self._count = 0
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def script(self, *steps: Step) -> None:
        self._steps.extend(steps)

    @property
    def bodies(self) -> list[JsonObject]:
        return [one.body for one in self.received]

    def models(self, model: str = "test", **options: Any) -> dict[str, JsonObject]:
        """Return a value for `palaver.open(models=…)`: the names chat, responses and messages, served from here."""
        of_openai = {"base_url": f"{self.url}/v1", "api_key": KEY, **options}
        return {
            "chat": {"model": f"openai:{model}", **of_openai},
            "responses": {"model": f"responses:{model}", **of_openai},
            "messages": {"model": f"anthropic:{model}", "base_url": self.url, "api_key": KEY, **options},
        }

    def next(self, received: Received) -> tuple[int, Say | Fail | Garbage]:
        with self._lock:
            self.received.append(received)
            self.asked.set()
            self._count += 1
            number = self._count
            step = self._steps.pop(0) if self._steps else self.otherwise
        return number, step(received.body) if callable(step) else step

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: LoopbackProvider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client hung up


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        number, step = self.server.provider.next(Received(path=self.path, headers=headers, body=body))
        form = FORMS.get(self.path)
        if form is None:
            step = Fail(404, message="no such path")
        if isinstance(step, Fail):
            self._fail(step)
        elif isinstance(step, Garbage) or form is None:
            self._whole(step.text.encode() if isinstance(step, Garbage) else b"")
        elif body.get("stream"):
            self._stream(form(number, body, step), step)
        else:
            if step.hold is not None:
                step.hold.wait(PATIENCE)
            self._whole(json.dumps(form(number, body, step).whole()).encode())

    def _fail(self, step: Fail) -> None:
        error = {"message": step.message, "type": step.kind, "code": step.code, "param": None}
        data = json.dumps({"type": "error", "error": error}).encode()
        self._whole(data, step.status, step.retry_after)

    def _whole(self, data: bytes, status: int = 200, retry_after: float | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        if retry_after is not None:
            self.send_header("retry-after", str(retry_after))
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, form: _Form, step: Say) -> None:
        if step.hold is not None:
            step.hold.wait(PATIENCE)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        told = 0
        for name, data in form.events():
            is_text = form.is_text(data)
            if is_text and step.cut_after == told:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            if is_text and step.end_after == told:
                break
            if is_text and step.garble_after == told:
                self._frame(f'event: {name}\ndata: {{"broken\n\n' if name else 'data: {"broken\n\n')
            if is_text and step.hold_after is not None and step.hold_after[0] == told:
                step.hold_after[1].wait(PATIENCE)
            if is_text and step.pause:
                time.sleep(step.pause)
            told += is_text
            text = data if isinstance(data, str) else json.dumps(data)
            self._frame((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _frame(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


# ---- the three formats ---------------------------------------------------------------------------------------------

Frame = tuple[str | None, Any]


@dataclass(slots=True)
class _Form(ABC):
    number: int
    request: JsonObject
    say: Say
    calls: list[tuple[str, str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = [(f"call_{self.number}_{n}", name, args) for n, (name, args) in enumerate(self.say.calls)]

    @property
    def model(self) -> str:
        return str(self.request["model"])

    @property
    def prompt(self) -> int:
        given = self.say.prompt_tokens
        return len(json.dumps(self.request)) // 4 if given is None else given

    @property
    def completion(self) -> int:
        return len(self.say.pieces) + 8 * len(self.calls)

    @abstractmethod
    def whole(self) -> JsonObject: ...

    @abstractmethod
    def events(self) -> Iterator[Frame]: ...

    @abstractmethod
    def is_text(self, data: Any) -> bool: ...


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


class ChatForm(_Form):
    def _usage(self) -> JsonObject:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def _reason(self) -> str:
        return self.say.finish or ("tool_calls" if self.calls else "stop")

    def whole(self) -> JsonObject:
        calls = [_chat_call(*call) for call in self.calls]
        message: JsonObject = {"role": "assistant", "content": "".join(self.say.pieces) or None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason()}
        head = {"id": f"chatcmpl-{self.number}", "object": "chat.completion", "created": 1, "model": self.model}
        return {**head, "choices": [choice], "usage": self._usage()}

    def _chunk(self, delta: JsonObject, reason: str | None = None) -> Frame:
        head = {"id": f"chatcmpl-{self.number}", "object": "chat.completion.chunk", "created": 1, "model": self.model}
        return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None}

    def events(self) -> Iterator[Frame]:
        yield self._chunk({"role": "assistant", "content": ""})
        for piece in self.say.pieces:
            yield self._chunk({"content": piece})
        for index, (id, name, arguments) in enumerate(self.calls):
            text = _text(arguments)
            start = {"name": name, "arguments": ""}
            yield self._chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": start}]})
            for half in (text[: len(text) // 2], text[len(text) // 2 :]):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
        yield self._chunk({}, self._reason())
        if (self.request.get("stream_options") or {}).get("include_usage"):
            _, last = self._chunk({})
            yield None, {**last, "choices": [], "usage": self._usage()}
        yield None, "[DONE]"

    def is_text(self, data: Any) -> bool:
        return isinstance(data, dict) and any(choice["delta"].get("content") for choice in data["choices"])


def _chat_call(id: str, name: str, arguments: Any) -> JsonObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": _text(arguments)}}


class ResponsesForm(_Form):
    def whole(self) -> JsonObject:
        cut = self.say.finish == "length"
        return {
            **self._head("incomplete" if cut else "completed"),
            "output": self._output(),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": self.prompt,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": self.completion,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.prompt + self.completion,
            },
        }

    def _head(self, status: str) -> JsonObject:
        return {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": 1,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self.request.get("instructions"),
            "metadata": {},
            "model": self.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": self.request.get("previous_response_id"),
            "tool_choice": "auto",
            "tools": [],
            "usage": None,
        }

    def _output(self) -> list[JsonObject]:
        items: list[JsonObject] = []
        if self.say.pieces:
            items.append(self._message("".join(self.say.pieces), "completed"))
        return items + [self._call(*call) for call in self.calls]

    def _message(self, text: str | None, status: str) -> JsonObject:
        parts = [] if text is None else [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
        head = {"id": f"msg_{self.number}", "type": "message", "status": status, "role": "assistant"}
        return {**head, "content": parts}

    def _call(self, id: str, name: str, arguments: Any) -> JsonObject:
        head = {"id": f"fc_{id}", "type": "function_call", "status": "completed"}
        return {**head, "call_id": id, "name": name, "arguments": _text(arguments)}

    def events(self) -> Iterator[Frame]:
        for n, (name, data) in enumerate(self._unnumbered()):
            yield name, {"type": name, "sequence_number": n, **data}

    def _unnumbered(self) -> Iterator[tuple[str, JsonObject]]:
        running = self._head("in_progress")
        yield "response.created", {"response": running}
        yield "response.in_progress", {"response": running}
        at = {"item_id": f"msg_{self.number}", "output_index": 0, "content_index": 0}
        pieces = self.say.pieces
        if pieces:
            yield "response.output_item.added", {"output_index": 0, "item": self._message(None, "in_progress")}
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield "response.content_part.added", {**at, "part": part}
            for piece in pieces:
                yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
            yield "response.output_text.done", {**at, "text": "".join(pieces), "logprobs": []}
            yield "response.content_part.done", {**at, "part": {**part, "text": "".join(pieces)}}
            whole = self._message("".join(pieces), "completed")
            yield "response.output_item.done", {"output_index": 0, "item": whole}
        for n, (id, name, arguments) in enumerate(self.calls, start=bool(pieces)):
            item, text = self._call(id, name, arguments), _text(arguments)
            place = {"item_id": item["id"], "output_index": n}
            yield "response.output_item.added", {"output_index": n, "item": {**item, "arguments": ""}}
            yield "response.function_call_arguments.delta", {**place, "delta": text}
            yield "response.function_call_arguments.done", {**place, "arguments": text, "name": name}
            yield "response.output_item.done", {"output_index": n, "item": item}
        last = "response.incomplete" if self.say.finish == "length" else "response.completed"
        yield last, {"response": self.whole()}

    def is_text(self, data: Any) -> bool:
        return bool(data["type"] == "response.output_text.delta")


class MessagesForm(_Form):
    def _reason(self) -> str:
        if self.say.finish == "length":
            return "max_tokens"
        return self.say.finish or ("tool_use" if self.calls else "end_turn")

    def _blocks(self) -> list[JsonObject]:
        blocks: list[JsonObject] = []
        if self.say.thinking:
            blocks.append({"type": "thinking", "thinking": self.say.thinking, "signature": f"sig_{self.number}"})
        if self.say.pieces:
            blocks.append({"type": "text", "text": "".join(self.say.pieces)})
        return blocks + [
            {"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in self.calls
        ]

    def _message(self, reason: str | None, blocks: list[JsonObject], written: int) -> JsonObject:
        usage = {
            "input_tokens": self.prompt,
            "output_tokens": written,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        }
        head = {"id": f"msg_{self.number}", "type": "message", "role": "assistant", "model": self.model}
        end = {"stop_reason": reason, "stop_sequence": self._sequence(reason)}
        return {**head, "content": blocks, **end, "usage": usage}

    def _sequence(self, reason: str | None) -> str | None:
        return str(self.request["stop_sequences"][0]) if reason == "stop_sequence" else None

    def whole(self) -> JsonObject:
        return self._message(self._reason(), self._blocks(), self.completion)

    def events(self) -> Iterator[Frame]:
        yield from ((data["type"], data) for data in self._unnamed())

    def _unnamed(self) -> Iterator[JsonObject]:
        yield {"type": "message_start", "message": self._message(None, [], 1)}
        yield {"type": "ping"}
        for index, block in enumerate(self._blocks()):
            yield {"type": "content_block_start", "index": index, "content_block": _emptied(block)}
            for delta in self._deltas(block):
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        end = {"stop_reason": self._reason(), "stop_sequence": self._sequence(self._reason())}
        yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": self.completion}}
        yield {"type": "message_stop"}

    def _deltas(self, block: JsonObject) -> Iterator[JsonObject]:
        if block["type"] == "text":
            yield from ({"type": "text_delta", "text": piece} for piece in self.say.pieces)
        elif block["type"] == "thinking":
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
            yield {"type": "signature_delta", "signature": block["signature"]}
        else:
            text = _text(block["input"])
            for half in (text[: len(text) // 2], text[len(text) // 2 :]):
                yield {"type": "input_json_delta", "partial_json": half}

    def is_text(self, data: Any) -> bool:
        return bool(data["type"] == "content_block_delta" and data["delta"]["type"] == "text_delta")


def _emptied(block: JsonObject) -> JsonObject:
    if block["type"] == "text":
        return {"type": "text", "text": ""}
    if block["type"] == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {**block, "input": {}}


FORMS: dict[str, Callable[[int, JsonObject, Say], _Form]] = {
    "/v1/chat/completions": ChatForm,
    "/v1/responses": ResponsesForm,
    "/v1/messages": MessagesForm,
}
