"""The relay: reads rows from an outbox, publishes them, and only then deletes them.

A relay that is killed at any point loses no row and makes no duplicate: a row stays in the outbox
until it is published, and publishing it twice makes one event, because the row has the event's id.
The relay asks for the rows that are there, never for those after the last number it saw. Rows are
published in the order of their numbers: of two rows with one id and different data the first
becomes the event, and the later one is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog
from msgspec import Struct

from homing.errors import HomingError
from homing.policy import relaying
from homing.policy.nesting import LEVELS_RULE
from homing.ports import (
    Clock,
    NotAllowed,
    NotNow,
    OutboxRow,
    OutboxStats,
    OutboxStore,
    PublishRows,
    RelayedRows,
    RowsRefused,
)

log = structlog.get_logger("homing.relay")

STATS_EVERY_MS = 5_000
_NO_JSON = "data is not JSON"
_json = msgspec.json.Decoder(msgspec.Raw)


class RelayOptions(Struct, frozen=True):
    """The size of a batch, and how often the outbox is read without a notification."""

    rows_max: int = 500
    bytes_max: int = 4 * 1024 * 1024
    poll_ms: int = 1_000


class RelayPulse(Struct, frozen=True):
    """The state of the relay at this moment."""

    relayed: int = 0
    refused: int = 0  # since the start
    failures: int = 0  # in a row
    waiting: int = 0
    waiting_refused: int = 0
    oldest_at: int | None = None  # when the oldest waiting row was written, by this clock


class _Tally(Struct):
    """The results of the rows of one batch so far."""

    published: list[int] = []
    refused: list[tuple[int, str]] = []
    forbidden: list[tuple[int, str]] = []


class Relay:
    """Moves one outbox into Homing, until it is stopped."""

    def __init__(
        self,
        outbox: OutboxStore,
        publish: PublishRows,
        *,
        clock: Clock,
        random: Callable[[], float],
        options: RelayOptions | None = None,
    ) -> None:
        self._outbox, self._publish, self._clock, self._random = outbox, publish, clock, random
        self._options = options or RelayOptions()
        self._stopping = asyncio.Event()
        self._relayed = self._refused = self._failures = 0
        self._stats = OutboxStats()
        self._stats_at = self._refused_then = 0

    async def run(self) -> None:
        """Run until ``stop``; a batch that is being published then is finished."""
        while not self._stopping.is_set():
            try:
                moved = await self.step()
                await self._read_stats(idle=not moved)
            except (NotNow, HomingError) as error:
                await self._back_off(error)
                continue
            except Exception as error:
                log.exception("the relay failed unexpectedly; it tries again")
                await self._back_off(error)
                continue
            self._failures = 0
            if not moved:
                await self._rest(self._outbox.changed(within_s=self._options.poll_ms / 1000))

    def stop(self) -> None:
        self._stopping.set()

    async def close(self) -> None:
        await self._outbox.close()

    async def step(self) -> int:
        """Publish one batch; returns its number of rows. Raises NotNow or StoreUnavailable."""
        return await self._outbox.relay(
            self._take, limit=self._options.rows_max, bytes_max=self._options.bytes_max
        )

    def pulse(self) -> RelayPulse:
        stats = self._stats
        return RelayPulse(
            relayed=self._relayed,
            refused=self._refused,
            failures=self._failures,
            waiting=stats.waiting,
            waiting_refused=stats.refused,
            oldest_at=self._stats_at - stats.oldest_ms if stats.waiting else None,
        )

    async def _take(self, rows: Sequence[OutboxRow]) -> RelayedRows:
        """Publish rows and return the results; after a failure midway the rest keeps waiting."""
        tally = _Tally()
        reasons = [_problem(row.data) for row in rows]
        pairs = list(zip(rows, reasons, strict=True))
        good: Sequence[OutboxRow] = [row for row, reason in pairs if not reason]
        tally.refused += [(row.number, reason) for row, reason in pairs if reason]
        batches = deque([good] if good else [])
        try:
            while batches:  # In order: of two rows with one id the first is the event.
                parts = await self._publish_or_part(batches.popleft(), tally)
                batches.extendleft(reversed(parts))
        except NotNow:
            if not tally.published and not tally.refused:
                raise
        self._relayed += len(tally.published)
        if self._relayed:  # The key works for other rows, so this row is wrong.
            tally.refused += tally.forbidden
        elif tally.forbidden:
            raise NotNow(tally.forbidden[0][1])
        self._refused += len(tally.refused)
        for number, reason in tally.refused:
            log.warning("a row of the outbox was refused", number=number, reason=reason)
        return RelayedRows(tuple(tally.published), tuple(tally.refused))

    async def _publish_or_part(
        self, batch: Sequence[OutboxRow], tally: _Tally
    ) -> list[Sequence[OutboxRow]]:
        """Publish a batch, or return smaller batches to publish instead, to isolate bad rows."""
        try:
            await self._publish(batch)
        except RowsRefused as refusal:
            if len(batch) > 1:
                return relaying.apart(batch, relaying.named(refusal.problems))
            reason = relaying.reason_text(refusal.problems, refusal.detail)
            tally.refused.append((batch[0].number, reason))
        except NotAllowed as refusal:
            if len(batch) > 1:
                return relaying.apart(batch, set())
            tally.forbidden.append((batch[0].number, str(refusal)))
        else:
            tally.published += [row.number for row in batch]
        return []

    async def _read_stats(self, *, idle: bool) -> None:
        """Read the statistics for the metrics: every few seconds, and at once when idle."""
        now = self._clock.now()
        stale = self._stats.waiting or self._refused != self._refused_then
        if now - self._stats_at >= STATS_EVERY_MS or (idle and stale):
            self._stats = await self._outbox.stats()
            self._stats_at, self._refused_then = now, self._refused

    async def _back_off(self, error: Exception) -> None:
        retry_after_s = error.retry_after_s if isinstance(error, NotNow) else None
        pause = relaying.pause_s(self._failures, retry_after_s=retry_after_s, random=self._random())
        self._failures += 1
        log.warning("the relay pauses after a failure", reason=str(error), pause_s=round(pause, 1))
        with contextlib.suppress(Exception):
            await self._read_stats(idle=True)
        await self._rest(asyncio.sleep(pause))

    async def _rest(self, until: Awaitable[None]) -> None:
        """Wait for ``until``, or until the relay is stopped."""
        resting = asyncio.ensure_future(until)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((resting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (resting, stopping):
                task.cancel()
            await asyncio.gather(resting, stopping, return_exceptions=True)


def _problem(data: bytes) -> str:
    """Why data is not one JSON value with nothing after it: a row must not become two events.

    Empty if it is.
    """
    try:
        _json.decode(data)
    except msgspec.DecodeError:
        return _NO_JSON
    except RecursionError:
        return f"data {LEVELS_RULE}"
    return ""
