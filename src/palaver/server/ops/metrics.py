"""Figures for Prometheus. No label holds a tenant, a user, a conversation or a word: routes are patterns.

With several workers each process keeps its figures in files of a folder that they share, and whichever is asked adds
them up (`PROMETHEUS_MULTIPROC_DIR`, which `palaver serve --workers` sets).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from palaver.core.process_identity import is_alive
from palaver.ports.jobs import Health
from palaver.ports.models import Usage
from palaver.telemetry import Meter

SHARED = "PROMETHEUS_MULTIPROC_DIR"
MEDIA = CONTENT_TYPE_LATEST
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics(Meter):
    """What this process counts."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "palaver_requests", "Requests that were answered.", ("method", "route", "status"), registry=own
        )
        self.latency = Histogram(
            "palaver_request_seconds",
            "Until an answer began.",
            ("method", "route"),
            buckets=SECONDS,
            registry=own,
        )
        self.turns = Counter("palaver_turns_stored", "Turns that were stored; a retry counts, too.", registry=own)
        self.contexts = Histogram("palaver_context_build_seconds", "To build a context.", buckets=SECONDS, registry=own)
        self.tokens = Counter(
            "palaver_tokens", "As providers report them; cached ones are also prompt ones.", ("kind",), registry=own
        )
        self.answers = Counter("palaver_answers", "Answers by how they ended.", ("outcome",), registry=own)
        self.making = Gauge(
            "palaver_answers_in_the_making", "Answers under way.", registry=own, multiprocess_mode="livesum"
        )
        self.readers = Gauge("palaver_live_readers", "Open live streams.", registry=own, multiprocess_mode="livesum")
        for kind in ("prompt", "completion", "cached"):
            self.tokens.labels(kind)  # a figure that is zero is there, too
        if SHARED not in os.environ:
            ProcessCollector(registry=own)

    # ---- what happens

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "other"
        self.requests.labels(method, route, str(status)).inc()
        if status:  # without one, the client went away before there was an answer
            self.latency.labels(method, route).observe(seconds)

    def stored(self, turns: int) -> None:
        self.turns.inc(turns)

    def built(self, seconds: float) -> None:
        self.contexts.observe(seconds)

    def answered(self, usage: Usage) -> None:
        for kind in ("prompt", "completion", "cached"):
            self.tokens.labels(kind).inc(getattr(usage, kind) or 0)

    # ---- what is shown

    def shown(self, health: Health | None) -> bytes:
        """All of it, as text. The outbox is read when it is asked for; without a database, nothing is said of it."""
        return generate_latest(self._counted()) + generate_latest(_outbox(health))

    def _counted(self) -> CollectorRegistry:
        folder = os.environ.get(SHARED)
        if folder is None:
            return self.registry
        _forget_the_dead(Path(folder))
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody, folder)  # type: ignore[no-untyped-call]
        return everybody


def _forget_the_dead(folder: Path) -> None:
    """The readers of a worker that was killed are gone; what it has counted stays."""
    for pid in {file.stem.rpartition("_")[2] for file in folder.glob("gauge_live*.db")}:
        if pid.isdecimal() and not is_alive(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]


class _Outbox(Collector):
    def __init__(self, health: Health | None) -> None:
        self.health = health

    def collect(self) -> Iterator[Metric]:
        if self.health is None:
            yield GaugeMetricFamily("palaver_database_up", "Whether the database answers.", 0)
            return
        yield GaugeMetricFamily("palaver_database_up", "Whether the database answers.", 1)
        yield GaugeMetricFamily("palaver_outbox_jobs", "Memory work that waits.", self.health.waiting)
        yield GaugeMetricFamily("palaver_outbox_put_aside", "Memory work that failed.", self.health.put_aside)
        yield GaugeMetricFamily("palaver_outbox_lag_seconds", "How long the oldest has waited.", self.health.lag)


def _outbox(health: Health | None) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(_Outbox(health))
    return found
