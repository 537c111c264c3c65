"""Which events of its types a subscription wants: its filters, and its Workfront conditions.

Most subscriptions have neither, and cost nothing. For the others the data of an event is read once.
Short work is done at once (``picked``), long work in slices (``picking``), with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec import Struct

from homing.languages.sentences import Sentence, say
from homing.model import Event, Subscription
from homing.policy.exact import decoding
from homing.policy.filters import NO_FILTERS, Filters, comparisons, read_filters
from homing.policy.filters_reading import SLICE_STEPS, CollapseWalk, OutOfSteps, Reading
from homing.policy.filters_run import compiled, read_data, run, show_value
from homing.policy.match import type_matches
from homing.policy.workfront import STATES, V1

AT_ONCE_STEPS = 64  # comparisons that are made without slices
AT_ONCE_BYTES = 64 * 1024  # of data that is read in one turn
_COLLAPSED_STEPS = 256
BYTES_A_STEP = 128  # of data that is read count as one step


class Wants(Struct, frozen=True):
    """Whether a subscription wants an event of its types."""

    # Takes the data, the time and a reading. Raises OutOfSteps if there is no reading and a part
    # of the data is long, and if the slice of the reading is used up.
    ask: Callable[[Any, int, Reading | None], bool]
    steps: int  # the largest number of comparisons, if no part of the data is long


class TenantWants(dict[int, Wants]):
    """The conditions of one tenant's subscriptions by id, without those that want all events."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0  # the sum

    def put(self, number: int, wants: Wants | None) -> None:
        """Replace the conditions of a subscription; None: it has none."""
        before = self.pop(number, None)
        if before is not None:
            self.steps -= before.steps
        if wants is not None:
            self[number] = wants
            self.steps += wants.steps


def wants_of(subscription: Subscription) -> Wants | None:
    """The conditions of a subscription; None if it wants all events of its types."""
    if subscription.filters == NO_FILTERS and subscription.workfront is None:
        return None
    filters = read_filters(subscription.filters, subscription.filter_connector)
    test, steps, own = compiled(filters), comparisons(filters) + 1, subscription.workfront
    if own is None:
        return Wants(lambda data, _now, reading: test(data, reading), steps)
    until, object_id, collapsed = own.until, own.object_id, own.version == V1

    def ask(data: Any, now: int, reading: Reading | None) -> bool:
        if until is not None and now >= until:
            return False
        if object_id is not None and not _is_of(data, object_id):
            return False
        return test(_collapsed(data, reading) if collapsed else data, reading)

    return Wants(ask, steps)


def _collapsed(data: Any, reading: Reading | None) -> Any:
    """An event's data as filters of version ``v1`` see it."""
    if data.__class__ is not dict:
        return data
    if reading is not None:
        return reading.collapsed(data, STATES)
    walk = CollapseWalk(data, STATES)
    walk.go_on(_COLLAPSED_STEPS, None)
    if walk.result is None:
        raise OutOfSteps
    return walk.made


def picked(
    found: list[Subscription], wants: TenantWants, data: bytes, *, now: int
) -> list[Subscription]:
    """The subscriptions that want this event; its data is read at most once.

    Raises OutOfSteps if that takes long: use ``picking`` then.
    """
    if not any(one.id in wants for one in found):
        return found
    if wants.steps > AT_ONCE_STEPS and steps_of(found, wants) > AT_ONCE_STEPS:
        raise OutOfSteps
    if len(data) > AT_ONCE_BYTES:
        raise OutOfSteps
    seen = read_data(data)
    return [
        one for one in found if (test := wants.get(one.id)) is None or test.ask(seen, now, None)
    ]


def steps_of(found: list[Subscription], wants: TenantWants) -> int:
    """The number of comparisons for all of them, if no part of the data is long."""
    return sum(test.steps for one in found if (test := wants.get(one.id)) is not None)


def picking(
    found: list[Subscription], wants: Mapping[int, Wants], data: bytes, *, now: int, steps: int
) -> Generator[None, int, tuple[list[Subscription], int]]:
    """As ``picked``, in slices: begins with ``steps``, and is sent the steps of the next slice.

    Returns the subscriptions that want the event, and the steps left of the last slice.
    """
    kept: list[Subscription] = []
    reading: Reading | None = None
    for one in found:
        test = wants.get(one.id)
        if test is not None:
            if reading is None:
                if steps < SLICE_STEPS // 2:  # Data is decoded with a whole slice.
                    steps = yield
                seen, steps = yield from decoding(data, steps)
                reading = Reading(seen, steps)
            while True:
                if reading.left < 0:
                    reading.left = yield
                try:
                    wanted = test.ask(reading.data, now, reading)
                except OutOfSteps:
                    continue
                break
            reading.left -= test.steps
            reading.spent += test.steps
            if not wanted:
                continue
        kept.append(one)
    return kept, steps if reading is None else reading.left


def picked_whole(
    found: list[Subscription], wants: TenantWants, data: bytes, *, now: int
) -> list[Subscription]:
    """As ``picked``, however long it takes: for the events that Homing itself publishes."""
    try:
        return picked(found, wants, data, now=now)
    except OutOfSteps:
        slices = picking(found, wants, data, now=now, steps=SLICE_STEPS)
    try:
        next(slices)
        while True:
            slices.send(SLICE_STEPS)
    except StopIteration as end:
        kept: list[Subscription] = end.value[0]
        return kept


def why_not(
    subscription: Subscription, event: Event, reading: Reading, *, now: int
) -> Sentence | None:
    """Why a subscription does not want this event now; None if it does. Raises OutOfSteps."""
    if not any(type_matches(pattern, event.type) for pattern in subscription.types):
        return say("Its types do not match {type}.", type=event.type)
    own, data = subscription.workfront, reading.data
    if own is not None:
        if own.until is not None and now >= own.until:
            return say("It stood in for the old version, for five minutes.")
        if own.object_id is not None and not _is_of(data, own.object_id):
            return say("It is for the object {id} only.", id=show_value(own.object_id))
        if own.version == V1:
            data = _collapsed(data, reading)
    filters = reading.kept.get(("filters", subscription.id))
    if not isinstance(filters, Filters):  # The same in every slice: ``run`` knows them by identity.
        filters = read_filters(subscription.filters, subscription.filter_connector)
        reading.kept["filters", subscription.id] = filters
    verdict = run(filters, data, reading)
    return None if verdict.matches else verdict.sentence


def why_unmatched(
    subscription: Subscription, event: Event, reading: Reading, *, now: int
) -> Sentence | None:
    """Why a past event did not go to a subscription; None if no reason is known.

    Raises OutOfSteps when the slice is used up; called again, it continues.
    """
    if subscription.id > event.id:  # Ids are in order of time.
        return say("It was created after the event was accepted.")
    if (reason := why_not(subscription, event, reading, now=now)) is not None:
        return reason
    if not subscription.active:
        return say("It is not active.")
    if subscription.is_unverified:
        return say("Its receiver has not proved that it owns the URL.")
    if subscription.updated_at >= event.accepted_at and subscription.updated_at > (
        subscription.created_at
    ):
        return say("It was changed after the event was accepted; as it is now, it would match.")
    return None


def _is_of(data: Any, object_id: str) -> bool:
    """Whether the event is about this object: its ID is in either state."""
    if data.__class__ is not dict:
        return False
    states = (data.get(side) for side in STATES)
    return any(state.__class__ is dict and state.get("ID") == object_id for state in states)
