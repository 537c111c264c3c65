"""Spans, metrics and log lines reach a collector; a collector that fails disturbs nothing."""

from __future__ import annotations

import http.server
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from homing.errors import BadSetting
from homing.policy.admission import EventDraft
from homing.ports.tracing import Span
from homing.server import telemetry as module
from homing.server.settings import Settings, load_settings
from homing.server.telemetry import Telemetry, TelemetryOptions, read_headers
from homing.server.wiring import running

KINDS: dict[str, Any] = {
    "/otel/v1/traces": ExportTraceServiceRequest,
    "/otel/v1/metrics": ExportMetricsServiceRequest,
    "/otel/v1/logs": ExportLogsServiceRequest,
}
SPAN = Span("attempt a.b", True, "a" * 32, "b" * 16, "c" * 16, "d" * 16, 5, 7, "503", (("n", 1),))


class Collector:
    """An OTLP receiver on loopback; it decodes with the official messages."""

    def __init__(self) -> None:
        self.codes: list[int] = []  # of the next responses, then 200
        self.got: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                code = collector.codes.pop(0) if collector.codes else 200
                if code == 200:
                    collector.got.append((self.path, KINDS[self.path].FromString(body)))
                    collector.headers.append({k.lower(): v for k, v in self.headers.items()})
                self.send_response(code)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}/otel"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def all(self, path: str) -> list[Any]:
        return [message for at, message in self.got if at.endswith(path)]

    def spans(self) -> list[Any]:
        return [
            span
            for message in self.all("/v1/traces")
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def exporter(collector: Collector, **more: Any) -> Telemetry:
    return Telemetry(TelemetryOptions(endpoint=collector.endpoint, **more))


def closed(telemetry: Telemetry) -> None:
    """Sends all and ends, however busy the machine is."""
    telemetry.close()
    telemetry._thread.join()


def test_a_span_arrives_with_its_ids_times_link_and_error(collector: Collector) -> None:
    telemetry = exporter(collector, headers=(("authorization", "Bearer x"),), instance="node-1")
    telemetry.add([SPAN])
    telemetry.start()
    closed(telemetry)
    (span,) = collector.spans()
    assert (span.name, span.kind) == ("attempt a.b", span.SPAN_KIND_CLIENT)
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    assert ids == ("a" * 32, "b" * 16, "c" * 16)
    assert [it.span_id.hex() for it in span.links] == ["d" * 16]
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (5_000_000, 7_000_000)
    assert (span.status.code, span.status.message) == (span.status.STATUS_CODE_ERROR, "503")
    assert [(it.key, it.value.int_value) for it in span.attributes] == [("n", 1)]
    resource = collector.all("/v1/traces")[0].resource_spans[0].resource
    about = {it.key: it.value.string_value for it in resource.attributes}
    assert (about["service.name"], about["service.instance.id"]) == ("homing", "node-1")
    assert collector.headers[0]["authorization"] == "Bearer x"
    assert collector.headers[0]["content-type"] == "application/x-protobuf"


def test_metrics_of_all_kinds_arrive_as_prometheus_would_read_them(collector: Collector) -> None:
    registry = CollectorRegistry()
    Counter("tries", "Tries.", ["lane"], registry=registry).labels("fresh").inc(3)
    Gauge("waiting", "Waiting.", registry=registry).set(7)
    seconds = Histogram("took", "Took.", buckets=(1, 5), registry=registry)
    for value in (0.5, 2, 3, 100):
        seconds.observe(value)
    telemetry = exporter(collector)
    telemetry.set_metrics(list(registry.collect()))
    telemetry.start()
    closed(telemetry)
    (message,) = collector.all("/v1/metrics")
    found = {it.name: it for it in message.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = found["tries"].sum.data_points
    assert (point.as_double, found["tries"].sum.is_monotonic) == (3, True)
    assert [(it.key, it.value.string_value) for it in point.attributes] == [("lane", "fresh")]
    assert [it.as_double for it in found["waiting"].gauge.data_points] == [7]
    (point,) = found["took"].histogram.data_points
    assert list(point.explicit_bounds) == [1, 5]
    assert list(point.bucket_counts) == [1, 2, 1]
    assert (point.count, point.sum) == (4, 105.5)


def test_what_a_collector_refuses_for_now_is_sent_again(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", (0.01,))
    collector.codes = [503, 429, 502]
    telemetry = exporter(collector)
    telemetry.add([SPAN])
    telemetry.start()
    telemetry._wake.set()
    while telemetry._spans:
        telemetry._wake.wait(0.01)
    closed(telemetry)
    assert len(collector.spans()) == 1
    assert telemetry.dropped == 0


def test_what_a_collector_refuses_for_good_is_not_sent_again(collector: Collector) -> None:
    collector.codes = [400]
    telemetry = exporter(collector)
    telemetry.add([SPAN])
    telemetry.start()
    closed(telemetry)
    assert not telemetry._spans
    assert collector.spans() == []


def test_without_a_collector_memory_is_bounded_and_the_loss_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SPANS_MAX", 10)
    telemetry = Telemetry(TelemetryOptions(endpoint="http://127.0.0.1:9"))
    for _ in range(5):
        telemetry.add([SPAN] * 3)
    assert (len(telemetry._spans), telemetry.dropped) == (10, 5)
    telemetry.start()
    closed(telemetry)
    assert len(telemetry._spans) == 10


async def test_a_server_tells_of_a_publish_and_its_metrics_and_lines(
    collector: Collector, tmp_path: Path
) -> None:
    settings = Settings.of(data=str(tmp_path), otel_endpoint=collector.endpoint, otel_trace_share=1)
    handlers = list(logging.getLogger().handlers)
    async with running(settings, admin_key="k" * 43, in_memory=True) as it:
        await it.engine.publish([EventDraft("default", "a.b", b"{}", key="one")])
        logging.getLogger("homing.test").warning("a line with a value of %d", 7)
    assert logging.getLogger().handlers == handlers
    assert [span.name for span in collector.spans()] == ["publish a.b", "commit"]
    names = {
        metric.name
        for message in collector.all("/v1/metrics")
        for metric in message.resource_metrics[0].scope_metrics[0].metrics
    }
    assert {"homing_telemetry_dropped", "homing_attempts"} <= names
    lines = [
        record.body.string_value
        for message in collector.all("/v1/logs")
        for record in message.resource_logs[0].scope_logs[0].log_records
    ]
    assert "a line with a value of 7" in lines


async def test_signals_that_are_not_wanted_are_not_sent(
    collector: Collector, tmp_path: Path
) -> None:
    given = {"otel_endpoint": collector.endpoint, "otel_signals": ("metrics",)}
    settings = Settings.of(data=str(tmp_path), otel_trace_share=1, **given)
    async with running(settings, admin_key="k" * 43, in_memory=True) as it:
        await it.engine.publish([EventDraft("default", "a.b", b"{}", key="one")])
    assert {path for path, _ in collector.got} == {"/otel/v1/metrics"}


# --- settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("otel_endpoint", "127.0.0.1:4318"),
        ("otel_endpoint", "ftp://x"),
        ("otel_endpoint", "http://x/?q=1"),
        ("otel_headers", "authorization"),
        ("otel_headers", "a=b\r\nc: d"),
        ("otel_signals", "spans"),
        ("otel_trace_share", "2"),
    ],
)
def test_a_wrong_setting_stops_the_start(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting) as caught:
        load_settings({}, environ={f"HOMING_{name.upper()}": value})
    assert name in str(caught.value)
    assert "authorization" not in str(caught.value)


def test_headers_are_read_as_opentelemetry_writes_them() -> None:
    assert read_headers("") == ()
    assert read_headers("authorization=Bearer%20a%3Db, x-scope = 1") == (
        ("authorization", "Bearer a=b"),
        ("x-scope", "1"),
    )
