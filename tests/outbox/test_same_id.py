"""Rows with one id: the first by insertion is the event, later ones with other data are refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from homing.cli.relay import publish_through
from homing.engine.relay import Relay, RelayOptions
from homing.net.clock import SystemClock
from homing.ports import NotNow, OutboxRow, PublishRows, ViewStore
from homing.server.serve import serving
from homing.server.settings import Settings
from homing.store.outbox import open_outbox
from homing.web.relay import publish_here
from homing_client import AsyncHoming
from outbox.application import Application, application

KEY = "hk_same-id-test-key-0123"
SETTINGS = Settings.of(listen="127.0.0.1:0", grace_ms=1_000)


class Target:
    """A running Homing, and what it holds."""

    def __init__(self, publish: PublishRows, views: ViewStore) -> None:
        self.publish, self._views = publish, views

    def relay(self, address: str, **options: int) -> Relay:
        return Relay(
            open_outbox(address),
            self.publish,
            clock=SystemClock(),
            random=lambda: 0.5,
            options=RelayOptions(**options),
        )

    async def drain(self, address: str, **options: int) -> None:
        """What a relay does from its start until nothing waits."""
        relay = self.relay(address, **options)
        while await relay.step():
            pass
        await relay.close()

    async def data(self, key: str = "x", tenant: str = "default") -> bytes | None:
        row = await self._views.event(key, tenant=tenant)
        return None if row is None else row.event.data

    async def key(self, event: str) -> str | None:
        """The key of an event, which names the object that the event is about."""
        row = await self._views.event(event, tenant="default")
        return None if row is None else row.event.order_key


@contextlib.asynccontextmanager
async def target(how: str) -> AsyncIterator[Target]:
    async with serving(SETTINGS, admin_key=KEY, in_memory=True) as (url, house):
        if how == "in the server":
            yield Target(publish_here(house.app.publishing), house.stores.views)
            return
        async with AsyncHoming(url, KEY, retry=False) as client:
            yield Target(publish_through(client), house.stores.views)


def refused(one: Application) -> list[tuple[str, str]]:
    """Id and data of the rows that are left, each of which must say why."""
    assert all("another content" in str(row[3]) for row in one.rows())
    return [(row[0], row[2]) for row in one.rows()]


@pytest.mark.parametrize("how", ["in the server", "by the API"])
@pytest.mark.parametrize("rows_max", [500, 2, 1])
async def test_the_first_row_of_an_id_wins_and_the_later_is_refused(
    app: str, how: str, rows_max: int
) -> None:
    async with target(how) as homing:
        with application(app) as one:
            one.publish("a", "1", id="x")
            one.publish("a", "7", id="y")
            for data in ("2", "1", "3"):
                one.publish("a", data, id="x")
            one.publish("a", "9", id="x", tenant="other")
            await homing.drain(app, rows_max=rows_max)
            assert refused(one) == [("x", "2"), ("x", "3")]
        assert await homing.data() == b"1"
        assert await homing.data("y") == b"7"
        assert await homing.data(tenant="other") == b"9"


async def test_equal_rows_are_one_event(app: str) -> None:
    async with target("in the server") as homing:
        with application(app) as one:
            for _ in range(3):
                one.publish("a", "1", id="x")
            await homing.drain(app)
            one.publish("a", "1", id="x")
            await homing.drain(app)
            assert one.rows() == []
        assert await homing.data() == b"1"


async def test_a_bad_row_between_them_does_not_turn_them_round(app: str) -> None:
    async with target("in the server") as homing:
        with application(app) as one:
            one.publish("a", "1", id="x")
            half = r'"\ud800"'  # of a surrogate pair: the databases let it pass
            one.publish("a", half, id="half")
            one.publish("a", "2", id="x")
            await homing.drain(app)
            left = {row[0]: row[2] for row in one.rows()}
            assert left == {"half": half, "x": "2"}
        assert await homing.data() == b"1"


async def test_trouble_after_a_refusal_lets_no_later_row_pass_the_first(app: str) -> None:
    """The batch is refused, then the server is busy: the relay must not go on with the later."""
    async with target("in the server") as homing:
        calls: list[int] = []

        async def publish(rows: Sequence[OutboxRow]) -> None:
            calls.append(len(rows))
            if len(calls) == 2:
                raise NotNow("busy")
            await homing.publish(rows)

        with application(app) as one:
            one.publish("a", "1", id="x")
            one.publish("a", "2", id="x")
            relay = Relay(open_outbox(app), publish, clock=SystemClock(), random=lambda: 0.5)
            with pytest.raises(NotNow):
                await relay.step()
            await relay.close()
            assert await homing.data() is None
            await homing.drain(app)  # a relay that was started anew
            assert refused(one) == [("x", "2")]
        assert await homing.data() == b"1"


async def test_a_relay_that_died_before_it_removed_the_first_row_refuses_the_later(
    app: str,
) -> None:
    async with target("in the server") as homing:
        with application(app) as one:
            one.publish("a", "1", id="x")

            async def publish_and_die(rows: Sequence[OutboxRow]) -> None:
                await homing.publish(rows)
                raise NotNow("killed")

            relay = Relay(
                open_outbox(app), publish_and_die, clock=SystemClock(), random=lambda: 0.5
            )
            with pytest.raises(NotNow):
                await relay.step()
            await relay.close()
            one.publish("a", "2", id="x")
            await homing.drain(app)
            assert refused(one) == [("x", "2")]
        assert await homing.data() == b"1"


async def test_a_second_relay_leaves_a_later_row_to_whoever_holds_the_first(
    postgres_app: str,
) -> None:
    """Relays of PostgreSQL lock their rows: another one would find the later row free."""
    async with target("in the server") as homing:
        holding, go_on = asyncio.Event(), asyncio.Event()

        async def slow(rows: Sequence[OutboxRow]) -> None:
            holding.set()
            await go_on.wait()
            await homing.publish(rows)

        with application(postgres_app) as one:
            for key, data in (("x", "1"), ("x", "2"), ("x", "1"), ("z", "5")):
                one.publish("a", data, id=key)
            first = Relay(
                open_outbox(postgres_app),
                slow,
                clock=SystemClock(),
                random=lambda: 0.5,
                options=RelayOptions(rows_max=1),
            )
            holds = asyncio.ensure_future(first.step())
            await holding.wait()
            second = homing.relay(postgres_app)
            while await second.step():
                pass
            assert await homing.data("z") == b"5", "other rows do not wait"
            assert await homing.data() is None
            go_on.set()
            await holds
            while await second.step():
                pass
            assert refused(one) == [("x", "2")]
            await first.close()
            await second.close()
        assert await homing.data() == b"1"
