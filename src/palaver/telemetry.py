"""OpenTelemetry spans for model calls, tools and memory, by the GenAI conventions. Off by default; never with content.

`palaver.open(telemetry=True)` uses the process's tracer provider; it also takes a tracer provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from palaver.errors import MissingExtra
from palaver.ports.models import Usage


class Meter:
    """Receives counts and durations: `palaver.open(meter=…)`. This base class ignores them."""

    def stored(self, turns: int) -> None:
        """`turns` turns were stored."""

    def built(self, seconds: float) -> None:
        """A context was built in `seconds`."""

    def answered(self, usage: Usage) -> None:
        """A model has answered and reported its token usage."""

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


NOBODY = NoSpan()


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Opens spans, if there is a tracer."""

    tracer: Any = None

    @contextmanager
    def span(self, name: str, *, client: bool = False, **attributes: Any) -> Iterator[NoSpan | OpenSpan]:
        if self.tracer is None:
            yield NOBODY
            return
        from opentelemetry.trace import SpanKind, StatusCode

        kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
        options = {"record_exception": False, "set_status_on_exception": False}  # an error message may quote content
        with self.tracer.start_as_current_span(name, kind=kind, **options) as span:
            opened = OpenSpan(span)
            opened.set(**attributes)
            try:
                yield opened
            except BaseException as problem:
                span.set_attribute("error.type", type(problem).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    def memory(self, operation: str, conversation: str) -> Any:
        """The span of a memory operation: search_memory, upsert_memory, delete_memory and so on."""
        return self.span(operation, gen_ai__operation__name=operation, gen_ai__memory__store__id=conversation)


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
