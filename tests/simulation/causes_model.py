"""The causes of every endpoint, kept attempt by attempt: why it fails, since when, how often.

The store adds up a whole batch and asks the database for what was there before; this model sees
one outcome at a time and keeps everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from homing.model import Attempt, Cause, CauseKey
from homing.policy.causes import key_of

HOUR = 3_600_000


@dataclass
class CauseModel:
    """One cause; ``opened_in`` is the batch in which it was last opened."""

    endpoint_id: int
    key: CauseKey
    first_seen: int
    last_seen: int
    opened_in: int
    attempts: int = 0
    deliveries: int = 0  # that came to it: their failed attempt before had another cause, or none
    closed_at: int | None = None

    @property
    def facts(self) -> tuple[object, ...]:
        times = (self.first_seen, self.last_seen, self.closed_at)
        return (self.endpoint_id, self.key, *times, self.attempts, self.deliveries)


class CausesModel:
    """All causes there ever were."""

    def __init__(self) -> None:
        self.all: list[CauseModel] = []
        self._newest: dict[tuple[int, CauseKey], CauseModel] = {}
        self._last: dict[int, CauseModel] = {}  # by delivery: of its last failed attempt
        self.failing: set[int] = set()  # endpoints that have failed since their last success

    def failed(self, attempt: Attempt, batch: int) -> None:
        """Count a failed attempt."""
        at, endpoint_id = attempt.finished_at, attempt.endpoint_id
        key = key_of(attempt.failure, attempt.detail, attempt.code)
        cause = self._newest.get((endpoint_id, key))
        if cause is None or (cause.closed_at is not None and at > cause.closed_at + HOUR):
            cause = CauseModel(endpoint_id, key, at, at, batch)
            self._newest[endpoint_id, key] = cause
            self.all.append(cause)
        elif cause.closed_at is not None:
            cause.opened_in = batch
        cause.closed_at, cause.last_seen = None, max(cause.last_seen, at)
        cause.attempts += 1
        cause.deliveries += self._last.get(attempt.delivery_id) is not cause
        self._last[attempt.delivery_id] = cause
        self.failing.add(endpoint_id)

    def succeeded(self, endpoint_id: int, at: int) -> None:
        """Close all causes of an endpoint."""
        self.failing.discard(endpoint_id)
        self.left(endpoint_id, at)

    def left(self, endpoint_id: int, at: int, *, opened_in: int | None = None) -> None:
        """No subscription uses the endpoint: close its causes, or those opened in this batch."""
        for cause in self.all:
            if cause.endpoint_id == endpoint_id and cause.closed_at is None:
                if opened_in is None:
                    cause.closed_at = max(at, cause.last_seen)
                elif cause.opened_in == opened_in:
                    cause.closed_at = cause.last_seen


def facts_of(cause: Cause) -> tuple[object, ...]:
    """A stored cause as the model has it."""
    times = (cause.first_seen, cause.last_seen, cause.closed_at)
    return (cause.endpoint_id, cause.key, *times, cause.attempts, cause.deliveries)
