"""Spans, metrics and log lines as the messages of OTLP. Needs the extra ``otel``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import (
    LogRecord,
    ResourceLogs,
    ScopeLogs,
    SeverityNumber,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from homing import __version__
from homing.net.clock import wall_ns
from homing.ports.tracing import Span

_NS = 1_000_000  # in a millisecond
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_SEVERITY = {10: 5, 20: 9, 30: 13, 40: 17, 50: 21}  # of logging → of OTLP


class Encoder:
    """Encodes for one process, which every message names."""

    def __init__(self, *, instance: str) -> None:
        about = {"service.name": "homing", "service.version": __version__}
        if instance:
            about["service.instance.id"] = instance
        self._resource = Resource(attributes=_attributes(about.items()))
        self._scope = InstrumentationScope(name="homing", version=__version__)
        self._began_ns = wall_ns()

    def traces(self, spans: Sequence[Span]) -> bytes:
        scope = ScopeSpans(scope=self._scope, spans=[_span(it) for it in spans])
        whole = ResourceSpans(resource=self._resource, scope_spans=[scope])
        return bytes(ExportTraceServiceRequest(resource_spans=[whole]).SerializeToString())

    def logs(self, records: Sequence[logging.LogRecord]) -> bytes:
        scope = ScopeLogs(scope=self._scope, log_records=[_line(it) for it in records])
        whole = ResourceLogs(resource=self._resource, scope_logs=[scope])
        return bytes(ExportLogsServiceRequest(resource_logs=[whole]).SerializeToString())

    def metrics(self, families: Iterable[Metric]) -> bytes:
        now_ns = wall_ns()
        metrics = [_metric(it, self._began_ns, now_ns) for it in families]
        scope = ScopeMetrics(scope=self._scope, metrics=metrics)
        whole = ResourceMetrics(resource=self._resource, scope_metrics=[scope])
        return bytes(ExportMetricsServiceRequest(resource_metrics=[whole]).SerializeToString())


def _attributes(pairs: Iterable[tuple[str, Any]]) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in pairs]


def _value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int() if -(1 << 63) <= value < 1 << 63:
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(string_value=str(value))


def _span(it: Span) -> OtlpSpan:
    span = OtlpSpan(
        trace_id=bytes.fromhex(it.trace_id),
        span_id=bytes.fromhex(it.span_id),
        parent_span_id=bytes.fromhex(it.parent_id),
        name=it.name,
        kind=OtlpSpan.SPAN_KIND_CLIENT if it.is_request else OtlpSpan.SPAN_KIND_PRODUCER,
        start_time_unix_nano=it.began_at * _NS,
        end_time_unix_nano=max(it.ended_at, it.began_at) * _NS,
        attributes=_attributes(it.attributes),
    )
    if it.link_id:
        span.links.add(trace_id=span.trace_id, span_id=bytes.fromhex(it.link_id))
    if it.error:
        span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=it.error))
    return span


def _line(record: logging.LogRecord) -> LogRecord:
    fields = dict(record.msg) if isinstance(record.msg, dict) else {"event": record.getMessage()}
    text = str(fields.pop("event", ""))
    fields = {name: it for name, it in fields.items() if name not in {"time", "level", "exc_info"}}
    trace_id = str(fields.pop("trace_id", ""))
    at_ns = int(record.created * 1000) * _NS
    return LogRecord(
        time_unix_nano=at_ns,
        observed_time_unix_nano=at_ns,
        severity_number=SeverityNumber.ValueType(_SEVERITY.get(record.levelno, 9)),
        severity_text=record.levelname,
        body=AnyValue(string_value=text),
        attributes=_attributes([("logger", record.name), *fields.items()]),
        trace_id=bytes.fromhex(trace_id),
    )


# --- metrics --------------------------------------------------------------------------------


def _metric(family: Metric, began_ns: int, now_ns: int) -> OtlpMetric:
    metric = OtlpMetric(name=family.name, description=family.documentation, unit=family.unit)
    match family.type:
        case "counter":
            points = [
                _point(it, began_ns, now_ns) for it in family.samples if it.name.endswith("_total")
            ]
            metric.sum.CopyFrom(
                Sum(data_points=points, is_monotonic=True, aggregation_temporality=_CUMULATIVE)
            )
        case "histogram":
            found = _histograms(family.samples, began_ns, now_ns)
            metric.histogram.CopyFrom(
                Histogram(data_points=found, aggregation_temporality=_CUMULATIVE)
            )
        case _:
            points = [_point(it, 0, now_ns) for it in family.samples]
            metric.gauge.CopyFrom(Gauge(data_points=points))
    return metric


def _point(sample: Sample, began_ns: int, now_ns: int) -> NumberDataPoint:
    return NumberDataPoint(
        attributes=_attributes(sample.labels.items()),
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        as_double=sample.value,
    )


def _histograms(samples: Iterable[Sample], began_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """One for each set of labels; Prometheus counts a bucket with all below it, OTLP does not."""
    points: dict[tuple[tuple[str, str], ...], HistogramDataPoint] = {}
    below: dict[tuple[tuple[str, str], ...], int] = {}
    for sample in samples:
        labels = tuple((name, it) for name, it in sample.labels.items() if name != "le")
        point = points.get(labels)
        if point is None:
            point = points[labels] = HistogramDataPoint(
                attributes=_attributes(labels),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
            )
        if sample.name.endswith("_bucket"):
            count = int(sample.value)
            point.bucket_counts.append(count - below.get(labels, 0))
            below[labels] = count
            if sample.labels["le"] != "+Inf":
                point.explicit_bounds.append(float(sample.labels["le"]))
        elif sample.name.endswith("_count"):
            point.count = int(sample.value)
        elif sample.name.endswith("_sum"):
            point.sum = sample.value
    return list(points.values())
