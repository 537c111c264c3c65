"""The metrics of a server in the text format of Prometheus. No label contains a URL or an id.

A server with several processes shows the metrics of all of them, with the label ``process``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from homing import __version__
from homing.app.status import Pulse, StoreFigures
from homing.policy.outage import OutageState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


More = Callable[[int], Iterable[Metric]]  # at this time, of an optional part like the relay


class OtherProcesses(Protocol):
    """The other processes of this server."""

    @property
    def name(self) -> str:
        """Of this process among them."""

    async def others(self) -> Mapping[str, Sequence[Metric] | None]:
        """The metrics of each by its name; None if it does not respond."""


def metrics_text(metrics: Iterable[Metric]) -> bytes:
    """All of them as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def process_metrics(pulse: Pulse, *, now: int, more: More | None = None) -> list[Metric]:
    """Every metric of this process with its current value."""
    of_homing = metric_families(pulse, now=now)
    of_parts = () if more is None else more(now)
    return [*of_homing, *of_parts, *ProcessCollector(registry=None).collect()]


def of_all_processes(
    me: str, own: Sequence[Metric], others: Mapping[str, Sequence[Metric] | None]
) -> list[Metric]:
    """The metrics of several processes, each sample with the label of its process."""
    merged: dict[str, Metric] = {}
    for process, metrics in sorted({me: own, **others}.items()):
        for one in metrics or ():
            into = merged.setdefault(one.name, Metric(one.name, one.documentation, one.type))
            for sample in one.samples:
                into.add_sample(sample.name, {"process": process, **sample.labels}, sample.value)
    responded = {name: int(metrics is not None) for name, metrics in others.items()}
    return [processes_up({me: 1, **responded}), *merged.values()]


def processes_up(responded: dict[str, int]) -> Metric:
    return _gauge(
        "homing_process_up",
        "1 if the process responded to this scrape; only with several `processes`.",
        "process",
        responded,
    )


def metric_families(pulse: Pulse, *, now: int) -> Iterator[Metric]:
    """The metrics of the engine."""
    yield _gauge("homing_info", "The version of the server; always 1.", "version", {__version__: 1})
    yield from _counters(pulse)
    yield from _gauges(pulse, now)


def _counters(pulse: Pulse) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "homing_events_published", "Events accepted since the start.", value=pulse.published
    )
    yield CounterMetricFamily(
        "homing_deliveries_accepted",
        "Deliveries created by publishing since the start.",
        value=pulse.accepted,
    )
    yield CounterMetricFamily(
        "homing_outages",
        "Pauses of sending because of a sender outage.",
        value=pulse.outage.outages,
    )
    yield CounterMetricFamily(
        "homing_canaries",
        "Canaries: test attempts while sending is paused.",
        value=pulse.outage.canaries,
    )
    yield CounterMetricFamily(
        "homing_clock_steps",
        "Steps of the wall clock by more than a minute.",
        value=pulse.clock.steps,
    )
    yield _counter(
        "homing_deliveries_finished", "Finished deliveries, by status.", "status", pulse.finished
    )
    yield _counter(
        "homing_event_checks",
        "Events checked against their types, by result: valid, warned, refused or unknown type.",
        "result",
        pulse.checks,
    )
    yield _counter("homing_commits", "Commits, by kind.", "kind", pulse.commits)
    attempts = CounterMetricFamily(
        "homing_attempts",
        "Attempts settled, by lane, outcome and failure class (empty if delivered).",
        labels=("lane", "outcome", "reason"),
    )
    for labels, value in sorted(pulse.attempts.items()):
        attempts.add_metric(labels, value)
    yield attempts
    yield from _histograms(pulse)


_LATENCIES = {
    "publish": "From the call of publish to the commit.",
    "attempt": "From the start of an attempt to its response or failure.",
    "delivery": "From the acceptance of a delivery to its success.",
}


def _histograms(pulse: Pulse) -> Iterator[Metric]:
    for name, sentence in _LATENCIES.items():
        family = HistogramMetricFamily(f"homing_{name}_seconds", sentence)
        found = pulse.latencies.get(name)
        if found is not None:
            bounds = (*(f"{it:g}" for it in found.bounds_s), "+Inf")
            counts = accumulate(found.counts)
            family.add_metric((), list(zip(bounds, counts, strict=True)), found.sum_s)
        yield family


def _gauges(pulse: Pulse, now: int) -> Iterator[Metric]:
    yield _gauge("homing_slots", "Limit of attempts in flight, by lane.", "lane", pulse.slots)
    yield _gauge("homing_in_flight", "Attempts in flight, by lane.", "lane", pulse.in_flight)
    yield _gauge("homing_ready", "Deliveries in memory that are due.", "lane", pulse.ready)
    yield _gauge("homing_endpoints", "Endpoints in memory, by state.", "state", pulse.endpoints)
    late_ms = 0 if pulse.due_since is None else max(now - pulse.due_since, 0)
    active = pulse.outage.state is OutageState.CONFIRMED
    outage_ms = max(now - (pulse.outage.since or now), 0) if active else 0
    for name, sentence, value in (
        ("homing_unsettled", "Outcomes waiting to be written.", pulse.unsettled),
        ("homing_memory_bytes", "Event data queued in memory.", pulse.memory_bytes),
        ("homing_store_ok", "1 if the database accepts commits.", int(pulse.store_ok)),
        ("homing_draining", "1 while the server is stopping.", int(pulse.draining)),
        ("homing_outage_active", "1 while a sender outage pauses sending.", int(active)),
        ("homing_outage_seconds", "How long sending has been paused.", outage_ms / 1000),
        (
            "homing_lost_commits",
            "Losses of commits in failovers of the database that no operator has confirmed.",
            len(pulse.commit_losses),
        ),
        (
            "homing_outage_waiting",
            "Failures that wait for a verdict of sender outage detection.",
            pulse.outage.waiting,
        ),
        (
            "homing_clock_ahead_seconds",
            "How far the wall clock is ahead of steady time, which schedules use.",
            pulse.clock.ahead_ms / 1000,
        ),
        (
            "homing_oldest_due_seconds",
            "How long the oldest delivery of an enabled endpoint in memory has been due.",
            0 if pulse.oldest_due is None else max(now - pulse.oldest_due, 0) / 1000,
        ),
        (
            "homing_late_seconds",
            "How long a delivery has been due although a slot is free.",
            late_ms / 1000,
        ),
    ):
        yield GaugeMetricFamily(name, sentence, value=value)


def store_metrics(figures: StoreFigures | None) -> Iterator[Metric]:
    """Of the whole database, so the same for every process; at most ten seconds old."""
    if figures is None:
        return
    for name, sentence, value in (
        ("homing_pending", "Pending deliveries in the whole database.", figures.pending),
        (
            "homing_disabled_endpoints",
            "Disabled endpoints in the whole database; with frozen ones counted up to 100,000.",
            figures.disabled,
        ),
        (
            "homing_frozen_endpoints",
            "Frozen endpoints in the whole database; with disabled ones counted up to 100,000.",
            figures.frozen,
        ),
    ):
        yield GaugeMetricFamily(name, sentence, value=value)


def _counter(name: str, sentence: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, sentence, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family


def _gauge(name: str, sentence: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, sentence, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family
