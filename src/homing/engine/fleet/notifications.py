"""Messages to and from the other processes: work for their buckets, changes by people, topics.

New messages are gathered while the last ones are on their way: however much is published, one call
of the bus runs at a time. Nothing depends on a message: a process that misses one finds the same
rows by polling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from homing.errors import HomingError
from homing.policy.quota import Spent
from homing.ports import NotificationBus

log = structlog.get_logger("homing.notifications")

PLACES_MAX = 80  # in one message: PostgreSQL takes less than 8,000 bytes
SPENT_MAX = 40  # uses of quotas in one message
MESSAGES_MAX = 50  # at a time; the places beyond them are found by polling

Place = tuple[int, int]  # bucket, endpoint
From = tuple[int, int]  # due from this time on; first attempts: from this position on


class PeerMessage(Struct, frozen=True, omit_defaults=True):
    """A message of one process to all others."""

    sender: int
    work: list[Place] = []
    changed: list[Place] = []
    topics: list[str] = []
    acts: int = 0  # the version of the catalog on which the sender acts
    spent: list[Spent] = []  # of the quotas of tenants
    since: list[From] = []  # of ``work``: which of its deliveries are new


class PeerNotifier:
    """Sends messages, and calls a function for each part of a received one."""

    def __init__(self, bus: NotificationBus, *, me: int) -> None:
        self._bus, self._me = bus, me
        self._work: dict[Place, From] = {}
        self._changed: dict[Place, None] = {}
        self._topics: dict[str, None] = {}
        self._acts = 0
        self._spent: list[Spent] = []
        self._task: asyncio.Task[None] | None = None
        self.on_work: Callable[[int, int, int, int], None]
        self.on_changed: Callable[[int, int], None]
        self.on_topic: Callable[[str], None]
        self.on_acts: Callable[[int, int], None]  # with the process
        self.on_spent: Callable[[list[Spent]], None] = lambda _spent: None

    def work(self, bucket: int, endpoint_id: int, due_at: int = 0, position: int = 0) -> None:
        place = bucket, endpoint_id
        if (known := self._work.get(place)) is not None:
            due_at, position = min(due_at, known[0]), min(position, known[1])
        self._work[place] = due_at, position
        self._go()

    def changed(self, bucket: int, endpoint_id: int) -> None:
        self._changed[bucket, endpoint_id] = None
        self._go()

    def topic(self, topic: str) -> None:
        self._topics[topic] = None
        self._go()

    def acts(self, version: int) -> None:
        self._acts = version
        self._go()

    def spent(self, spent: list[Spent]) -> None:
        self._spent = spent
        self._go()

    def _go(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._work or self._changed or self._topics or self._acts or self._spent:
                texts = [msgspec.json.encode(it).decode() for it in self._messages()]
                try:
                    await self._bus.send(texts)
                except HomingError as error:
                    log.debug("notifications were lost; the other processes poll", error=str(error))
        finally:
            self._task = None

    async def sent(self) -> None:
        """Wait until every message is sent."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _messages(self) -> Iterator[PeerMessage]:
        topics, acts = list(self._topics), self._acts
        self._topics.clear()
        self._acts = 0
        for _ in range(MESSAGES_MAX):
            work = _take(self._work)
            changed = _take(self._changed)
            if work or changed or topics or acts:
                yield PeerMessage(
                    self._me,
                    list(work),
                    list(changed),
                    topics,
                    acts,
                    since=list(work.values()),
                )
            topics, acts = [], 0
        self._work.clear()
        self._changed.clear()
        spent, self._spent = self._spent[: MESSAGES_MAX * SPENT_MAX], []
        for first in range(0, len(spent), SPENT_MAX):
            yield PeerMessage(self._me, spent=spent[first : first + SPENT_MAX])

    def receive(self, text: str) -> None:
        """Act on a message of another process; those of this process are ignored."""
        try:
            message = msgspec.json.decode(text, type=PeerMessage)
        except msgspec.MsgspecError:
            log.warning("a notification of another process was not understood", bytes=len(text))
            return
        if message.sender == self._me:
            return
        for place, since in zip(message.work, message.since, strict=False):
            self.on_work(*place, *since)
        for bucket, endpoint_id in message.changed:
            self.on_changed(bucket, endpoint_id)
        for topic in message.topics:
            self.on_topic(topic)
        if message.spent:
            self.on_spent(message.spent)
        if message.acts:
            self.on_acts(message.sender, message.acts)


def _take(places: dict[Place, Any]) -> dict[Place, Any]:
    taken = dict(islice(places.items(), PLACES_MAX))
    for place in taken:
        del places[place]
    return taken
