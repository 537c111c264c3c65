"""Records a simulation as trace lines: attempts, changes of state, finished deliveries.

The recorder only observes the commits of the engine and the requests at receivers. Deliveries are
numbered from 1 in the order of acceptance. Lines are in order of time; lines of one millisecond are
in the order in which they counted, and attempts that begin in it and end later are in the order in
which they began.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count, groupby

import msgspec
from msgspec import Struct, field

from homing.engine.outage.detection import OutageView
from homing.model import (
    Attempt,
    Delivery,
    Endpoint,
    Finished,
    Outcome,
    State,
    Transition,
    show_id,
)
from homing.policy.outage import OutageState
from homing.ports import SettleBatch
from homing.sim.world import Hit, Watch

_FEW = 1 << 16
_HEADER = b"homing-delivery: "


class AttemptLine(Struct, frozen=True, kw_only=True, gc=False):
    """One request made for a delivery; ``at_ms`` is its start."""

    at_ms: int
    kind: str = "attempt"
    endpoint: str
    delivery: int
    attempt: int
    lane: str
    outcome: str
    code: int | None


class StateLine(Struct, frozen=True, kw_only=True):
    """An endpoint changed its state."""

    at_ms: int
    kind: str = "state"
    endpoint: str
    before: str = field(name="from")
    after: str = field(name="to")
    rule: str
    numbers: dict[str, int]


class FinishLine(Struct, frozen=True, kw_only=True, gc=False):
    """A delivery is finished."""

    at_ms: int
    kind: str = "finish"
    delivery: int
    status: str
    reason: str | None


Line = AttemptLine | StateLine | FinishLine


class Pause(Struct, frozen=True):
    """Sending was paused by a sender outage: failures were taken for sender-side ones."""

    from_ms: int
    to_ms: int
    why: str


class Trace(Struct, frozen=True):
    """Everything that happened, in order of time."""

    lines: tuple[Line, ...]
    homes: tuple[str, ...]  # of delivery n, at n - 1: the name of its endpoint
    accepted_ms: tuple[int, ...]  # when
    requests_ms: dict[str, tuple[int, ...]]  # receiver → the times of its requests
    sha256: str
    pauses: tuple[Pause, ...] = ()


def encode(lines: Iterable[Struct]) -> bytes:
    """The lines as JSON, one object per line."""
    return msgspec.json.Encoder().encode_lines(lines)


class Recorder(Watch):
    """Records the trace of a world."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._lines: list[Line] = []
        self._numbers: dict[int, int] = {}  # delivery id → its number
        self._names: dict[int, str] = {}  # endpoint id → its name
        self._counts: dict[int, tuple[int, int]] = {}  # endpoint id → attempts, failures in a row
        self._endpoints: list[str] = []
        self._accepted_ms: list[int] = []
        self._requests_ms: dict[str, list[int]] = {}
        self._by_url: dict[str, list[int]] = {}
        self._turn = count()
        self._began: dict[bytes, int] = {}  # the turn of each delivery's latest attempt
        self._turns: dict[int, int] = {}  # line → turn, of attempts that took some time
        self._pauses: list[Pause] = []
        self._paused: OutageView | None = None  # the present outage
        self.outage: Callable[[], OutageView] = OutageView  # the engine's present state

    def name_endpoint(self, endpoint_id: int, url: str, name: str) -> None:
        """Use this name for an endpoint in all later lines."""
        self._names[endpoint_id] = name
        self._by_url[url] = self._requests_ms[name] = []

    def number_of(self, delivery_id: int) -> int:
        return self._numbers[delivery_id]

    def trace(self, *, end_ms: int) -> Trace:
        """The trace up to the end."""
        self._note_outage()
        if self._paused is not None:
            self._pause_ended(end_ms)
        lines = self._in_order()
        digest = hashlib.sha256()
        for begin in range(0, len(lines), _FEW):
            digest.update(encode(lines[begin : begin + _FEW]))
        return Trace(
            lines=tuple(lines),
            homes=tuple(self._endpoints),
            accepted_ms=tuple(self._accepted_ms),
            requests_ms={name: tuple(times) for name, times in self._requests_ms.items()},
            sha256=digest.hexdigest(),
            pauses=tuple(self._pauses),
        )

    def _in_order(self) -> list[Line]:
        lines, turns = self._lines, self._turns
        order = sorted(range(len(lines)), key=lambda it: lines[it].at_ms)  # stable
        for _, moment in groupby(range(len(order)), key=lambda place: lines[order[place]].at_ms):
            places = [place for place in moment if order[place] in turns]
            if len(places) > 1:
                began = sorted((order[place] for place in places), key=turns.__getitem__)
                for place, line in zip(places, began, strict=True):
                    order[place] = line
        return [lines[it] for it in order]

    # --- events of a world -------------------------------------------------------------------

    def accepted(self, deliveries: Iterable[Delivery]) -> None:
        """Record deliveries that a publish or a replay committed."""
        for delivery in deliveries:
            self._endpoints.append(self._names[delivery.endpoint_id])
            self._accepted_ms.append(delivery.accepted_at - self._start_ms)
            self._numbers[delivery.id] = len(self._endpoints)

    def sent(self, hit: Hit) -> None:
        self._began[_delivery_in(hit.header_block)] = next(self._turn)

    def seen(self, hit: Hit) -> None:
        """Record a request at its receiver."""
        self._by_url[hit.url].append(hit.at - self._start_ms)

    def settled(self, batch: SettleBatch, gone: frozenset[int]) -> None:
        """Record each attempt, followed by the changes that it caused."""
        ends = {one.delivery.id: one for one in batch.finished if one.delivery.id not in gone}
        changes: dict[int, list[Transition]] = defaultdict(list)
        for change in batch.transitions:
            changes[change.endpoint_id].append(change)
        for attempt in batch.attempts:
            self._attempt(attempt)
            ahead = changes.get(attempt.endpoint_id)
            if ahead is not None and ahead and self._made(attempt, ahead[0]):
                self._change(ahead.pop(0))
            end = ends.pop(attempt.delivery_id, None)
            if end is not None:
                self._end(end)
        for rest in changes.values():
            for change in rest:
                self._change(change)
        for end in ends.values():
            self._end(end)
        for endpoint in batch.endpoints:
            self._count(endpoint)
        self._note_outage()

    def commanded(self, endpoint: Endpoint, transition: Transition | None) -> None:
        self._count(endpoint)
        if transition is not None:
            self._change(transition)

    def _note_outage(self) -> None:
        """Record the begin and the end of an outage, which come with an outcome."""
        outage = self.outage()
        if outage.state is OutageState.CONFIRMED:
            self._paused = outage
        elif self._paused is not None:
            self._pause_ended((outage.since or 0) - self._start_ms)

    def _pause_ended(self, at_ms: int) -> None:
        assert self._paused is not None
        begun_ms = (self._paused.since or 0) - self._start_ms
        self._pauses.append(Pause(begun_ms, at_ms, str(self._paused.why)))
        self._paused = None

    def _count(self, endpoint: Endpoint) -> None:
        health = endpoint.health
        self._counts[endpoint.id] = (health.attempts, health.consecutive_failures)

    def _made(self, attempt: Attempt, change: Transition) -> bool:
        """Whether this attempt caused the change, by the numbers in the change."""
        if attempt.outcome is Outcome.SENDER_ERROR:
            return False
        failed = attempt.outcome is Outcome.FAILED
        attempts, row = self._counts.get(attempt.endpoint_id, (0, 0))
        attempts, row = attempts + 1, row + 1 if failed else 0
        self._counts[attempt.endpoint_id] = (attempts, row)
        if change.after is State.ENABLED:
            return not failed
        named = change.numbers
        return (
            failed
            and named.get("attempts", attempts) == attempts
            and named.get("consecutive_failures", row) == row
        )

    # --- lines -------------------------------------------------------------------------------

    def _attempt(self, attempt: Attempt) -> None:
        if attempt.finished_at > attempt.started_at:
            delivery = show_id("dlv", attempt.delivery_id).encode()
            self._turns[len(self._lines)] = self._began[delivery]
        self._lines.append(
            AttemptLine(
                at_ms=attempt.started_at - self._start_ms,
                endpoint=self._names[attempt.endpoint_id],
                delivery=self._numbers[attempt.delivery_id],
                attempt=attempt.number,
                lane=attempt.lane.value,
                outcome=attempt.outcome.value,
                code=attempt.code,
            )
        )

    def _change(self, change: Transition) -> None:
        self._lines.append(
            StateLine(
                at_ms=change.at - self._start_ms,
                endpoint=self._names[change.endpoint_id],
                before=change.before.value,
                after=change.after.value,
                rule=change.rule,
                numbers=change.numbers,
            )
        )

    def _end(self, end: Finished) -> None:
        self._lines.append(
            FinishLine(
                at_ms=end.finished_at - self._start_ms,
                delivery=self._numbers[end.delivery.id],
                status=end.status.value,
                reason=None if end.reason is None else end.reason.value,
            )
        )


def _delivery_in(header_block: bytes) -> bytes:
    """The delivery's id, without parsing all headers."""
    begin = header_block.index(_HEADER) + len(_HEADER)
    return header_block[begin : header_block.index(b"\r", begin)]
