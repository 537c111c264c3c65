"""A process's place in its fleet in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from homing.engine.fleet.membership import FleetPulse


def fleet_metrics(pulse: FleetPulse) -> Iterator[Metric]:
    """What it holds, what it lost, and how long its leases still hold."""
    yield CounterMetricFamily(
        "homing_buckets_lost", "Buckets that others took from this process.", pulse.lost
    )
    yield CounterMetricFamily(
        "homing_late_outcomes", "Outcomes dropped because their bucket had gone.", pulse.late
    )
    for name, sentence, value in (
        ("homing_buckets", "Buckets that this process holds, of 256.", pulse.buckets),
        ("homing_buckets_closing", "Of them, being handed over.", pulse.closing),
        ("homing_fleet_processes", "Processes of the fleet, by our heartbeat.", pulse.processes),
        (
            "homing_heartbeat_age_seconds",
            "Since our last heartbeat; nothing starts when it nears the lease.",
            pulse.heartbeat_age_ms / 1000,
        ),
        ("homing_wire_live", "1 while others' work is heard of at once.", int(pulse.wire_live)),
    ):
        yield GaugeMetricFamily(name, sentence, value=value)
