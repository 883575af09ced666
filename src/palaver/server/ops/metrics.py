"""Metrics for Prometheus. No label contains a tenant, user, conversation or text: routes are patterns.

With several workers each process keeps its metrics in files of a shared folder, and the one that is scraped adds them
up (`PROMETHEUS_MULTIPROC_DIR`, which `palaver serve --workers` sets).
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
    """The metrics of this process."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("palaver_requests", "Requests.", ("method", "route", "status"), registry=own)
        self.latency = Histogram(
            "palaver_request_seconds",
            "Seconds until the response started.",
            ("method", "route"),
            buckets=SECONDS,
            registry=own,
        )
        self.turns = Counter("palaver_turns_stored", "Stored turns, retries included.", registry=own)
        self.contexts = Histogram(
            "palaver_context_build_seconds", "Seconds to build a context.", buckets=SECONDS, registry=own
        )
        self.tokens = Counter(
            "palaver_tokens",
            "Tokens as reported by providers; cached tokens are also prompt tokens.",
            ("kind",),
            registry=own,
        )
        self.answers = Counter("palaver_answers", "Answers by outcome.", ("outcome",), registry=own)
        self.budget_spent = Counter(
            "palaver_budget_spent", "Used by calls that a budget limits.", ("measure",), registry=own
        )
        self.budget_refusals = Counter(
            "palaver_budget_refusals", "Calls that a budget refused.", ("budget", "measure"), registry=own
        )
        self.recall_lag = Histogram(
            "palaver_recall_lag_seconds",
            "Seconds from a turn's storage until it can be recalled by meaning.",
            buckets=(0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
            registry=own,
        )
        self.extractor_dropped = Counter(
            "palaver_extractor_dropped", "Notes and facts that a model proposed and no turn says.", registry=own
        )
        self.empties = Counter("palaver_empty", "Empty results by reason.", ("what", "reason"), registry=own)
        self.making = Gauge(
            "palaver_answers_in_the_making", "Running answers.", registry=own, multiprocess_mode="livesum"
        )
        self.readers = Gauge("palaver_live_readers", "Open live streams.", registry=own, multiprocess_mode="livesum")
        for kind in ("prompt", "completion", "cached"):
            self.tokens.labels(kind)  # so that zero is exported, too
        for measure in ("requests", "tokens", "dollars"):
            self.budget_spent.labels(measure)
        if SHARED not in os.environ:
            ProcessCollector(registry=own)

    # ---- counting

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "other"
        self.requests.labels(method, route, str(status)).inc()
        if status:  # 0: the client left before the response
            self.latency.labels(method, route).observe(seconds)

    def stored(self, turns: int) -> None:
        self.turns.inc(turns)

    def built(self, seconds: float) -> None:
        self.contexts.observe(seconds)

    def recallable(self, seconds: float) -> None:
        self.recall_lag.observe(seconds)

    def empty(self, what: str, reason: str) -> None:
        self.empties.labels(what, reason).inc()

    def dropped(self, items: int) -> None:
        self.extractor_dropped.inc(items)

    def answered(self, usage: Usage) -> None:
        for kind in ("prompt", "completion", "cached"):
            self.tokens.labels(kind).inc(getattr(usage, kind) or 0)

    def spent(self, *, requests: int, tokens: int, dollars: float) -> None:
        for measure, amount in (("requests", requests), ("tokens", tokens), ("dollars", dollars)):
            self.budget_spent.labels(measure).inc(amount)

    def refused(self, kind: str, measure: str) -> None:
        self.budget_refusals.labels(kind, measure).inc()

    # ---- export

    def render(self, health: Health | None) -> bytes:
        """Return all metrics as text. Without `health` the outbox is left out: the database does not respond."""
        return generate_latest(self._all_workers()) + generate_latest(_outbox(health))

    def _all_workers(self) -> CollectorRegistry:
        folder = os.environ.get(SHARED)
        if folder is None:
            return self.registry
        _drop_dead_workers(Path(folder))
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody, folder)  # type: ignore[no-untyped-call]
        return everybody


def _drop_dead_workers(folder: Path) -> None:
    """Drop the gauges of workers that were killed. Their counters stay."""
    for pid in {file.stem.rpartition("_")[2] for file in folder.glob("gauge_live*.db")}:
        if pid.isdecimal() and not is_alive(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]


class _Outbox(Collector):
    def __init__(self, health: Health | None) -> None:
        self.health = health

    def collect(self) -> Iterator[Metric]:
        if self.health is None:
            yield GaugeMetricFamily("palaver_database_up", "1 if the database responds.", 0)
            return
        yield GaugeMetricFamily("palaver_database_up", "1 if the database responds.", 1)
        yield GaugeMetricFamily("palaver_outbox_jobs", "Waiting background jobs.", self.health.waiting)
        yield GaugeMetricFamily("palaver_outbox_put_aside", "Background jobs that failed.", self.health.put_aside)
        yield GaugeMetricFamily("palaver_outbox_lag_seconds", "Age of the oldest waiting job.", self.health.lag)


def _outbox(health: Health | None) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(_Outbox(health))
    return found
