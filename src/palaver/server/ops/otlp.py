"""Export by OTLP: spans and the metrics of this process go to the collector that the OTEL_… variables name.

The metrics are those of `/metrics`, read from the same registry. Each process exports its own; the collector tells them
apart by `service.instance.id`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

import palaver
from palaver.errors import MissingExtra

MILLISECONDS = 30_000  # between two exports of metrics, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise


@dataclass(frozen=True, slots=True)
class Exporters:
    """The exporters of this process."""

    tracing: Any  # a tracer provider
    sender: Any  # of metrics
    registry: CollectorRegistry
    resource: Any
    began: int

    async def send_metrics_forever(self) -> None:
        """Send the metrics periodically. If the collector is unreachable, the SDK logs that and retries."""
        while True:
            await asyncio.sleep(float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", MILLISECONDS)) / 1_000)
            await asyncio.to_thread(self.send_metrics)

    def send_metrics(self) -> None:
        self.sender.export(convert(self.registry.collect(), self.resource, self.began))

    def close(self) -> None:
        """Send the remaining spans and metrics."""
        self.send_metrics()
        self.sender.shutdown()
        self.tracing.shutdown()


def make_exporters(registry: CollectorRegistry) -> Exporters:
    """Make exporters over OTLP/HTTP. The SDK sends spans from a thread of its own."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as problem:
        raise MissingExtra("otel", "Telemetry") from problem
    name = os.environ.get("OTEL_SERVICE_NAME", "palaver")
    instance = f"{socket.gethostname()}:{os.getpid()}"
    about = {"service.name": name, "service.version": palaver.__version__, "service.instance.id": instance}
    resource = Resource.create(about)
    tracing = TracerProvider(resource=resource)
    tracing.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Exporters(tracing, OTLPMetricExporter(), registry, resource, time.time_ns())


# ---- from Prometheus' form to OTLP's --------------------------------------------------------------------------------


def convert(families: Iterable[Metric], resource: Any, began: int) -> Any:
    """Convert metric families to the SDK's data: counters to sums, gauges, and histograms with their buckets."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now = time.time_ns()
    metrics = [one for family in families if (one := _convert_family(family, began, now)) is not None]
    scope = ScopeMetrics(InstrumentationScope("palaver"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _convert_family(family: Metric, began: int, now: int) -> Any:
    from opentelemetry.sdk.metrics import export

    data: Any
    if family.type == "counter":
        points = _numbers(family, f"{family.name}_total", began, now)
        data = export.Sum(points, export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    elif family.type == "gauge":
        data = export.Gauge(_numbers(family, family.name, began, now))
    elif family.type == "histogram":
        data = export.Histogram(_histograms(family, began, now), export.AggregationTemporality.CUMULATIVE)
    else:
        return None
    unit = "s" if family.name.endswith("_seconds") else "1"
    return export.Metric(family.name, family.documentation, unit, data)


def _numbers(family: Metric, name: str, began: int, now: int) -> list[Any]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    return [NumberDataPoint(one.labels, began, now, one.value) for one in family.samples if one.name == name]


def _histograms(family: Metric, began: int, now: int) -> list[Any]:
    """Return one point per set of labels. Prometheus' buckets are cumulative, those of OTLP are not."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    groups: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for one in family.samples:
        labels = {name: value for name, value in one.labels.items() if name != "le"}
        group = groups.setdefault(tuple(sorted(labels.items())), {"labels": labels, "buckets": []})
        if one.name.endswith("_bucket"):
            group["buckets"].append((float(one.labels["le"]), one.value))
        elif one.name.endswith(("_sum", "_count")):
            group[one.name.rpartition("_")[2]] = one.value
    points = []
    for group in groups.values():
        bounds, totals = zip(*sorted(group["buckets"]), strict=True)
        counts = [int(value - before) for before, value in zip((0, *totals), totals, strict=False)]
        points.append(
            HistogramDataPoint(
                attributes=group["labels"],
                start_time_unix_nano=began,
                time_unix_nano=now,
                count=int(group["count"]),
                sum=group["sum"],
                bucket_counts=counts,
                explicit_bounds=bounds[:-1],  # the last is infinite
                min=float("nan"),
                max=float("nan"),
            )
        )
    return points
