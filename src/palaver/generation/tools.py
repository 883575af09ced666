"""Tools that a model may call: made from Python functions, and run side by side.

A tool returns text or any JSON value, or a `ToolOutput` with the sources that it used, which are stored on the answer.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, get_type_hints, overload

import msgspec

from palaver.core.identity import canonical_json
from palaver.core.turn_draft import encode_sources
from palaver.core.validation import MAX_CONTENT, MAX_FILE, clean_json, replace_unstorable
from palaver.errors import InvalidInput, TooLarge
from palaver.model import ToolCall
from palaver.ports.models import JsonObject, ToolSpec

MAX_ERROR = 500  # characters of an exception that the model sees
_NAME = re.compile(r"^[\w./:-]{1,128}$")  # as MCP servers have them; providers get a name that they accept
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """The result of a tool with its sources: objects such as `{"url": …}` or `{"turn": …}`."""

    content: object
    sources: Sequence[Mapping[str, object]] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that a model may call.

    - `name`, `description`, `parameters`: the tool as the model sees it. `parameters` is a JSON schema.
    - `run`: the function that runs for a call.
    - `timeout`: the seconds that a call may take; None for `tool_timeout` of `GenerateSettings`.
    - `alone`: whether a call never runs at the same time as another call of the same round.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    run: Callable[[JsonObject], Awaitable[object]]
    timeout: float | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise InvalidInput(
                "tools", f"{self.name[:80]!r} is not a valid tool name: use up to 128 letters, digits and _ - . / :"
            )

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it: name, description and the JSON schema of its arguments."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)


class ToolSource(Protocol):
    """An object with tools of its own, such as `MCPTools`."""

    @property
    def tools(self) -> Sequence[Tool]: ...


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call: the result for the model, whether it is an error, and the sources."""

    call: ToolCall
    content: object
    is_error: bool = False
    sources: tuple[Mapping[str, object], ...] = ()


# ---- from a function -----------------------------------------------------------------------------------------------


@overload
def tool(
    function: Callable[..., object], *, name: str | None = None, timeout: float | None = None, alone: bool = False
) -> Tool: ...


@overload
def tool(
    function: None = None, *, name: str | None = None, timeout: float | None = None, alone: bool = False
) -> Callable[[Callable[..., object]], Tool]: ...


def tool(
    function: Callable[..., object] | None = None,
    *,
    name: str | None = None,
    timeout: float | None = None,
    alone: bool = False,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool from a function: `@tool`, `@tool(timeout=5)` or `tool(function)`.

    The schema comes from the type hints, and the description from the docstring. A section "Args:" in the docstring
    describes the arguments. A plain function runs in a thread, an async one on the event loop.

    - `name`: the name of the tool; by default that of the function.
    - `timeout`, `alone`: as in `Tool`.
    """
    if function is None:
        return lambda wrapped: tool(wrapped, name=name, timeout=timeout, alone=alone)
    name = name or _name_of(function)
    description, arguments = _read_docstring(function)
    model = _make_arguments_type(function, arguments)

    async def run(given: JsonObject) -> object:
        values = msgspec.structs.asdict(msgspec.convert(given, model, strict=False))
        if inspect.iscoroutinefunction(function):
            return await function(**values)
        return await asyncio.to_thread(_call, function, values)

    return Tool(
        name=name,
        description=description,
        parameters=_schema(model),
        run=run,
        timeout=timeout,
        alone=alone,
    )


def _name_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", None)
    if name is None:  # such as functools.partial, which has no type hints either
        raise InvalidInput("tools", f"must be a function, not {type(function).__name__}: wrap it in a named function")
    if name == "<lambda>":
        raise InvalidInput("tools", "a tool needs a name: pass a named function or palaver.tool(f, name=…)")
    return str(name)


def _call(function: Callable[..., object], values: Mapping[str, object]) -> object:
    try:
        return function(**values)
    except StopIteration:  # a future cannot hold one: awaiting it would never end
        raise RuntimeError("StopIteration") from None


def _make_arguments_type(function: Callable[..., object], described: Mapping[str, str]) -> type[msgspec.Struct]:
    """Make a struct type that validates the arguments of a function."""
    called = getattr(function, "__name__", "function")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as problem:
        raise InvalidInput("tools", f"{called}: the type {problem.name!r} is not defined") from None
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput(
                "tools", f"{called} has *args, **kwargs or positional-only parameters: use named parameters only"
            )
        kind = hints.get(parameter.name, Any)
        if parameter.name in described:
            kind = Annotated[kind, msgspec.Meta(description=described[parameter.name])]
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, kind, _default(parameter.default)) if has_default else (parameter.name, kind))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _default(value: object) -> object:
    return msgspec.field(default_factory=lambda: value) if isinstance(value, list | dict | set) else value


def _schema(model: type[msgspec.Struct]) -> JsonObject:
    (reference,), parts = msgspec.json.schema_components([model])
    own = parts.pop("Arguments") if "$ref" in reference else reference
    own.pop("title", None)
    return {**own, "$defs": parts} if parts else own


def _read_docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the description of a function and of its arguments."""
    text = inspect.getdoc(function) or ""
    before, *after = _SECTION.split(text, maxsplit=1)
    found = (_ARGUMENT.match(line) for line in after[0].splitlines()) if after else ()
    name = getattr(function, "__name__", "")
    return before.strip() or name.replace("_", " "), {match[1]: match[2].strip() for match in found if match}


# ---- the tools of one answer ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one answer, by name."""

    tools: Mapping[str, Tool] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Iterable[object], built_in: Mapping[str, Tool]) -> Toolbox:
        """Collect tools, functions, names of built-in tools, and objects with a list `tools`."""
        found: dict[str, Tool] = {}
        for one in _resolve_tools(given, built_in):
            if one.name in found:
                raise InvalidInput("tools", f"two tools have the name {one.name!r}")
            found[one.name] = one
        return cls(found)

    def without(self, names: Collection[str]) -> Toolbox:
        return Toolbox({name: one for name, one in self.tools.items() if name not in names}) if names else self

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(one.spec for one in self.tools.values())

    def __bool__(self) -> bool:
        return bool(self.tools)

    async def run(
        self,
        calls: Sequence[ToolCall],
        seconds: float,
        done: Callable[[CallOutcome], None],
        around: Callable[[ToolCall], AbstractContextManager[object]] = lambda _: nullcontext(),
    ) -> list[CallOutcome]:
        """Run the calls concurrently where they may, and return the outcomes in order. An error becomes an outcome."""

        async def run_one(call: ToolCall) -> CallOutcome:
            with around(call):
                outcome = await self._run(call, self._timeout(call, seconds))
            done(outcome)
            return outcome

        together = [call for call in calls if not self._is_alone(call)]
        results = dict(zip([c.id for c in together], await asyncio.gather(*map(run_one, together)), strict=True))
        for call in calls:
            if call.id not in results:
                results[call.id] = await run_one(call)
        return [results[call.id] for call in calls]

    def longest(self, calls: Sequence[ToolCall], seconds: float) -> float:
        """Return how many seconds a round of these calls may take."""
        each = [(self._is_alone(call), self._timeout(call, seconds)) for call in calls]
        return max((t for alone, t in each if not alone), default=0.0) + sum(t for alone, t in each if alone)

    def _is_alone(self, call: ToolCall) -> bool:
        return call.name in self.tools and self.tools[call.name].alone

    def _timeout(self, call: ToolCall, seconds: float) -> float:
        own = self.tools[call.name].timeout if call.name in self.tools else None
        return seconds if own is None else own

    async def _run(self, call: ToolCall, seconds: float) -> CallOutcome:
        wanted = self.tools.get(call.name)
        if wanted is None:
            known = ", ".join(self.tools) or "none"
            return CallOutcome(call, f"There is no tool {call.name!r}. There are: {known}.", is_error=True)
        if not isinstance(call.arguments, Mapping):
            return CallOutcome(call, "The arguments are not a JSON object.", is_error=True)
        try:
            async with asyncio.timeout(seconds) as clock:
                return _make_outcome(call, await wanted.run(dict(call.arguments)))
        except TimeoutError as problem:
            if not clock.expired():  # raised by the tool itself
                return _make_failure(call, problem)
            return CallOutcome(call, f"The tool took longer than {seconds:g} s and was stopped.", is_error=True)
        except msgspec.ValidationError as problem:
            return CallOutcome(call, f"The arguments are not valid: {str(problem)[:MAX_ERROR]}", is_error=True)
        except asyncio.CancelledError as problem:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the answer is being stopped, not a task inside the tool
                raise
            return _make_failure(call, problem)
        except (Exception, SystemExit) as problem:  # any error of a tool is sent to the model, and the answer continues
            return _make_failure(call, problem)


def _resolve_tools(given: Iterable[object], built_in: Mapping[str, Tool]) -> Iterable[Tool]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput("tools", f"must be a list, not {type(given).__name__}: write tools=[…]")
    for one in given:
        if isinstance(one, Tool):
            yield one
        elif isinstance(one, str):
            if one not in built_in:
                raise InvalidInput("tools", f"{one!r} is not a built-in tool; known tools: {', '.join(built_in)}")
            yield built_in[one]
        elif hasattr(one, "tools"):
            yield from _resolve_tools(one.tools, built_in)
        elif callable(one):
            yield tool(one)
        else:
            raise InvalidInput(
                "tools", f"must be functions, tools or names of built-in tools, not {type(one).__name__}"
            )


def _make_outcome(call: ToolCall, value: object) -> CallOutcome:
    """Check the result of a tool. Raises InvalidInput or TooLarge if it cannot be stored."""
    output = value if isinstance(value, ToolOutput) else ToolOutput(content=value)
    content = output.content
    if isinstance(content, str):
        content = replace_unstorable(content)
        size = len(content.encode())
        if size > MAX_FILE:
            raise TooLarge("result", size=size, limit=MAX_FILE, unit="bytes")
    else:
        clean_json("result", content)
    encode_sources(output.sources, MAX_CONTENT)
    return CallOutcome(call, content, output.is_error, tuple(output.sources))


def _make_failure(call: ToolCall, problem: BaseException) -> CallOutcome:
    words = replace_unstorable(str(problem)[:MAX_ERROR])
    return CallOutcome(call, f"The tool failed: {type(problem).__name__}: {words}", is_error=True)


def text_of(content: object) -> str:
    return content if isinstance(content, str) else canonical_json(content)


def shorten_result(text: str, most: int, where: str) -> str:
    """Cut a result to `most` characters, with a note that says how long it is and where the whole of it is."""
    mark = f"\n[… cut here: {len(text):,} characters in all{where} …]"
    return text[: max(0, most - len(mark))] + mark[:most]
