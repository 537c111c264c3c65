"""Warnings of client certificates that expire: 30, 7 and 1 day ahead, and then, once each."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from engine.test_people_notices import HOOK, target, told
from engine.world import DAY, HOUR, World, changed, live
from homing.engine.options import EngineOptions
from homing.policy.certificates import WatchedCertificate, certificate_facts
from homing.policy.notices import OPERATOR
from net.certificates import a_client_certificate

URL = "https://receiver.example/hook"
HEARS = "https://hears.example/"


def a_certificate(world: World, *, days: float) -> dict[str, Any]:
    at = dt.datetime.fromtimestamp(world.clock.wall() / 1000, dt.UTC)
    since = at - dt.timedelta(days=1)
    pair = a_client_certificate(since=since, until=at + dt.timedelta(days=days))
    return {"client_certificate": pair[0], "client_key": pair[1]}


def heard(world: World) -> list[dict[str, Any]]:
    """The events that a subscription to them got."""
    bodies = [msgspec.json.decode(hit.body) for hit in world.sender.hits if hit.url == HEARS]
    assert {it["type"] for it in bodies} <= {"homing.certificate.expiring"}
    return [it["data"] for it in bodies]


@pytest.mark.long
def test_people_and_subscriptions_are_warned_once_for_each_number_of_days() -> None:
    async def story(world: World) -> None:
        await target(world)
        await world.subscribe(HEARS, "homing.certificate.*")
        sub = await world.subscribe(URL, "a.*", **a_certificate(world, days=9))
        days: list[list[int]] = []
        for _ in range(12):
            await world.wait(DAY)
            days.append([it["days"] for it in heard(world)])
        assert days[0] == []  # The moment of thirty days was before it was set.
        assert days[3] == days[6] == [7]
        assert days[9] == days[11] == [7, 1, 0]
        first = heard(world)[0]
        assert first["url"] == URL == sub.url
        assert first["subject"] == "CN=homing"
        assert "expires on" in first["explanation"]
        assert told(world) == [["certificate"]] * 3

    live(story)


def test_nobody_is_warned_more_than_thirty_days_ahead() -> None:
    async def story(world: World) -> None:
        await world.subscribe(HEARS, "homing.certificate.*")
        await world.subscribe(URL, "a.*", **a_certificate(world, days=31.5))
        await world.wait(DAY)
        assert heard(world) == []
        await world.wait(DAY)
        assert [it["days"] for it in heard(world)] == [30]

    live(story)


def test_a_restart_and_a_second_look_in_the_same_day_warn_once() -> None:
    async def story(world: World) -> None:
        await target(world)
        await world.subscribe(HEARS, "homing.certificate.*")
        await world.subscribe(URL, "a.*", **a_certificate(world, days=30 - 1 / 24))
        await world.engine.certificates.warn()
        await world.crash()
        for _ in range(5):
            await world.engine.certificates.warn()
            await world.wait(HOUR)
        assert [it["days"] for it in heard(world)] == [30]
        assert told(world) == [["certificate"]]

    live(story)


@pytest.mark.long
def test_a_renewed_certificate_is_not_warned_of() -> None:
    async def story(world: World) -> None:
        await world.subscribe(HEARS, "homing.certificate.*")
        sub = await world.subscribe(URL, "a.*", **a_certificate(world, days=40))
        await world.wait(12 * DAY)
        renewed = a_certificate(world, days=400)
        await world.engine.change(sub.id, changed(**renewed))
        await world.wait(40 * DAY)
        assert [it["days"] for it in heard(world)] == [30]
        assert world.engine.certificates.watched()[0].facts == certificate_facts(
            renewed["client_certificate"]
        )

    live(story)


def test_the_file_of_the_installation_is_reported_to_the_operator_only() -> None:
    watched: list[WatchedCertificate] = []

    async def story(world: World) -> None:
        await target(world, tenant=OPERATOR)
        await target(world, tenant="default", address="https://tenant.example/")
        pair = a_certificate(world, days=7.5)
        watched.append(
            WatchedCertificate("", certificate_facts(pair["client_certificate"]), file="/ours")
        )
        await world.wait(DAY)
        assert told(world) == [["certificate"]]
        assert told(world, "https://tenant.example/") == []
        body = next(it.body for it in world.sender.hits if it.url == HOOK)
        (notice,) = msgspec.json.decode(body)["notices"]
        assert notice["tenant"] is None
        assert "/ours" not in notice["text"]

    live(story, EngineOptions(certificates=lambda: watched))
