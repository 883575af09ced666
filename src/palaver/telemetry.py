"""OpenTelemetry spans for methods, model calls, tools and memory. Off by default; never with content.

`palaver.open(telemetry=True)` uses the process's tracer provider; it also takes a tracer provider. Methods
have spans such as `palaver.conversation.append`; model calls, tools and memory follow the GenAI conventions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from palaver.errors import MissingExtra
from palaver.ports.models import Usage


class Meter:
    """The protocol of `palaver.open(meter=…)`: subclass it and override what is needed; each method here does nothing.

    Methods are called on the event loop after the work that they report, and must return at once. They get counts and
    durations, never content. An exception that a method raises reaches the caller of the library.
    """

    def stored(self, turns: int) -> None:
        """`turns` turns were stored."""

    def built(self, seconds: float) -> None:
        """A context was built in `seconds`."""

    def answered(self, usage: Usage) -> None:
        """A model has answered and reported its token usage."""

    def recallable(self, seconds: float) -> None:
        """A turn can be recalled by its meaning, `seconds` after its id was made. By its words it always can."""

    def empty(self, what: str, reason: str) -> None:
        """A recall, search, list or context (`what`) is empty; `reason` is one of `EmptyReason`."""

    def dropped(self, items: int) -> None:
        """A model proposed notes or facts that no turn says: they were not kept."""

    def spent(self, *, requests: int, tokens: int, dollars: float) -> None:
        """A call that a budget limits has ended."""

    def refused(self, kind: str, measure: str) -> None:
        """A budget of this kind (tenant, user or key) refused a call because of this measure."""


class NoSpan:
    """A span that records nothing, for telemetry that is off."""

    def set(self, **attributes: Any) -> None:
        pass


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span of OpenTelemetry."""

    span: Any

    def set(self, **attributes: Any) -> None:
        """Set attributes by name; two underscores stand for a dot. None is left out."""
        for name, value in attributes.items():
            if value is not None:
                self.span.set_attribute(name.replace("__", "."), value)

    def mark_failed(self, kind: str) -> None:
        """Mark the work as failed, with the type of the error."""
        from opentelemetry.trace import StatusCode

        self.span.set_attribute("error.type", kind)
        self.span.set_status(StatusCode.ERROR)


NOBODY = NoSpan()
Kind = Literal["internal", "client", "server"]
_is_tracing: ContextVar[bool] = ContextVar("palaver_is_tracing", default=False)  # inside one of our spans


def trace_headers() -> dict[str, str]:
    """Return `traceparent` and so on for a request to another service. Empty outside a span of Palaver's."""
    headers: dict[str, str] = {}
    if _is_tracing.get():
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Opens spans, if there is a tracer."""

    tracer: Any = None

    @contextmanager
    def span(
        self, name: str, *, kind: Kind = "internal", headers: Mapping[str, str] | None = None, **attributes: Any
    ) -> Iterator[NoSpan | OpenSpan]:
        """Open a span. `headers` of a request may name its parent."""
        if self.tracer is None:
            yield NOBODY
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        parent = None if headers is None else propagate.extract(headers)
        options = {"record_exception": False, "set_status_on_exception": False}  # an error message may quote content
        with self.tracer.start_as_current_span(name, context=parent, kind=SpanKind[kind.upper()], **options) as span:
            token = _is_tracing.set(True)
            try:
                with _failures_marked(span):
                    opened = OpenSpan(span)
                    opened.set(**attributes)
                    yield opened
            finally:
                _is_tracing.reset(token)

    @contextmanager
    def detached_span(self, name: str, **attributes: Any) -> Iterator[None]:
        """Open a span that is nobody's parent: for a generator, whose steps may run in different contexts."""
        if self.tracer is None:
            yield
            return
        span = self.tracer.start_span(name)
        try:
            with _failures_marked(span):
                OpenSpan(span).set(**attributes)
                yield
        finally:
            span.end()

    def memory(self, operation: str, conversation: str) -> Any:
        """The span of a memory operation: search_memory, upsert_memory, delete_memory and so on."""
        return self.span(operation, gen_ai__operation__name=operation, gen_ai__memory__store__id=conversation)


@contextmanager
def _failures_marked(span: Any) -> Iterator[None]:
    """Mark the span of work that fails with the type of the error. A generator that is closed early did not fail."""
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as problem:
        OpenSpan(span).mark_failed(type(problem).__name__)
        raise


# ---- verbs ---------------------------------------------------------------------------------------------------------

V = TypeVar("V", bound=type)


def traced(of: Callable[[Any], tuple[Telemetry, str | None]]) -> Callable[[V], V]:
    """Give every public coroutine and asynchronous generator of a class a span `palaver.CLASS.METHOD`.

    `of` returns the telemetry of an instance, and the id of its conversation.
    """

    def wrap_methods(kind: V) -> V:
        for name, method in list(vars(kind).items()):
            span = f"palaver.{kind.__name__.lower()}.{name}"
            if name.startswith("_") or name == "aclose":
                continue
            if inspect.iscoroutinefunction(method):
                setattr(kind, name, _traced_coroutine(method, span, of))
            elif inspect.isasyncgenfunction(method):
                setattr(kind, name, _traced_generator(method, span, of))
        return kind

    return wrap_methods


def _traced_coroutine(method: Any, name: str, of: Callable[[Any], tuple[Telemetry, str | None]]) -> Any:
    @functools.wraps(method)
    async def call(self: Any, *arguments: Any, **options: Any) -> Any:
        telemetry, conversation = of(self)
        if telemetry.tracer is None:
            return await method(self, *arguments, **options)
        with telemetry.span(name, palaver__conversation__id=conversation):
            return await method(self, *arguments, **options)

    return call


def _traced_generator(method: Any, name: str, of: Callable[[Any], tuple[Telemetry, str | None]]) -> Any:
    @functools.wraps(method)
    async def call(self: Any, *arguments: Any, **options: Any) -> Any:
        telemetry, conversation = of(self)
        with telemetry.detached_span(name, palaver__conversation__id=conversation):
            async with aclosing(method(self, *arguments, **options)) as items:
                async for item in items:
                    yield item

    return call


def open_telemetry(choice: Any) -> Telemetry:
    """Make telemetry from the option of `palaver.open`: None, True, or a tracer provider."""
    if not choice:
        return Telemetry()
    try:
        from opentelemetry import trace
    except ImportError as problem:
        raise MissingExtra("otel", "Telemetry") from problem
    provider = trace.get_tracer_provider() if choice is True else choice
    return Telemetry(provider.get_tracer("palaver"))
