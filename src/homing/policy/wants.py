"""What a subscription wants beyond its types: its filters, and what the Workfront door adds.

Most want nothing more, and cost nothing. For the others an event's data is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from homing.model import Event, Subscription
from homing.policy.filters import NO_FILTERS, read_filters
from homing.policy.filters_run import compiled, read_data, run, show_value
from homing.policy.match import type_matches
from homing.policy.workfront import STATES, V1, collapse_states

Wants = Callable[[Any, int], bool]  # the event's data, and now


def wants_of(subscription: Subscription) -> Wants | None:
    """Whether it wants an event of its types; None if it wants them all."""
    if subscription.filters == NO_FILTERS and subscription.workfront is None:
        return None
    test = compiled(read_filters(subscription.filters, subscription.connector))
    own = subscription.workfront
    if own is None:
        return lambda data, _now: test(data)
    until, object_id, collapsed = own.until, own.object_id, own.version == V1

    def wants(data: Any, now: int) -> bool:
        if until is not None and now >= until:
            return False
        if object_id is not None and not _is_of(data, object_id):
            return False
        return test(collapse_states(data) if collapsed else data)

    return wants


def picked(
    found: list[Subscription], wants: Mapping[int, Wants], data: bytes, *, now: int
) -> list[Subscription]:
    """Those of them that want this event; its data is read at most once."""
    if not any(one.id in wants for one in found):
        return found
    seen = read_data(data)
    return [one for one in found if (test := wants.get(one.id)) is None or test(seen, now)]


def why_not(subscription: Subscription, event: Event, data: Any, *, now: int) -> str | None:
    """Why it does not want this event, as it is now; None if it does."""
    if not any(type_matches(pattern, event.type) for pattern in subscription.types):
        return f"Its types do not match {event.type}."
    own = subscription.workfront
    if own is not None:
        if own.until is not None and now >= own.until:
            return "It stood in for the old version, for five minutes."
        if own.object_id is not None and not _is_of(data, own.object_id):
            return f"It is for the object {show_value(own.object_id)} only."
        if own.version == V1:
            data = collapse_states(data)
    verdict = run(read_filters(subscription.filters, subscription.connector), data)
    return None if verdict.matches else verdict.sentence


def why_unmatched(subscription: Subscription, event: Event, data: Any, *, now: int) -> str | None:
    """Why an event of the past did not go to it; None if nothing speaks against it."""
    if subscription.id > event.id:  # Ids are in order of time.
        return "It was created after the event was accepted."
    if (reason := why_not(subscription, event, data, now=now)) is not None:
        return reason
    if not subscription.active:
        return "It is not active."
    if subscription.updated_at >= event.accepted_at and subscription.updated_at > (
        subscription.created_at
    ):
        return "It was changed after the event was accepted; as it is now, it would match."
    return None


def _is_of(data: Any, object_id: str) -> bool:
    """Whether this object is the one that was changed: its ID is in either state."""
    if data.__class__ is not dict:
        return False
    states = (data.get(side) for side in STATES)
    return any(state.__class__ is dict and state.get("ID") == object_id for state in states)
