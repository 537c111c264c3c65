"""The relay: every committed row becomes one event, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from homing.engine.relay import Relay, RelayOptions
from homing.errors import BadSetting, FieldProblem, StoreUnavailable
from homing.net.clock import SystemClock
from homing.policy.admission import is_time
from homing.ports import NotAllowed, NotNow, OutboxRow, RowsRefused
from homing.sim.loop import VirtualClock, run_virtual
from homing.store.outbox import open_outbox, sqlite_path
from homing.store.outbox.sqlite import SqliteOutbox
from outbox.application import Application, application, libpq
from postgres import Server


@dataclass
class Homing:
    """Takes rows as Homing does: whole batches or nothing, one event per id."""

    events: dict[str, bytes] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)
    names_rows: bool = True

    async def publish(self, rows: Sequence[OutboxRow]) -> None:
        self.batches.append(len(rows))
        if self.trouble:
            raise self.trouble.pop(0)
        bad = [n for n, row in enumerate(rows) if row.type.startswith("bad")]
        if bad:
            named = [FieldProblem(f"events[{n}].type", "is bad") for n in bad]
            raise RowsRefused(named if self.names_rows else [], "422 bad")
        for row in rows:
            self.events[row.id] = row.data


def relay_of(address: str, homing: Homing, **options: int) -> Relay:
    return Relay(
        open_outbox(address),
        homing.publish,
        clock=SystemClock(),
        random=lambda: 0.5,
        options=RelayOptions(**options),
    )


async def drain(relay: Relay) -> None:
    while await relay.step():
        pass


async def test_the_time_is_the_moment_of_the_call_but_an_own_id_leaves_it_open(app: str) -> None:
    times: dict[str, str | None] = {}

    async def publish(rows: Sequence[OutboxRow]) -> None:
        times.update({row.id: row.time for row in rows})

    relay = relay_of(app, Homing())
    relay._publish = publish
    with application(app) as one:
        key = one.publish("a", "1")
        one.publish("a", "1", id="mine")
        one.publish("a", "1", id="timed", time="2025-01-31T12:00:00Z")
        await drain(relay)
    made = datetime.fromisoformat(times[key] or "")
    assert abs((datetime.now(UTC) - made).total_seconds()) < 300
    assert is_time(times[key] or "")
    assert times["mine"] is None
    assert (times["timed"] or "").startswith("2025-01-31T12:00:00")
    await relay.close()


async def test_rows_become_events_and_leave(app: str) -> None:
    homing = Homing()
    relay = relay_of(app, homing, rows_max=10)
    with application(app) as one:
        keys = [one.publish("a", f'{{"n":  {n}}}') for n in range(25)]
        await drain(relay)
        assert one.rows() == []
    assert list(homing.events) == keys
    assert homing.events[keys[7]] == b'{"n":  7}'
    assert homing.batches == [10, 10, 5]
    assert relay.pulse().relayed == 25
    await relay.close()


async def test_a_batch_is_bounded_by_bytes_too(app: str) -> None:
    homing = Homing()
    relay = relay_of(app, homing, bytes_max=1_000)
    with application(app) as one:
        for size in (400, 400, 400, 5_000, 10):
            one.publish("a", '"' + "x" * size + '"')
        await drain(relay)
    assert homing.batches == [2, 1, 1, 1]
    await relay.close()


@pytest.mark.parametrize("names_rows", [True, False])
async def test_a_refused_row_is_parked_with_its_reason_and_keeps_nobody(
    app: str, names_rows: bool
) -> None:
    homing = Homing(names_rows=names_rows)
    relay = relay_of(app, homing)
    with application(app) as one:
        good = {one.publish("bad" if n in {3, 9} else "good", str(n)) for n in range(12)}
        await drain(relay)
        parked = one.rows()
        assert [row[1:3] for row in parked] == [("bad", "3"), ("bad", "9")]
        assert {row[3] for row in parked} == {"type is bad" if names_rows else "422 bad"}
        assert set(homing.events) == good - {row[0] for row in parked}
        store = open_outbox(app)
        assert [row.reason for row in await store.refused(limit=1)] == [parked[0][3]]
        stats = await store.stats()
        assert (stats.waiting, stats.refused) == (0, 2)
        assert await store.retry([str(parked[0][0])]) == 1
        assert await store.retry(None) == 1
        assert (await store.stats()).waiting == 2
        await store.close()
    await relay.close()


async def test_what_is_not_json_never_becomes_an_event(postgres_app: str) -> None:
    """Somebody went past the function; a row must not break out of its batch."""
    homing = Homing()
    relay = relay_of(postgres_app, homing)
    with application(postgres_app) as one:
        one.run(
            "INSERT INTO homing_outbox (id, tenant, type, data)"
            " VALUES ('x', 'default', 'a', '1}, {\"type\": \"b\", \"data\": 2')"
        )
        key = one.publish("a", "1")
        await drain(relay)
        assert [(row[0], row[3]) for row in one.rows()] == [("x", "data is not JSON")]
    assert set(homing.events) == {key}
    await relay.close()


async def test_trouble_leaves_every_row_and_trouble_midway_keeps_what_is_done(app: str) -> None:
    homing = Homing(trouble=[NotNow("503")])
    relay = relay_of(app, homing)
    with application(app) as one:
        for n in range(4):
            one.publish("a" if n else "bad", str(n))
        with pytest.raises(NotNow):
            await relay.step()
        assert len(one.rows()) == 4
        # Refused, then the rest is published, then trouble with the row that was named.
        homing.trouble = [RowsRefused([FieldProblem("events[0]", "no")], "no")]
        real = homing.publish
        calls = 0

        async def publish(rows: Sequence[OutboxRow]) -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise NotNow("503")
            await real(rows)

        relay._publish = publish
        assert await relay.step() == 4
        assert [(row[1], row[3] is None) for row in one.rows()] == [("bad", True)]
        assert len(homing.events) == 3
        await drain(relay)
        assert [(row[1], row[3] is None) for row in one.rows()] == [("bad", False)]
        assert len(homing.events) == 3
    await relay.close()


async def test_a_tenant_that_the_key_may_not_touch_keeps_nobody(app: str) -> None:
    homing = Homing()

    async def publish(rows: Sequence[OutboxRow]) -> None:
        if any(row.tenant == "other" for row in rows):
            raise NotAllowed("403 forbidden")
        await homing.publish(rows)

    relay = relay_of(app, homing)
    relay._publish = publish
    with application(app) as one:
        one.publish("a", "1", tenant="other")
        with pytest.raises(NotNow):  # Nothing says yet that the key is good for anything.
            await relay.step()
        assert [row[3] for row in one.rows()] == [None]
        keys = {one.publish("a", str(n)) for n in range(5)}
        one.publish("a", "1", tenant="other")
        await drain(relay)
        assert [row[3] for row in one.rows()] == ["403 forbidden"] * 2
    assert set(homing.events) == keys
    await relay.close()


async def test_a_response_that_was_lost_is_one_event(app: str) -> None:
    """Killed between the response and the delete: published again with the same id."""
    homing = Homing()
    with application(app) as one:
        key = one.publish("a", "1")

        async def publish_and_die(rows: Sequence[OutboxRow]) -> None:
            await homing.publish(rows)
            raise asyncio.CancelledError

        relay = relay_of(app, homing)
        relay._publish = publish_and_die
        with pytest.raises(asyncio.CancelledError):
            await relay.step()
        await relay.close()
        assert len(one.rows()) == 1
        again = relay_of(app, homing)
        await drain(again)
        await again.close()
        assert one.rows() == []
    assert homing.events == {key: b"1"}
    assert homing.batches == [1, 1]


async def test_a_row_that_commits_late_with_a_low_number_is_found(postgres_app: str) -> None:
    homing = Homing()
    relay = relay_of(postgres_app, homing)
    with application(postgres_app) as early, application(postgres_app) as late:
        late.run("BEGIN")
        first = late.publish("late", "1")
        second = early.publish("early", "2")
        await drain(relay)
        assert list(homing.events) == [second]
        late.run("COMMIT")
        await drain(relay)
    assert list(homing.events) == [second, first]
    await relay.close()


async def test_two_relays_share_the_rows_of_postgresql(postgres_app: str) -> None:
    first, second = Homing(), Homing()
    with application(postgres_app) as one:
        keys = {one.publish("a", str(n)) for n in range(4)}
        other = relay_of(postgres_app, second, rows_max=2)

        async def meanwhile(rows: Sequence[OutboxRow]) -> None:
            await first.publish(rows)
            await drain(other)

        relay = relay_of(postgres_app, first, rows_max=2)
        relay._publish = meanwhile
        await relay.step()
        assert one.rows() == []
    assert len(first.events) == len(second.events) == 2
    assert first.events.keys() | second.events.keys() == keys
    await relay.close()
    await other.close()


async def test_postgresql_wakes_the_relay_without_waiting_for_the_poll(postgres_app: str) -> None:
    homing = Homing()
    relay = relay_of(postgres_app, homing, poll_ms=60_000)
    task = asyncio.create_task(relay.run())
    with application(postgres_app) as one:
        for _ in range(3):
            key = one.publish("a", "1")
            async with asyncio.timeout(30):
                while key not in homing.events:
                    await asyncio.sleep(0.005)
    relay.stop()
    async with asyncio.timeout(10):
        await task
    await relay.close()


async def test_a_cut_connection_is_lived_through(postgres_app: str, postgres: Server) -> None:
    homing = Homing()
    relay = relay_of(postgres_app, homing)
    with application(postgres_app) as one:
        one.publish("a", "1")
        await drain(relay)
        with psycopg.connect(libpq(postgres_app), autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query LIKE '%homing_outbox%' AND pid <> pg_backend_pid()"
                " AND datname = current_database() AND state LIKE 'idle%'"
            )
    with application(postgres_app) as one:
        key = one.publish("a", "2")
        for _ in range(3):
            try:
                await drain(relay)
            except StoreUnavailable:
                continue
            break
        assert key in homing.events
        assert one.rows() == []
    await relay.close()


async def test_a_database_without_an_outbox_is_told_so(postgres: Server, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for address in (await postgres.make(), f"sqlite:{tmp_path / 'empty.db'}"):
        store = open_outbox(address)
        with pytest.raises(BadSetting, match="homing outbox install"):
            await store.stats()
        await store.close()
    with pytest.raises(BadSetting):
        open_outbox("mysql://x")
    store = open_outbox(f"sqlite:{tmp_path / 'absent.db'}")
    with pytest.raises(StoreUnavailable):
        await store.stats()
    await store.close()


def test_the_relay_backs_off_grows_its_pauses_and_honours_retry_after(sqlite_app: str) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        homing = Homing()
        tried: list[float] = []

        async def publish(rows: Sequence[OutboxRow]) -> None:
            tried.append(round(loop.time(), 3))
            if len(tried) == 4:
                raise NotNow("429", retry_after_s=20)
            if len(tried) <= 6:
                raise NotNow("503")
            await homing.publish(rows)

        outbox = SqliteOutbox(sqlite_path(sqlite_app), threads=False)
        relay = Relay(outbox, publish, clock=VirtualClock(loop), random=lambda: 1.0)
        task = asyncio.create_task(relay.run())
        one = Application(sqlite_app)
        one.publish("a", "1")
        await asyncio.sleep(10)
        assert relay.pulse().failures == 4
        assert relay.pulse().waiting == 1
        await asyncio.sleep(60)
        gaps = [round(b - a, 1) for a, b in pairwise(tried)]
        assert gaps == [0.1, 0.2, 0.4, 20.8, 1.6, 3.2]
        assert len(homing.events) == 1
        pulse = relay.pulse()
        assert (pulse.failures, pulse.waiting, pulse.oldest_at) == (0, 0, None)
        relay.stop()
        await task
        one.close()
        await relay.close()

    run_virtual(story())


def test_a_row_of_sqlite_is_found_within_the_poll(sqlite_app: str) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        homing = Homing()
        outbox = SqliteOutbox(sqlite_path(sqlite_app), threads=False)
        relay = Relay(
            outbox,
            homing.publish,
            clock=VirtualClock(loop),
            random=lambda: 0.0,
            options=RelayOptions(poll_ms=60_000),
        )
        task = asyncio.create_task(relay.run())
        one = Application(sqlite_app)
        for n in range(3):
            await asyncio.sleep(5)
            one.publish("a", str(n))
            await asyncio.sleep(0.1)
            assert len(homing.events) == n + 1
        relay.stop()
        await task
        one.close()
        await relay.close()

    run_virtual(story())
