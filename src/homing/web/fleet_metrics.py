"""The metrics of a process of a fleet, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from homing.app.status import FleetPulse


def fleet_metrics(pulse: FleetPulse) -> Iterator[Metric]:
    """Metrics of the process's buckets, its heartbeat and its notifications."""
    yield CounterMetricFamily(
        "homing_buckets_lost", "Buckets that other processes took over from this one.", pulse.lost
    )
    yield CounterMetricFamily(
        "homing_late_outcomes",
        "Outcomes discarded because this process no longer owned their bucket.",
        pulse.late,
    )
    for name, sentence, value in (
        ("homing_buckets", "Buckets that this process owns, of 256.", pulse.buckets),
        ("homing_buckets_closing", "Buckets that this process is handing over.", pulse.closing),
        (
            "homing_fleet_processes",
            "Live processes, as of this process's last heartbeat.",
            pulse.processes,
        ),
        (
            "homing_heartbeat_age_seconds",
            "Time since the last heartbeat; close to the lease, no attempt starts.",
            pulse.heartbeat_age_ms / 1000,
        ),
        (
            "homing_notifications_connected",
            "1 while notifications from other processes arrive.",
            int(pulse.bus_live),
        ),
    ):
        yield GaugeMetricFamily(name, sentence, value=value)
