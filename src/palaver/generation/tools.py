"""Tools: Python functions that a model may call, made from their type hints and docstrings, and the running of them.

A tool returns text or any JSON value; with `ToolOutput` also the sources that it used, which are stored on the answer.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, get_type_hints

import msgspec

from palaver.core.identity import canonical_json
from palaver.core.turn_draft import encode_sources
from palaver.core.validation import MAX_CONTENT, MAX_FILE, clean_json, replace_unstorable
from palaver.errors import InvalidInput, TooLarge
from palaver.model import ToolCall
from palaver.ports.models import ToolSpec

MAX_ERROR = 500  # characters of an exception that the model gets to see
_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a tool found, and where: each source is an object such as {"url": …} or {"turn": …}."""

    content: Any
    sources: Sequence[Mapping[str, Any]] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool: what the model is told of it, and what runs. `timeout` is in seconds; None: the settings' own.

    With `alone`, it never runs beside another call of the same round.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[dict[str, Any]], Awaitable[Any]]
    timeout: float | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise InvalidInput("tools", f"{self.name[:80]!r} is no name for a tool: letters, digits, _ and -, up to 64")

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)


class ToolSource(Protocol):
    """An object with tools of its own, such as `MCPTools`."""

    @property
    def tools(self) -> Sequence[Tool]: ...


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a call ended: what the model gets, whether it is an error, and the sources."""

    call: ToolCall
    content: Any
    is_error: bool = False
    sources: tuple[Mapping[str, Any], ...] = ()


# ---- from a function -----------------------------------------------------------------------------------------------


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    timeout: float | None = None,
    alone: bool = False,
) -> Any:
    """A tool from a function, as a decorator or by hand.

    The schema comes from the type hints, the description from the docstring; a section "Args:" describes the arguments.
    A plain function runs in a thread, an async one on the event loop.
    """
    if function is None:
        return lambda wrapped: tool(wrapped, name=name, timeout=timeout, alone=alone)
    described, arguments = _read_docstring(function)
    model = _arguments_of(function, arguments)

    async def run(given: dict[str, Any]) -> Any:
        values = msgspec.structs.asdict(msgspec.convert(given, model, strict=False))
        if inspect.iscoroutinefunction(function):
            return await function(**values)
        return await asyncio.to_thread(_called, function, values)

    return Tool(
        name=name or function.__name__,
        description=described,
        parameters=_schema(model),
        run=run,
        timeout=timeout,
        alone=alone,
    )


def _called(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    try:
        return function(**values)
    except StopIteration:  # no future takes one: whoever waits for it would wait for ever
        raise RuntimeError("StopIteration") from None


def _arguments_of(function: Callable[..., Any], described: Mapping[str, str]) -> type[msgspec.Struct]:
    """The arguments of a function as a type that checks them."""
    called = getattr(function, "__name__", "function")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as problem:
        raise InvalidInput("tools", f"{called}: the type {problem.name!r} cannot be found") from None
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput("tools", f"{called} takes *args, **kwargs or positional-only arguments: name them all")
        kind = hints.get(parameter.name, Any)
        if parameter.name in described:
            kind = Annotated[kind, msgspec.Meta(description=described[parameter.name])]
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, kind, _default(parameter.default)) if has_default else (parameter.name, kind))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _default(value: Any) -> Any:
    return msgspec.field(default_factory=lambda: value) if isinstance(value, list | dict | set) else value


def _schema(model: type[msgspec.Struct]) -> dict[str, Any]:
    (reference,), parts = msgspec.json.schema_components([model])
    own = parts.pop("Arguments") if "$ref" in reference else reference
    own.pop("title", None)
    return {**own, "$defs": parts} if parts else own


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What it does, and what its arguments mean."""
    text = inspect.getdoc(function) or ""
    before, *after = _SECTION.split(text, maxsplit=1)
    found = (_ARGUMENT.match(line) for line in after[0].splitlines()) if after else ()
    name = getattr(function, "__name__", "")
    return before.strip() or name.replace("_", " "), {match[1]: match[2].strip() for match in found if match}


# ---- the tools of one answer ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools that may be called for one answer, by name."""

    tools: Mapping[str, Tool] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Iterable[Any], built_in: Mapping[str, Tool]) -> Toolbox:
        """From tools, functions, names of built-in tools, and whatever has a list `tools` of its own."""
        found: dict[str, Tool] = {}
        for one in _flat(given, built_in):
            if one.name in found:
                raise InvalidInput("tools", f"there are two tools called {one.name!r}")
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
        self, calls: Sequence[ToolCall], seconds: float, done: Callable[[CallOutcome], None]
    ) -> list[CallOutcome]:
        """Run the calls, side by side where they may, and answer in their order. None of them can fail the round."""

        async def one(call: ToolCall) -> CallOutcome:
            ran = await self._run(call, self._timeout(call, seconds))
            done(ran)
            return ran

        together = [call for call in calls if not self._is_alone(call)]
        results = dict(zip([c.id for c in together], await asyncio.gather(*map(one, together)), strict=True))
        for call in calls:
            if call.id not in results:
                results[call.id] = await one(call)
        return [results[call.id] for call in calls]

    def longest(self, calls: Sequence[ToolCall], seconds: float) -> float:
        """How many seconds a round of these calls may take."""
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
                return _ran(call, await wanted.run(dict(call.arguments)))
        except TimeoutError as problem:
            if not clock.expired():  # its own, of something inside of it
                return _failed(call, problem)
            return CallOutcome(call, f"The tool took longer than {seconds:g} s and was stopped.", is_error=True)
        except msgspec.ValidationError as problem:
            return CallOutcome(call, f"The arguments are not valid: {str(problem)[:MAX_ERROR]}", is_error=True)
        except asyncio.CancelledError as problem:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # this call is being stopped, and not something inside of it
                raise
            return _failed(call, problem)
        except (Exception, SystemExit) as problem:  # whatever a tool does, the model hears of it, and it goes on
            return _failed(call, problem)


def _flat(given: Iterable[Any], built_in: Mapping[str, Tool]) -> Iterable[Tool]:
    for one in given:
        if isinstance(one, Tool):
            yield one
        elif isinstance(one, str):
            if one not in built_in:
                raise InvalidInput("tools", f"{one!r} is not built in; those are {', '.join(built_in)}")
            yield built_in[one]
        elif hasattr(one, "tools"):
            yield from _flat(one.tools, built_in)
        elif callable(one):
            yield tool(one)
        else:
            raise InvalidInput("tools", f"must be functions, tools or names of built-in ones, not {type(one).__name__}")


def _ran(call: ToolCall, value: Any) -> CallOutcome:
    """What cannot be stored, such as what is no JSON, is an error of the tool, and becomes one here."""
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


def _failed(call: ToolCall, problem: BaseException) -> CallOutcome:
    words = replace_unstorable(str(problem)[:MAX_ERROR])
    return CallOutcome(call, f"The tool failed: {type(problem).__name__}: {words}", is_error=True)


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else canonical_json(content)


def shortened(text: str, most: int, where: str) -> str:
    """The beginning of a result, with a mark that says how much there is and where. Never over `most`."""
    mark = f"\n[… cut here: {len(text):,} characters in all{where} …]"
    return text[: max(0, most - len(mark))] + mark[:most]
