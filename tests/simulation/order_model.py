"""A second reading of what-homing-promises.md#order-by-key: who waits for whom, and who is next.

Of one subscription and key, unfinished deliveries stand in the order of their commits. A new one of
a subscription with an order is blocked while any other is unfinished, or was cancelled and may
still be in flight. When none is left that is not blocked, the first of the others goes next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulation.health_model import DeliveryModel

Key = tuple[int, str]


@dataclass
class Line:
    """The deliveries of one subscription and key."""

    free: set[int] = field(default_factory=set)  # unfinished, and not blocked
    blocked: list[int] = field(default_factory=list)
    held: set[int] = field(default_factory=set)  # cancelled, and maybe in flight
    last: int = 0  # the highest place of which an attempt has started
    since: int = 0  # when the first event was accepted since then; 0: none was


@dataclass
class OrderModel:
    """The lines of all keys."""

    lines: dict[Key, Line] = field(default_factory=dict)
    places: int = 0
    replays: set[int] = field(default_factory=set)

    def line(self, delivery: DeliveryModel) -> Line:
        return self.lines.setdefault(key_of(delivery), Line())

    def stored(self, delivery: DeliveryModel, *, ordered: bool) -> None:
        """It is committed, behind all others of its key."""
        line = self.line(delivery)
        self.places += 1
        if delivery.replay:
            self.replays.add(delivery.id)
        else:
            line.since = line.since or delivery.accepted_at
        delivery.place, delivery.ordered = self.places, ordered
        delivery.blocked = ordered and bool(line.free or line.blocked or line.held)
        if delivery.blocked:
            line.blocked.append(delivery.id)
        else:
            line.free.add(delivery.id)

    def finished(self, delivery: DeliveryModel, *, maybe_in_flight: bool) -> None:
        """It is finished; ``maybe_in_flight``: by somebody who does not know of its attempts."""
        line = self.line(delivery)
        if delivery.id in line.free and maybe_in_flight:
            line.held.add(delivery.id)
        line.free.discard(delivery.id)
        if delivery.blocked:
            line.blocked.remove(delivery.id)
            delivery.blocked = False

    def released(self, delivery: DeliveryModel) -> bool:
        """Its attempt is over; whether its key waited for that."""
        line = self.line(delivery)
        if delivery.id not in line.held:
            return False
        line.held.remove(delivery.id)
        return True

    def next_of(self, keys: Iterable[Key]) -> set[int]:
        """The deliveries of these keys that go next."""
        lines = [self.lines.get(key, Line()) for key in keys]
        return {it.blocked[0] for it in lines if it.blocked and not it.free and not it.held}

    def newest_of(self, delivery: DeliveryModel) -> int | None:
        """The newest event of its key that waits; replays are no events."""
        waiting = [it for it in self.line(delivery).blocked if it not in self.replays]
        return waiting[-1] if waiting else None

    def instead_of(self, delivery: DeliveryModel) -> int | None:
        """The newest event of its key, if nothing else of the key may be attempted.

        Several may if they were accepted while there was no order; the newest goes after them.
        """
        line = self.line(delivery)
        return None if line.held or line.free != {delivery.id} else self.newest_of(delivery)

    def before(self, delivery: DeliveryModel) -> list[int]:
        """The blocked deliveries of its key before it."""
        blocked = self.line(delivery).blocked
        return blocked[: blocked.index(delivery.id)]

    def first_of(self, delivery: DeliveryModel) -> int | None:
        """The first event of its key that waits."""
        return next((it for it in self.line(delivery).blocked if it not in self.replays), None)

    def superseded_before(
        self, newest: DeliveryModel, *, limit: int, keep_first: bool = False
    ) -> list[int]:
        """What one step supersedes; while the key waits for quiet, not its first event."""
        first = self.first_of(newest) if keep_first else None
        return [it for it in self.before(newest)[:limit] if it != first]

    def unblocked(self, delivery: DeliveryModel) -> None:
        line = self.line(delivery)
        line.blocked.remove(delivery.id)
        line.free.add(delivery.id)
        delivery.blocked = False


def key_of(delivery: DeliveryModel) -> Key:
    return delivery.subscription_id, delivery.key
