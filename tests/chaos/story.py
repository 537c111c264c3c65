"""A seeded story of publishes and settlements, through the store as it is, one commit a step."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from homing.model import Delivery, Status
from homing.ports import SettleBatch
from homing.store import sqlite
from homing.store.sqlite import SqliteDb
from store.build import HOUR, NOW
from store.scene import Scene

CHECKPOINT_PAGES = 40  # so that a short story has many checkpoints
Step = Callable[[], Awaitable[object]]


@contextmanager
def small_log(synchronous: str = "full") -> Iterator[None]:
    """Checkpoints come often; ``synchronous`` other than full is a build that is broken."""
    pages, opened = sqlite.CHECKPOINT_PAGES, sqlite.Session._open

    def careless(self: sqlite.Session) -> Any:
        connection, tx = opened(self)
        connection.pragma("synchronous", synchronous)
        return connection, tx

    sqlite.CHECKPOINT_PAGES = CHECKPOINT_PAGES
    if synchronous != "full":
        sqlite.Session._open = careless  # type: ignore[method-assign]
    try:
        yield
    finally:
        sqlite.CHECKPOINT_PAGES = pages
        sqlite.Session._open = opened  # type: ignore[method-assign]


class Story:
    """The same steps for the same seed; each is one commit and may be tried again as it is."""

    def __init__(self, db: SqliteDb, *, seed: int) -> None:
        self.scene = Scene(db)
        self._rng = random.Random(seed)
        self._waiting: list[Delivery] = []

    async def begin(self) -> None:
        await self.scene.begin()

    def step(self) -> Step:
        """The next step, drawn now and the same however often it is done."""
        if len(self._waiting) > 3 and self._rng.random() < 0.45:
            return self._settle()
        return self._publish()

    def _publish(self) -> Step:
        scene, rng = self.scene, self._rng
        events = [
            scene.make.event(*[scene.sub] * rng.randint(1, 3), data=self._data())
            for _ in range(rng.randint(1, 3))
        ]
        number = scene.number()
        self._waiting += [it for new in events for it in new.deliveries]
        return lambda: scene.flow.publish([events], number=number)

    def _data(self) -> bytes:
        size = self._rng.choice((7, 300, 300, 9_000))
        return b'"' + self._rng.randbytes(size).hex().encode()[:size] + b'"'

    def _settle(self) -> Step:
        scene, rng = self.scene, self._rng
        rng.shuffle(self._waiting)
        done = [self._waiting.pop() for _ in range(rng.randint(1, 3))]
        tried = self._waiting.pop()
        later = replace(
            tried, due_at=NOW + HOUR, t0=NOW, retry=tried.retry + 1, attempts=tried.attempts + 1
        )
        self._waiting.append(later)
        batch = SettleBatch(
            number=scene.number(),
            finished=tuple(scene.make.finished(it, Status.DELIVERED) for it in done),
            waiting=(later,),
            attempts=tuple(scene.make.attempt(it, number=it.attempts + 1) for it in (*done, tried)),
            endpoints=(scene.endpoint,),
        )
        return lambda: scene.flow.settle(batch)


async def state_of(db: SqliteDb) -> str:
    """All rows of all tables, as a fingerprint."""

    async def read(execute: Any) -> str:
        tables = await execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'migration'"
        )
        whole = hashlib.sha256()
        for (name,) in sorted(tables):
            rows = sorted(map(repr, await execute(f'SELECT * FROM "{name}"')))
            whole.update(repr((name, rows)).encode())
        return whole.hexdigest()

    return await db.raw(read)


async def look(folder: Path) -> tuple[str, str]:
    """Open what is there as a server does; what the integrity check says, and the state."""
    db = await SqliteDb.open(folder / "homing.db")
    try:
        said = await db.raw(lambda execute: execute("PRAGMA integrity_check"))
        return str(said[0][0]), await state_of(db)
    finally:
        await db.close()
