"""Spans and metrics that leave the server by OTLP: their names, their parents, and no word of content."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import ok, running

WORD = "zqxvbnmkjhgf"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """An OTLP collector on this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bodies: list[tuple[str, bytes]] = []

    def spans(self) -> list[Any]:
        sent = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        return [
            span for one in sent for part in one.resource_spans for scope in part.scope_spans for span in scope.spans
        ]

    def metrics(self) -> dict[str, Any]:
        sent = [ExportMetricsServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/metrics"]
        scopes = [scope for one in sent for part in one.resource_metrics for scope in part.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        packed = self.headers.get("content-encoding") == "gzip"
        self.server.bodies.append((self.path, gzip.decompress(body) if packed else body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as one:
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{one.server_port}")
        yield one
        one.shutdown()


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as one:
        yield one


@pytest.fixture
def exported(collector: Collector, provider: LoopbackProvider, server_url: str) -> Collector:
    """The collector, after some requests; one of them has a trace of the client's."""
    provider.script(Say(f"{WORD} indeed."))
    settings = ServerSettings(
        url=server_url,
        telemetry=True,
        model="chat",
        models=provider.models(),
        embedder="none",
        generate={"titles": False},
    )
    with running(settings) as server, server.client() as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={'title': WORD}))['id']}"
        traced = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        ok(client.post(f"{talk}/generate", json={"message": f"Say {WORD}."}, headers=traced))
        ok(client.get(f"{talk}/search", params={"q": WORD}))
        assert client.get(f"/api/conversations/{WORD}").status_code == 404
    return collector


def test_requests_verbs_and_model_calls_are_one_trace_and_it_is_passed_on(
    exported: Collector, provider: LoopbackProvider
) -> None:
    spans = exported.spans()
    by_name = {span.name: span for span in spans if span.trace_id.hex() == TRACE}
    request = by_name["POST /api/conversations/{conversation}/generate"]
    assert request.parent_span_id.hex() == PARENT
    assert {"chat test", "search_memory"} <= by_name.keys()
    assert {"palaver.store.get", "palaver.store.conversation", "palaver.conversation.search"} <= {
        one.name for one in spans
    }
    (asked,) = [one for one in provider.received if "stream" in one.body]
    assert asked.headers["traceparent"].split("-")[1] == TRACE
    chat = {one.key: one.value.string_value for one in by_name["chat test"].attributes}
    assert chat["gen_ai.request.model"] == "test"
    assert chat["gen_ai.provider.name"] == "openai"


def test_metrics_are_those_of_prometheus(exported: Collector) -> None:
    metrics = exported.metrics()
    requests = metrics["palaver_requests"].sum
    assert requests.is_monotonic
    assert sum(point.as_double for point in requests.data_points) == 4
    latency = metrics["palaver_request_seconds"].histogram.data_points
    assert sum(point.count for point in latency) == 4
    assert all(sum(point.bucket_counts) == point.count for point in latency)
    assert metrics["palaver_answers_in_the_making"].HasField("gauge")


def test_nothing_that_was_said_leaves_by_otlp(exported: Collector) -> None:
    assert exported.bodies
    assert [path for path, body in exported.bodies if WORD.encode() in body] == []


def test_nothing_is_sent_unless_it_is_switched_on(
    collector: Collector, provider: LoopbackProvider, server_url: str
) -> None:
    settings = ServerSettings(url=server_url, model="chat", models=provider.models(), embedder="none")
    with running(settings) as server, server.client() as client:
        talk = ok(client.post("/api/conversations", json={}))["id"]
        ok(client.post(f"/api/conversations/{talk}/generate", json={"message": "Hi"}))
    assert collector.bodies == []
    assert all("traceparent" not in one.headers for one in provider.received)
