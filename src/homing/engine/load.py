"""Reads from the store the rows that queues want: many endpoints in one statement.

Tenants take turns, then endpoints. While the queues are full, or a tenant has its share of them,
only rows that can be sent at once are read. An endpoint whose tenant has enough of those already is
postponed, and asks again when one of them has been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

import structlog
from msgspec.structs import replace

from homing.engine.capacity import Capacity
from homing.engine.queue import LANES, EndpointQueue
from homing.errors import HomingError
from homing.model import Lane, Work
from homing.policy.turns import Turns
from homing.ports import Clock, DueAsk, DueRows, EndpointStart, FlowStore

log = structlog.get_logger("homing.load")

LOAD_MAX = 256  # endpoints in one statement: a publish may have to wait for it, 5 ms or so
ROWS_MAX = 512  # in one statement, approximately
ROWS_MIN = 16
NEW_MAX = 1_000  # rows for one endpoint
AGAIN_MS = 1_000  # after a failed call of the store


class _Asked:
    """The rows wanted for one endpoint, and its queue's notes about the store before the load."""

    __slots__ = ("ask", "fresh", "known", "more_fresh", "next_due", "queue", "retry")

    def __init__(self, queue: EndpointQueue, fresh: int, retry: int) -> None:
        self.queue, self.fresh, self.retry = queue, fresh, retry  # numbers of new rows
        self.more_fresh, self.next_due = queue.more_fresh, queue.next_due
        self.known = queue.known()
        here = len(queue.in_flight) + queue.aside_count  # These rows are read again.
        self.ask = DueAsk(
            endpoint_id=queue.endpoint.id,
            bucket=queue.endpoint.bucket,
            enabled_since=queue.endpoint.health.enabled_since,
            fresh=fresh + here + len(queue.fresh) if fresh and queue.more_fresh else 0,
            retry=retry + here + len(queue.retry) + queue.paced if retry else 0,
            after_part=queue.after_part,
            paused=queue.paused,
            seen=queue.seen,
        )


class Loader:
    """Runs one load at a time; requests made meanwhile, or by a load that failed, are read next."""

    def __init__(
        self,
        flow: FlowStore,
        clock: Clock,
        capacity: Capacity,
        *,
        on_start: Callable[[EndpointStart], object],
        reschedule: Callable[[EndpointQueue], None],
    ) -> None:
        self._flow, self._clock, self._capacity = flow, clock, capacity
        self._on_start, self._reschedule = on_start, reschedule
        self._wanting: dict[Lane, Turns[EndpointQueue]] = {it: Turns() for it in LANES}
        self.postponed: dict[str, dict[tuple[Lane, EndpointQueue], None]] = {}  # by tenant
        self._last_lane = LANES[-1]
        self._unknown: dict[int, None] = {}  # endpoints to read
        self.reading: set[int] = set()  # endpoints that are being read: the result may be outdated
        self._row_bytes = 64 * 1024  # of event data; a guess until rows have been read
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None  # a read that failed is tried again
        self._task: asyncio.Task[None] | None = None

    def endpoint(self, endpoint_id: int) -> None:
        """Read this endpoint, for the first time or again."""
        self._unknown[endpoint_id] = None
        self.go()

    def is_asked_for(self, endpoint_id: int) -> bool:
        """Whether this endpoint is to be read, for the first time or again."""
        return endpoint_id in self._unknown

    def rows(self, queue: EndpointQueue, lane: Lane) -> None:
        """Read the next rows of this endpoint and lane."""
        self._wanting[lane].add(queue.endpoint.tenant, queue)
        self.go()

    def ask_next_postponed(self, queue: EndpointQueue) -> None:
        """Let the next postponed endpoint of this tenant ask for rows: a delivery was sent."""
        if there := self.postponed.get(queue.endpoint.tenant):
            lane, first = next(iter(there))
            del there[lane, first]
            if not there:
                del self.postponed[queue.endpoint.tenant]
            self.rows(first, lane)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.go()

    def go(self) -> None:
        """Start a load if rows are wanted and there is memory for them."""
        if self._task is None and self._may_go():
            self._task = asyncio.get_running_loop().create_task(self._load())

    def _may_go(self) -> bool:
        if self._paused:
            return False
        return bool(self._unknown) or self._may_read()

    def _may_read(self) -> bool:
        if not any(self._wanting.values()):
            return False
        return any(self._wanting[lane] for lane in self._capacity.lanes_to_read())

    async def _load(self) -> None:
        try:
            while self._may_go():
                if self._unknown:
                    await self._load_endpoints()
                if self._may_read():
                    await self._load_rows()
        except Exception as error:
            log.error(
                "pending deliveries could not be read; the next try is in a second",
                error=str(error),
                exc_info=_bug(error),
            )
            self._timer = asyncio.get_running_loop().call_later(AGAIN_MS / 1000, self._again)
        else:
            self._task = None

    def _again(self) -> None:
        self._task = self._timer = None
        self.go()

    def try_now(self) -> None:
        """Retry the failed read now: the store works again."""
        if self._timer is not None:
            self._timer.cancel()
            self._again()

    async def _load_endpoints(self) -> None:
        ids = list(islice(self._unknown, LOAD_MAX))
        for endpoint_id in ids:  # Before the read: an endpoint asked for during it is not lost.
            del self._unknown[endpoint_id]
        self.reading.update(ids)
        try:
            starts = await self._flow.endpoints(ids)
        except Exception:
            self._unknown.update(dict.fromkeys(ids))
            raise
        finally:
            self.reading.clear()
        for start in starts:
            # Asked for again: a delivery that was committed meanwhile goes before later ones.
            again = start.endpoint.id in self._unknown
            self._on_start(replace(start, first=True) if again else start)

    async def _load_rows(self) -> None:
        now = self._clock.now()
        asked = self._choose(now)
        if not asked:
            return
        try:
            results = await self._flow.due([it.ask for it in asked], now=now)
        except Exception:
            for it in asked:
                it.queue.end_load()
                self._as_it_was(it)
            raise
        self._note_sizes(results)
        for it, result in zip(asked, results, strict=True):
            queue, known = it.queue, it.known | it.queue.end_load()
            if queue.stale or it.ask.enabled_since != queue.endpoint.health.enabled_since:
                # Rows have moved, or the endpoint was enabled, which changes the lanes of rows.
                self._as_it_was(it)
                continue
            if it.ask.paused:
                queue.read_up_to(result.seen)
            queue.note_in_store(  # A lane that was not asked for keeps its notes.
                more_fresh=it.more_fresh if it.ask.fresh == 0 else result.more_fresh,
                next_due=it.next_due if it.ask.retry == 0 else result.next_due,
            )
            fresh, later = _new(result.fresh, known, it.fresh)
            queue.note_in_store(more_fresh=bool(later))
            if it.ask.paused:
                queue.read_all_again(later)
            retry, later = _new(result.retry, known, it.retry)
            queue.note_in_store(next_due=later[0].delivery.due_at if later else None)
            if it.ask.paused:
                queue.read_all_again(later)
            queue.loaded(fresh, retry, now=self._clock.now())
            self._reschedule(queue)
            self.ask_next_postponed(queue)

    def _choose(self, now: int) -> list[_Asked]:
        """Choose the endpoints whose rows are read next: no more than there is memory for."""
        lanes, full = self._capacity.lanes_to_read(), self._capacity.memory.room <= 0
        left = min(ROWS_MAX, max(ROWS_MIN, self._capacity.memory.room // self._row_bytes))
        asked: list[_Asked] = []
        while left > 0 and len(asked) < LOAD_MAX and (found := self._next(lanes)) is not None:
            lane, queue = found  # A queue without a gap asks again when an attempt has ended.
            at_once = full or not self._capacity.may_queue(queue)
            if queue.wants(lane, now, at_once=at_once):
                if at_once and not self._capacity.goes_at_once(queue, lane):
                    self.postponed.setdefault(queue.endpoint.tenant, {})[lane, queue] = None
                    continue
                if at_once:
                    fresh, retry = (queue.gap(it) if it in lanes else 0 for it in LANES)
                else:  # Those in flight are read again, so ask for as many new ones.
                    here = min(len(queue.in_flight), NEW_MAX)
                    fresh = retry = max(2 * queue.ramp.slots, here)
                    if len(queue.fresh) > fresh and not queue.fair:
                        fresh = 0  # The whole queue would be read again.
                half = (left + 1) // 2  # for each lane
                asked.append(_Asked(queue, min(fresh, half), min(retry, half)))
                left -= asked[-1].ask.fresh + asked[-1].ask.retry
                queue.begin_load()
        return asked

    def _as_it_was(self, asked: _Asked) -> None:
        asked.queue.note_in_store(more_fresh=asked.more_fresh, next_due=asked.next_due)
        self._reschedule(asked.queue)  # Its state may have changed meanwhile.

    def _next(self, lanes: tuple[Lane, ...]) -> tuple[Lane, EndpointQueue] | None:
        """Take the next queue that wants rows: lanes take turns, then tenants, then endpoints."""
        if len(lanes) > 1 and lanes[0] is self._last_lane:
            lanes = lanes[::-1]
        for lane in lanes:
            queue = self._wanting[lane].next()
            if queue is not None:
                self._wanting[lane].discard(queue.endpoint.tenant, queue)
                self._last_lane = lane
                return lane, queue
        return None

    def _note_sizes(self, results: list[DueRows]) -> None:
        """Note how large rows are: the next load asks for no more than fits."""
        works = [work for result in results for work in (*result.fresh, *result.retry)]
        if works:
            mean = sum(len(work.event.data) for work in works) // len(works)
            self._row_bytes = max(1024, (self._row_bytes + mean) // 2)


def _bug(error: Exception) -> bool:
    """Whether an error is not part of the error tree, so that its trace is logged."""
    return not isinstance(error, HomingError)


def _new(works: Sequence[Work], known: set[int], limit: int) -> tuple[list[Work], list[Work]]:
    """The rows that are not in memory yet: the wanted ones, and those that stay in the store."""
    if not works:
        return [], []
    new = [work for work in works if work.delivery.id not in known]
    return new[:limit], new[limit:]
