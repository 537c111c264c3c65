"""Secrets over time: rotated with overlap, verified by foreign libraries at every moment."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.world import DAY, HOUR, Hit
from homing.model import Secret
from homing.policy.rotation import LIVE_MAX, OVERLAP_MS, live, rotated
from referee import accepted_by_both
from web.asgi import Got
from web.house import House
from web.house import live as lived


def secret_of(size: int, fill: int = 7) -> str:
    return "whsec_" + base64.b64encode(bytes([fill]) * size).decode()


async def rotate(house: House, made: dict[str, Any], **body: Any) -> Got:
    return await house.client.post(f"/v1/subscriptions/{made['id']}/secret/rotate", body)


async def sent(house: House) -> Hit:
    """The request of an event that is published now."""
    await house.publish()
    await house.settled()
    return house.world.sender.hits[-1]


def accepts(hit: Hit, *secrets: str) -> list[bool]:
    return [accepted_by_both(hit.headers, hit.body, one, at=hit.at) for one in secrets]


def test_during_a_rotation_both_secrets_verify_and_then_only_the_new_one() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        old = made["secret"]
        assert accepts(await sent(house), old) == [True]
        got = await rotate(house, made)
        new = got.json["secret"]
        assert got.status == 200
        assert new != old
        for _ in range(23):
            assert accepts(await sent(house), old, new, secret_of(32)) == [True, True, False]
            await house.world.wait(HOUR)
        await house.world.wait(HOUR)
        hit = await sent(house)
        assert accepts(hit, old, new) == [False, True]
        assert len(hit.headers["webhook-signature"].split(" ")) == 1

    lived(story)


def test_what_is_pending_is_signed_as_it_is_when_it_goes() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        await house.publish()
        new = (await rotate(house, made, overlap_ms=0)).json["secret"]
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/enable")
        await house.settled()
        assert accepts(house.world.sender.hits[-1], made["secret"], new) == [False, True]

    lived(story)


def test_a_restart_in_the_middle_changes_nothing() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        new = (await rotate(house, made)).json["secret"]
        await house.world.crash()
        house = House(house.world)
        assert accepts(await sent(house), made["secret"], new) == [True, True]
        await house.world.wait(DAY)
        assert accepts(await sent(house), made["secret"], new) == [False, True]

    lived(story)


def test_the_new_secret_may_be_given_and_is_shown_only_now() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        own = secret_of(64)
        got = await rotate(house, made, secret=own, overlap_ms=HOUR)
        assert got.json["secret"] == own
        shown = (await house.client.get(f"/v1/subscriptions/{made['id']}")).json
        masked = [one["value"] for one in shown["secrets"]]
        assert masked == ["****" + own[-4:], "****" + made["secret"][-4:]]
        assert [one["until"] is None for one in shown["secrets"]] == [True, False]
        assert "secret" not in shown

    lived(story)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"overlap_ms": -1}, "overlap_ms"),
        ({"overlap_ms": 31 * DAY}, "overlap_ms"),
        ({"overlap_ms": "1h"}, "overlap_ms"),
        ({"secret": secret_of(23)}, "secret"),
        ({"secret": secret_of(65)}, "secret"),
        ({"secret": "whsec_!"}, "secret"),
        ({"secret": secret_of(32).removeprefix("whsec_")}, "secret"),
        ({"other": 1}, "other"),
    ],
)
def test_a_wrong_rotation_changes_nothing(body: dict[str, Any], field: str) -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        got = await rotate(house, made, **body)
        assert (got.status, got.fields) == (422, [field])
        assert str(body.get("secret", "?")) not in got.body.decode()
        assert accepts(await sent(house), made["secret"]) == [True]

    lived(story)


def test_an_empty_body_rotates_with_the_defaults() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        got = await house.client.post(f"/v1/subscriptions/{made['id']}/secret/rotate")
        assert got.status == 200
        new, old = got.json["secrets"]
        assert (new["until"], old["until"] is None) == (None, False)

    lived(story)


@pytest.mark.parametrize("size", range(24, 65))
def test_secrets_of_every_size_verify(size: int) -> None:
    async def story(house: House) -> None:
        for number, coded in enumerate((secret_of(size), secret_of(size, 9).rstrip("="))):
            house.world.sender.hits.clear()
            made = await house.subscribe(f"https://{number}.example/", secret=coded)
            await house.publish(data={"text": "é \u2028 \\u0041"})
            await house.settled()
            hits = [hit for hit in house.world.sender.hits if hit.url == made["url"]]
            assert [accepts(hit, coded) for hit in hits] == [[True]]

    lived(story)


@given(st.lists(st.tuples(st.integers(0, 3 * DAY), st.integers(0, 2 * DAY)), max_size=30))
def test_there_is_always_a_live_secret_and_never_too_many(
    steps: list[tuple[int, int]],
) -> None:
    now, number = 0, 0
    secrets: tuple[Secret, ...] = (Secret("first"),)
    for wait, overlap_ms in steps:
        now, number = now + wait, number + 1
        before = live(secrets, now=now)
        secrets = rotated(secrets, f"secret {number}", now=now, overlap_ms=overlap_ms)
        assert secrets[0] == Secret(f"secret {number}")
        assert 1 <= len(secrets) <= LIVE_MAX
        ends = {one.value: one.until for one in secrets[1:]}
        for one in before[: LIVE_MAX - 1]:
            until = now + overlap_ms if one.until is None else min(one.until, now + overlap_ms)
            assert ends.get(one.value) == (until if until > now else None)


def test_a_secret_that_is_given_again_does_not_end() -> None:
    once = rotated((Secret("a"),), "b", now=0, overlap_ms=OVERLAP_MS)
    back = rotated(once, "a", now=1, overlap_ms=OVERLAP_MS)
    assert back == (Secret("a"), Secret("b", 1 + OVERLAP_MS))
