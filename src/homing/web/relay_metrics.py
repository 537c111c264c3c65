"""The metrics of the outbox relay in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from homing.app.status import RelayPulse


def relay_metrics(pulse: RelayPulse, *, now: int) -> Iterator[Metric]:
    """Metrics of relayed, refused and waiting outbox rows."""
    yield CounterMetricFamily(
        "homing_outbox_relayed", "Outbox rows published since the start.", pulse.relayed
    )
    yield CounterMetricFamily(
        "homing_outbox_refused", "Outbox rows refused since the start.", pulse.refused
    )
    lag_ms = 0 if pulse.oldest_at is None else max(now - pulse.oldest_at, 0)
    for name, sentence, value in (
        (
            "homing_outbox_waiting",
            "Rows waiting in the outbox; counted up to 10,001.",
            pulse.waiting,
        ),
        ("homing_outbox_parked", "Refused rows that need a person.", pulse.waiting_refused),
        ("homing_outbox_lag_seconds", "How long the oldest row has waited.", lag_ms / 1000),
        ("homing_outbox_failures", "Consecutive failures of the relay.", pulse.failures),
    ):
        yield GaugeMetricFamily(name, sentence, value=value)
