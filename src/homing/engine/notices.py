"""Notices: what Homing reports about an endpoint, as events of its tenant and to people.

A notice about an endpoint never goes to that endpoint. It is written in the same commit as the
change that it reports. Notices to people are made only while there are targets that get
them (``PeopleNotices``); the store then writes one record for each target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from homing.engine.catalog import Catalog
from homing.engine.fan_out import FanOut
from homing.model import Endpoint, Ids, Transition, show_id
from homing.policy.admission import EventDraft
from homing.policy.explain import explain_change
from homing.policy.failure_text import failure_text
from homing.policy.health import Change, HalfWay
from homing.policy.notices import Notice, NoticeKind, is_first_drop, notice_of, text_facts
from homing.ports import NewEvent, Response


class Notices:
    """Writes notices as events with their deliveries."""

    def __init__(self, fan_out: FanOut, wall: Callable[[], int]) -> None:
        self._fan_out, self._wall = fan_out, wall

    def changed(self, endpoint: Endpoint, change: Change, *, by: str, now: int) -> NewEvent:
        """``homing.endpoint.enabled``, ``.disabled`` or ``.frozen``."""
        text = explain_change(change.before, change.after, change.rule, change.numbers, by)
        return self._write(
            f"homing.endpoint.{change.after.value}",
            endpoint,
            now,
            before=change.before.value,
            state=change.after.value,
            rule=change.rule,
            numbers=change.numbers,
            by=by,
            explanation=str(text),
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

    def gone(self, endpoint: Endpoint, subscription_id: int, *, now: int) -> NewEvent:
        """``homing.subscription.gone``: the receiver responded with 410."""
        shown = show_id("sub", subscription_id)
        return self._write("homing.subscription.gone", endpoint, now, subscription=shown)

    def _write(self, event_type: str, endpoint: Endpoint, now: int, **facts: Any) -> NewEvent:
        data = {"endpoint": show_id("ep", endpoint.id), "url": endpoint.url, "at": now, **facts}
        draft = EventDraft(tenant=endpoint.tenant, type=event_type, data=msgspec.json.encode(data))
        return self._fan_out.event(draft, now=now, wall=self._wall(), not_to_endpoint=endpoint.id)


class PeopleNotices:
    """Makes the notices to people; none while there is no target."""

    def __init__(self, catalog: Catalog, ids: Ids) -> None:
        self._catalog, self._ids = catalog, ids

    @property
    def has_targets(self) -> bool:
        return self._catalog.has_notice_targets

    def changed(
        self, endpoint: Endpoint, transition: Transition, last: Response | None = None
    ) -> tuple[Notice, ...]:
        """An endpoint was disabled, frozen or enabled; the notice has the id of the transition."""
        if not self._catalog.has_notice_targets:
            return ()
        facts = {
            "before": transition.before.value,
            "after": transition.after.value,
            "rule": transition.rule,
            "numbers": transition.numbers,
            "by": transition.by,
            **_last(last),
        }
        kind = notice_of(transition.after)
        return (self._about(endpoint, kind, transition.at, facts, number=transition.id),)

    def warning(
        self, endpoint: Endpoint, half_way: HalfWay, *, now: int, last: Response | None = None
    ) -> tuple[Notice, ...]:
        """Half of a limit is reached."""
        if not self._catalog.has_notice_targets:
            return ()
        facts = {"rule": half_way.rule, "numbers": half_way.numbers, **_last(last)}
        return (self._about(endpoint, NoticeKind.WARNING, now, facts),)

    def dropped(
        self, endpoint: Endpoint, *, count: int, since: int, now: int
    ) -> tuple[Notice, ...]:
        """Deliveries were dropped, for the first time in a day."""
        if not self._catalog.has_notice_targets or not is_first_drop(since, now=now):
            return ()
        return (self._about(endpoint, NoticeKind.FIRST_DROP, now, {"count": count}),)

    def gone(self, endpoint: Endpoint, subscription_id: int, *, now: int) -> tuple[Notice, ...]:
        """A receiver responded with 410, and its subscription is inactive."""
        if not self._catalog.has_notice_targets:
            return ()
        facts = {"subscription": show_id("sub", subscription_id)}
        return (self._about(endpoint, NoticeKind.GONE, now, facts),)

    def _about(
        self,
        endpoint: Endpoint,
        kind: NoticeKind,
        at: int,
        facts: dict[str, Any],
        *,
        number: int | None = None,
    ) -> Notice:
        number = self._ids.take(at) if number is None else number
        return Notice(number, kind, at, endpoint.tenant, endpoint.id, endpoint.url, facts)


def _last(response: Response | None) -> dict[str, Any]:
    """The last failure in a few words, as facts of a notice; empty: unknown."""
    if response is None:
        return {"last": ""}
    return text_facts("last", failure_text(response.code, response.failure, response.detail))
