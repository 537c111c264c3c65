"""Word to and from the other processes: work for their buckets, people's changes, topics.

What is to be told is gathered while the last word is on its way: however much is published, there
is one word at a time. Nothing depends on it: a word that is lost is made good by looking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec
import structlog
from msgspec import Struct

from homing.errors import HomingError
from homing.ports import Wire

log = structlog.get_logger("homing.news")

PLACES_MOST = 200  # in one word: PostgreSQL takes less than 8,000 bytes
WORDS_MOST = 50  # at a time; what is beyond them is found by looking

Place = tuple[int, int]  # bucket, endpoint


class Word(Struct, frozen=True, omit_defaults=True):
    """What one process tells all others."""

    sender: int
    work: list[Place] = []
    changed: list[Place] = []
    topics: list[str] = []


class News:
    """Tells, and hands on what is heard."""

    def __init__(self, wire: Wire, *, me: int) -> None:
        self._wire, self._me = wire, me
        self._work: dict[Place, None] = {}
        self._changed: dict[Place, None] = {}
        self._topics: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self.on_work: Callable[[int, int], None]
        self.on_changed: Callable[[int, int], None]
        self.on_topic: Callable[[str], None]

    def work(self, bucket: int, endpoint_id: int) -> None:
        self._work[bucket, endpoint_id] = None
        self._go()

    def changed(self, bucket: int, endpoint_id: int) -> None:
        self._changed[bucket, endpoint_id] = None
        self._go()

    def topic(self, topic: str) -> None:
        self._topics[topic] = None
        self._go()

    def _go(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tell_all())

    async def _tell_all(self) -> None:
        try:
            while self._work or self._changed or self._topics:
                texts = [msgspec.json.encode(word).decode() for word in self._words()]
                try:
                    await self._wire.tell(texts)
                except HomingError as error:
                    log.debug("word was lost", error=str(error))
        finally:
            self._task = None

    async def told(self) -> None:
        """Until all is told."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _words(self) -> Iterator[Word]:
        topics = list(self._topics)
        self._topics.clear()
        for _ in range(WORDS_MOST):
            work = _take(self._work)
            changed = _take(self._changed)
            if work or changed or topics:
                yield Word(self._me, work, changed, topics)
            topics = []
        self._work.clear()
        self._changed.clear()

    def heard(self, text: str) -> None:
        """A word of some process, maybe this one."""
        try:
            word = msgspec.json.decode(text, type=Word)
        except msgspec.MsgspecError:
            log.warning("a word that cannot be read", bytes=len(text))
            return
        if word.sender == self._me:
            return
        for bucket, endpoint_id in word.work:
            self.on_work(bucket, endpoint_id)
        for bucket, endpoint_id in word.changed:
            self.on_changed(bucket, endpoint_id)
        for topic in word.topics:
            self.on_topic(topic)


def _take(places: dict[Place, None]) -> list[Place]:
    taken = list(islice(places, PLACES_MOST))
    for place in taken:
        del places[place]
    return taken
