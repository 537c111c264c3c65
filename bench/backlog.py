"""Deliveries that are there before a server starts, written by the store's own code.

They belong to tenant ``others``, so that what a part publishes itself can be counted apart. Their
ids and times lie in the past and their secrets are encrypted, as a server would have left them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from bench import letter
from bench.processes import SEAL
from homing.model import (
    Attempt,
    Cause,
    CauseKey,
    Decided,
    Delivery,
    Endpoint,
    Event,
    Finished,
    Format,
    Health,
    Ids,
    Lane,
    Outcome,
    Phases,
    Reason,
    Secret,
    State,
    Status,
    Subscription,
    bucket_of,
)
from homing.policy.causes import HTTP_STATUS
from homing.policy.encryption import KeyRing
from homing.policy.encryption_keys import read_keys
from homing.ports import NewEvent
from homing.server.settings import DATABASE_FILE
from homing.store import rows
from homing.store.catalog_versions import raise_catalog
from homing.store.encryption import EncryptionKeys, FieldCipher
from homing.store.sqlite import SqliteDb
from homing.store.tx import Tx
from homing.store.writes import LedgerChange, add_to_ledger, append_events

OTHERS = "others"
HOUR_MS = 3_600_000
WINDOW_MS = 48 * HOUR_MS
_CHUNK = 5_000
_TRIES = 4  # attempts of a delivery, where attempts are written
_WAITING = 50  # deliveries that wait for each URL then
_DATA = b'{"note":"one of many that wait"}'
_REQUEST = (
    b"content-type: application/json\r\nwebhook-id: dlv_0000000000000\r\nuser-agent: homing\r\n"
)
_RESPONSE = b"content-type: text/plain\r\ncontent-length: 19\r\n"
_EXCERPT = b"service unavailable"


class Backlog:
    """A database being filled; times count from ``now``, ids from an hour before."""

    def __init__(self, db: SqliteDb) -> None:
        self._db = db
        self._key_ring = KeyRing(read_keys(SEAL) or ())
        self._ids = Ids()
        self.now = int(time.time() * 1000)
        self.then = self.now - HOUR_MS

    def id(self) -> int:
        return self._ids.take(self.then)

    async def subscribe(
        self, urls: Iterable[str], *, state: State = State.ENABLED
    ) -> list[Subscription]:
        """A subscription and an endpoint for each URL; a held one is not probed for an hour."""
        endpoints = [self._endpoint(url, state) for url in urls]
        made = [self._subscription(endpoint) for endpoint in endpoints]
        fields, encryption = FieldCipher(self._key_ring), EncryptionKeys(self._db)
        encrypted = [fields.encrypt(it) for it in made]

        async def work(tx: Tx) -> None:
            version = await raise_catalog(tx)
            stored = [replace(it, version=version) for it in encrypted]
            await tx.insert("endpoint", [rows.endpoint_row(it) for it in endpoints])
            await tx.insert("subscription", [rows.subscription_row(it) for it in stored])

        await self._db.run(work)
        await encryption.claim_keys(self._key_ring.ids)
        await encryption.all_encrypted(self._key_ring.ids[0])
        return made

    def _endpoint(self, url: str, state: State) -> Endpoint:
        return Endpoint(
            id=self.id(),
            bucket=bucket_of(OTHERS, url),
            tenant=OTHERS,
            url=url,
            created_at=self.then,
            generation=0,
            health=Health(state, since=self.then, enabled_since=self.then),
            next_probe_at=self.now + HOUR_MS if state is State.DISABLED else None,
        )

    def _subscription(self, endpoint: Endpoint) -> Subscription:
        return Subscription(
            id=self.id(),
            tenant=OTHERS,
            endpoint_id=endpoint.id,
            url=endpoint.url,
            types=("*",),
            format=Format.STANDARD,
            secrets=(Secret(letter.SECRET),),
            created_at=self.then,
            updated_at=self.then,
            version=0,  # it gets the catalog's when it is written
        )

    def first(self, subscription: Subscription, *, data: bytes = _DATA) -> NewEvent:
        """An event whose delivery was never attempted."""
        return self._event([subscription], due_at=None, data=data)

    def retry(self, to: list[Subscription], *, due_at: int, data: bytes = _DATA) -> NewEvent:
        """An event that has failed once everywhere, due again then."""
        return self._event(to, due_at=due_at, data=data)

    def _event(self, to: list[Subscription], *, due_at: int | None, data: bytes) -> NewEvent:
        number = self.id()
        event = Event(
            number, OTHERS, f"k{number}", "bench.other", "2030-01-01T00:00:00Z", self.then, data
        )
        deliveries = tuple(self._delivery(event, it, due_at) for it in to)
        return NewEvent(event, event.time, deliveries)

    def _delivery(self, event: Event, to: Subscription, due_at: int | None) -> Delivery:
        number = self.id()
        tried = due_at is not None
        return Delivery(
            id=number,
            bucket=bucket_of(OTHERS, to.url),
            tenant=OTHERS,
            endpoint_id=to.endpoint_id,
            subscription_id=to.id,
            event_id=event.id,
            root_id=number,
            accepted_at=self.then,
            due_at=self.then if due_at is None else due_at,
            expires_at=self.then + WINDOW_MS,
            t0=self.then if tried else None,
            retry=int(tried),
            attempts=int(tried),
        )

    async def write(self, events: Iterable[NewEvent]) -> None:
        """Events with their deliveries, all pending."""
        for chunk in _chunks(events):

            async def work(tx: Tx, chunk: list[NewEvent] = chunk) -> None:
                await append_events(tx, chunk, node=0)

            await self._db.run(work)

    async def write_failed(
        self, events: Iterable[NewEvent], causes: dict[int, Cause], *, tries: int
    ) -> None:
        """Events whose deliveries were dropped after so many attempts."""
        for chunk in _chunks(events):
            failed = [
                replace(it, attempts=tries, cause_id=causes[it.endpoint_id].id)
                for new in chunk
                for it in new.deliveries
            ]
            done = [self._finished(it, dropped=True) for it in failed]
            made = [self._attempt(it, number + 1) for it in failed for number in range(tries)]

            async def work(
                tx: Tx,
                chunk: list[NewEvent] = chunk,
                done: list[Finished] = done,
                made: list[Attempt] = made,
            ) -> None:
                await tx.insert("event_key", [rows.event_key_row(it) for it in chunk])
                await tx.insert("event", [rows.event_row(it) for it in chunk])
                await tx.insert("history", [rows.history_row(it) for it in done])
                await tx.insert("attempt", [rows.attempt_row(it) for it in made])
                await add_to_ledger(tx, _ledger(done), node=0)

            await self._db.run(work)

    async def write_causes(self, causes: Iterable[Cause]) -> None:
        async def work(tx: Tx) -> None:
            await tx.insert("cause", [rows.cause_row(it) for it in causes])

        await self._db.run(work)

    def cause(self, to: Subscription, *, code: int, closed_at: int | None = None) -> Cause:
        """A cause whose example is its latest attempt; ``example_id`` is set when it is known."""
        return Cause(
            id=self.id(),
            tenant=OTHERS,
            endpoint_id=to.endpoint_id,
            key=CauseKey(HTTP_STATUS, "", code),
            first_seen=self.then,
            last_seen=self.now,
            attempts=1_000,
            deliveries=250,
            example_id=0,
            example_number=1,
            closed_at=closed_at,
        )

    def _attempt(self, delivery: Delivery, number: int) -> Attempt:
        return Attempt(
            delivery_id=delivery.id,
            number=number,
            endpoint_id=delivery.endpoint_id,
            subscription_id=delivery.subscription_id,
            lane=Lane.FRESH if number == 1 else Lane.RETRY,
            started_at=self.then + number,
            finished_at=self.then + number + 12,
            outcome=Outcome.FAILED,
            code=503,
            failure=None,
            detail="",
            address="127.0.0.1:1027",
            phases=Phases(connect_us=90, first_byte_us=11_000, total_us=12_000),
            request_headers=_REQUEST,
            response_headers=_RESPONSE,
            excerpt=_EXCERPT,
            decided=Decided.RETRY,
            due_at=self.then + HOUR_MS,
            retry=number,
        )

    async def write_finished(self, events: Iterable[NewEvent], *, dropped_in: int) -> None:
        """Events whose deliveries are over; one in so many was dropped."""
        count = 0
        for chunk in _chunks(events):
            done = []
            for delivery in (it for new in chunk for it in new.deliveries):
                count += 1
                done.append(self._finished(delivery, dropped=count % dropped_in == 0))

            async def work(
                tx: Tx, chunk: list[NewEvent] = chunk, done: list[Finished] = done
            ) -> None:
                await tx.insert("event_key", [rows.event_key_row(it) for it in chunk])
                await tx.insert("event", [rows.event_row(it) for it in chunk])
                await tx.insert("history", [rows.history_row(it) for it in done])
                await add_to_ledger(tx, _ledger(done), node=0)

            await self._db.run(work)

    def _finished(self, delivery: Delivery, *, dropped: bool) -> Finished:
        if dropped:
            return Finished(delivery, Status.DROPPED, Reason.EXHAUSTED, self.now)
        return Finished(delivery, Status.DELIVERED, None, self.now)


def _ledger(done: list[Finished]) -> dict[str, LedgerChange]:
    changes: dict[str, LedgerChange] = defaultdict(LedgerChange)
    for it in done:
        change = changes[it.delivery.tenant]
        change.accepted += 1
        if it.status is Status.DROPPED:
            change.dropped += 1
        else:
            change.delivered += 1
    return changes


def _chunks(events: Iterable[NewEvent]) -> Iterator[list[NewEvent]]:
    """So many deliveries to a commit, about."""
    walk = iter(events)
    while chunk := list(islice(walk, _CHUNK)):
        yield chunk


def _urls(count: int, *, host: str) -> Iterator[str]:
    return (f"{host}/other/{number}" for number in range(count))


def _file(data: Path) -> Path:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return data / DATABASE_FILE


async def write_waiting(data: Path, *, count: int, urls: int) -> None:
    """Half of them behind one disabled URL, half on many enabled URLs and due in an hour."""
    db = await SqliteDb.open(_file(data))
    try:
        backlog = Backlog(db)
        (held,) = await backlog.subscribe(["http://127.0.0.1:1027/held"], state=State.DISABLED)
        enabled = await backlog.subscribe(_urls(urls, host="http://127.0.0.1:1027"))
        half = count // 2
        await backlog.write(backlog.first(held) for _ in range(half))
        due_at = backlog.now + HOUR_MS
        await backlog.write(
            backlog.retry([enabled[number % urls]], due_at=due_at) for number in range(half)
        )
    finally:
        await db.close()


async def write_due(data: Path, *, urls: int, port: int) -> None:
    """One retry for each URL of the receiver, due already."""
    db = await SqliteDb.open(_file(data))
    try:
        backlog = Backlog(db)
        enabled = await backlog.subscribe(_urls(urls, host=f"http://127.0.0.1:{port}"))
        content = letter.event_data(0, letter.event_pad(OTHERS))
        due_at = backlog.now - 1_000
        await backlog.write(backlog.retry([it], due_at=due_at, data=content) for it in enabled)
    finally:
        await db.close()


async def write_attempts(data: Path, *, count: int, urls: int) -> list[int]:
    """Deliveries that failed four times each, and open causes; the endpoints, busiest first.

    Half of the attempts were made at the first URL. Every fourth URL is enabled and failing.
    """
    db = await SqliteDb.open(_file(data))
    try:
        backlog = Backlog(db)
        host = "http://127.0.0.1:1027"
        held = await backlog.subscribe(_urls(urls, host=host), state=State.DISABLED)
        enabled = await backlog.subscribe(_urls(urls // 3, host=f"{host}/up"))
        to = [*held, *enabled]
        open_causes = {it.endpoint_id: backlog.cause(it, code=503) for it in to}
        ended = [
            backlog.cause(it, code=500 + number, closed_at=backlog.now - number * 60_000)
            for it in to
            for number in range(10)
        ]

        def events(number: int) -> Iterator[NewEvent]:
            for one in range(number):
                yield backlog.first(to[0 if one % 2 else one // 2 % len(to)])

        await backlog.write_failed(events(count // _TRIES), open_causes, tries=_TRIES)
        waiting = [backlog.first(it) for it in held for _ in range(_WAITING)]
        await backlog.write(waiting)
        latest = {it.deliveries[0].endpoint_id: it.deliveries[0].id for it in waiting}
        examples = [
            replace(it, example_id=latest.get(it.endpoint_id, 0)) for it in open_causes.values()
        ]
        await backlog.write_causes([*examples, *ended])
        return [it.endpoint_id for it in to]
    finally:
        await db.close()


async def write_history(data: Path, *, count: int, urls: int) -> list[int]:
    """Half finished, half waiting behind disabled URLs; the endpoints, busiest first."""
    db = await SqliteDb.open(_file(data))
    try:
        backlog = Backlog(db)
        held = await backlog.subscribe(
            _urls(urls, host="http://127.0.0.1:1027"), state=State.DISABLED
        )
        half = count // 2

        def events() -> Iterator[NewEvent]:
            """Every second one goes to the first URL, the rest around."""
            for number in range(half):
                yield backlog.first(held[0 if number % 2 else number // 2 % urls])

        await backlog.write_finished(events(), dropped_in=100)
        await backlog.write(events())
        return [it.endpoint_id for it in held]
    finally:
        await db.close()
