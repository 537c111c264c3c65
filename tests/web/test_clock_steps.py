"""A stepped wall clock is told everywhere, and makes nothing unready."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from engine.world import DAY, HOUR, MINUTE, SECOND
from homing.engine.timekeeper import Timekeeper
from homing.ports import ClockState
from homing.store.clock_marks import ClockMarks
from homing.web.clock import clock_detail, clock_differs
from web.asgi import Client
from web.browse import Browser
from web.house import House, live
from web.test_monitoring import numbers


def test_a_step_is_told_by_readyz_status_and_metrics_for_an_hour() -> None:
    async def story(house: House) -> None:
        clock = house.world.clock
        assert (await house.client.get("/readyz")).json == {"ok": True}
        clock.step(10 * MINUTE)
        clock.step(-10 * MINUTE)
        for path in ("/readyz", "/healthz"):
            got = await house.client.get(path)
            assert got.status == 200, "it takes events and delivers them, as ever"
            told = got.json["clock"]
            assert (told["steps"], told["stepped_by_ms"], told["ahead_ms"]) == (2, -600_000, 0)
            assert told["stepped_at"].startswith("20")
            assert "set back by 10 min" in told["detail"]
        found = numbers((await house.client.get("/metrics")).body.decode())
        assert found["homing_clock_steps_total"] == 2
        assert found["homing_clock_ahead_seconds"] == 0
        await house.world.wait(HOUR)
        assert (await house.client.get("/readyz")).json == {"ok": True}
        assert (await house.client.get("/v1/status")).json["clock"]["steps"] == 2

    live(story)


def test_a_wall_clock_that_stays_away_is_told_until_it_comes_back() -> None:
    async def story(house: House) -> None:
        house.world.clock.step(DAY)
        await house.world.wait(2 * HOUR)
        told = (await house.client.get("/readyz")).json["clock"]
        assert told["ahead_ms"] == DAY
        assert (
            "are 24 h behind the wall clock; restart the server to correct this" in told["detail"]
        )
        found = numbers((await house.client.get("/metrics")).body.decode())
        assert found["homing_clock_ahead_seconds"] == 86_400

    live(story)


def test_the_dashboard_tells_of_a_step() -> None:
    async def story(house: House) -> None:
        person = Browser(house.app)
        await person.sign_in()
        assert b"The wall clock was" not in (await person.get("/")).body
        house.world.clock.step(10 * MINUTE)
        assert b"set forward by 10 min" in (await person.get("/")).body
        assert b"differs from schedule time" in (await person.get("/system")).body

    live(story)


def test_a_key_expires_by_the_wall_clock_which_people_read() -> None:
    async def story(house: House) -> None:
        made = await house.client.post("/v1/keys", {"name": "a", "role": "viewer", "expires": "1h"})
        holder = Client(house.app, key=made.json["key"])
        for by_ms, status in ((0, 200), (2 * HOUR, 401), (-2 * HOUR, 200)):
            house.world.clock.step(by_ms)
            assert (await holder.get("/v1/events")).status == status

    live(story)


def test_without_a_step_the_detail_says_that_all_is_well() -> None:
    assert clock_detail(ClockState()) == "The wall clock and steady time agree."


@pytest.mark.parametrize("ahead_ms", [2_400, -2_400])
def test_clocks_that_differ_by_seconds_do_not_agree(ahead_ms: int) -> None:
    told = str(clock_detail(ClockState(ahead_ms=ahead_ms)))
    assert "The wall clock and steady time differ by 2 s." in told
    assert not clock_differs(ClockState(ahead_ms=ahead_ms), now=0), "but nobody needs to act"


def test_a_step_is_logged_once() -> None:
    async def story(house: House) -> None:
        clock = house.world.clock
        keeper = Timekeeper(clock, ClockMarks(house.world.db))
        with capture_logs() as logs:
            looks = [keeper.check()]
            clock.step(600 * SECOND)
            looks += [keeper.check(), keeper.check()]
        assert looks == [False, True, False]
        assert [(one["log_level"], one["stepped_by_s"]) for one in logs] == [("warning", 600)]

    live(story)
