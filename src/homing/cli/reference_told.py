"""Generates two more reference pages from the code: Homing's own events, and the metrics.

The engine's own ``Notices`` writes the events, for an endpoint that exists only here, so the
examples are what subscribers get.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from homing.engine.engine import Pulse
from homing.engine.fleet_pulse import FleetPulse
from homing.engine.notices import Notices
from homing.engine.relay import RelayPulse
from homing.engine.stage import Stage
from homing.model import Endpoint, Health, State
from homing.policy.admission import EventDraft
from homing.policy.health import Change, HalfWay
from homing.web.fleet_metrics import fleet_metrics
from homing.web.metrics import metric_families
from homing.web.relay_metrics import relay_metrics

_AT = 1_767_225_600_000  # 2026-01-01
_MINUTE = 60_000


class _Desk:
    """Stands where the stage stands, and keeps what is written."""

    def __init__(self) -> None:
        self.drafts: list[EventDraft] = []

    def event(self, draft: EventDraft, **_: object) -> None:
        self.drafts.append(draft)


def events_page(made: str) -> str:
    lines = [
        made,
        "# Homing's own events",
        "",
        "Homing publishes these events in the tenant of the endpoint that they are about. "
        "Subscribe to `homing.*` like to any other type. An event about an endpoint is never sent "
        "to that endpoint, and is written in the same commit as the change that it reports. Times "
        "(`at`, `since`) are Unix milliseconds.",
    ]
    for name, meaning, data in _notices():
        lines += ["", f"## `{name}`", "", meaning, "", "```json"]
        lines += [json.dumps(data, indent=2, ensure_ascii=False), "```"]
    return "\n".join(lines) + "\n"


def _notices() -> Iterator[tuple[str, str, dict[str, Any]]]:
    desk = _Desk()
    notices = Notices(cast("Stage", desk), lambda: _AT)
    health = Health(state=State.ENABLED, since=_AT, enabled_since=_AT)
    endpoint = Endpoint(
        id=3_700_000_000_000_000_000,
        bucket=0,
        tenant="default",
        url="https://receiver.example/hook",
        created_at=_AT,
        generation=0,
        health=health,
    )
    rate = {"attempts": 101, "failures": 71, "limit_percent": 70}
    alone = {
        "consecutive_failures": 2_001,
        "limit": 2_000,
        "without_success_ms": 259_200_001,
        "limit_ms": 259_200_000,
    }
    row = {"consecutive_failures": 1_000, "limit": 2_000}
    disabled, frozen = State.DISABLED, State.FROZEN
    for meaning, change in (
        (
            "A rule disabled the endpoint: from now on it gets one probe every 10 minutes. `rule` "
            "is `failure_rate` or `consecutive_failures`; `numbers` are the counters and limits of "
            "that rule.",
            Change(State.ENABLED, disabled, "failure_rate", rate),
        ),
        (
            "A rule (`no_success`, `hopeless`) or a person (`frozen_by_person`, named in `by`) "
            "froze the endpoint: there are no attempts until a person enables it.",
            Change(disabled, frozen, "no_success", alone),
        ),
        (
            "The endpoint was enabled, by a successful probe (`success`) or by a person "
            "(`enabled_by_person`, named in `by`).",
            Change(disabled, State.ENABLED, "success", {"disabled_ms": 10 * _MINUTE}),
        ),
    ):
        notices.changed(endpoint, change, by="", now=_AT)
        yield _told(desk, meaning)
    notices.warning(endpoint, HalfWay("consecutive_failures", row), now=_AT)
    yield _told(
        desk, "Half of a rule's limit is reached. Published once, until the warning is withdrawn."
    )
    notices.dropped(endpoint, count=12, since=_AT - _MINUTE, now=_AT)
    yield _told(
        desk,
        "Deliveries to the endpoint were dropped. `count` is their number since the last such "
        "event; there is at most one event a minute.",
    )


def _told(desk: _Desk, meaning: str) -> tuple[str, str, dict[str, Any]]:
    draft = desk.drafts[-1]
    return draft.type, meaning, json.loads(draft.data)


# --- metrics --------------------------------------------------------------------------------


def metrics_page(made: str) -> str:
    lines = [
        made,
        "# Metrics",
        "",
        "`GET /metrics` returns the text format of Prometheus; it needs an API key. No label has a "
        "URL, a tenant or an id. Each server process has its own metrics. Those of buckets and "
        "heartbeats exist on PostgreSQL only, those of the outbox only where an outbox is relayed "
        "(`homing relay --metrics PORT` serves only these). The usual `process_…` metrics are "
        "there too.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    relay = relay_metrics(RelayPulse(), now=_AT)  # Only where an outbox is relayed.
    fleet = fleet_metrics(FleetPulse())  # Only on PostgreSQL.
    for family in (*metric_families(_pulse(), now=_AT), *fleet, *relay):
        end = "_total" if family.type == "counter" else ""
        labels = sorted({f"`{name}`" for sample in family.samples for name in sample.labels})
        lines.append(
            f"| `{family.name}{end}` | {family.type} | {', '.join(labels)} "
            f"| {family.documentation} |"
        )
    return "\n".join(lines) + "\n"


def _pulse() -> Pulse:
    """One of everything, so that every label shows."""
    one = {"one": 1}
    return Pulse(
        draining=False,
        store_ok=True,
        slots=one,
        in_flight=one,
        ready=one,
        due_since=None,
        unsettled=0,
        endpoints=one,
        published=0,
        accepted=0,
        finished=one,
        attempts={("fresh", "delivered"): 1},
        commits=one,
        memory_bytes=0,
    )
