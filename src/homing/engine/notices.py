"""Notices: events that Homing itself publishes to a tenant about one of its endpoints.

A notice about an endpoint never goes to that endpoint. It is written in the same commit as the
change that it reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from homing.engine.fan_out import FanOut
from homing.model import Endpoint, show_id
from homing.policy.admission import EventDraft
from homing.policy.explain import explain_change
from homing.policy.health import Change, HalfWay
from homing.ports import NewEvent


class Notices:
    """Writes notices as events with their deliveries."""

    def __init__(self, fan_out: FanOut, wall: Callable[[], int]) -> None:
        self._fan_out, self._wall = fan_out, wall

    def changed(self, endpoint: Endpoint, change: Change, *, by: str, now: int) -> NewEvent:
        """``homing.endpoint.enabled``, ``.disabled`` or ``.frozen``."""
        sentence = explain_change(change.before, change.after, change.rule, change.numbers, by)
        return self._write(
            f"homing.endpoint.{change.after.value}",
            endpoint,
            now,
            before=change.before.value,
            state=change.after.value,
            rule=change.rule,
            numbers=change.numbers,
            by=by,
            explanation=sentence,
        )

    def warning(self, endpoint: Endpoint, half_way: HalfWay, *, now: int) -> NewEvent:
        """``homing.endpoint.warning``: half of a limit is reached."""
        return self._write(
            "homing.endpoint.warning",
            endpoint,
            now,
            state=endpoint.health.state.value,
            rule=half_way.rule,
            numbers=half_way.numbers,
        )

    def dropped(self, endpoint: Endpoint, *, count: int, since: int, now: int) -> NewEvent:
        """``homing.delivery.dropped``: how many since the last such notice."""
        return self._write("homing.delivery.dropped", endpoint, now, count=count, since=since)

    def _write(self, event_type: str, endpoint: Endpoint, now: int, **facts: Any) -> NewEvent:
        data = {"endpoint": show_id("ep", endpoint.id), "url": endpoint.url, "at": now, **facts}
        draft = EventDraft(tenant=endpoint.tenant, type=event_type, data=msgspec.json.encode(data))
        return self._fan_out.event(draft, now=now, wall=self._wall(), not_to_endpoint=endpoint.id)
