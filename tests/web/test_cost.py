"""What everybody may ask, or what is asked all the time, costs the same with more endpoints."""

from __future__ import annotations

from steps import Counted
from web.browse import Browser
from web.house import House, live

OPEN = [
    "/healthz",
    "/readyz",
    "/.well-known/jwks.json?tenant=acme",
    "/sign-in",
    "/openapi.json",
    "/static/x/app.css",
    "/nowhere",
]
FREQUENT = ["/metrics", "/v1/status", "/", "/endpoints", "/deliveries", "/system"]
UNKNOWN = {"/static/x/app.css", "/nowhere"}
FEW, MANY = 100, 400


async def _endpoints(house: House, first: int, last: int) -> None:
    for number in range(first, last):
        await house.world.subscribe(f"https://receiver-{number}.example/hook", "a.*")
    await house.publish()
    await house.settled()


async def _steps(house: House, browser: Browser, path: str) -> int:
    asked = house.client.get if path.startswith(("/metrics", "/v1")) else browser.get
    await asked(path)  # What is made once, or looked for again after a while, is not counted.
    with Counted() as counted:
        got = await asked(path)
    assert got.status == (404 if path in UNKNOWN else 200)
    return counted.steps


def test_what_is_open_or_frequent_costs_the_same_with_four_times_the_endpoints() -> None:
    async def story(house: House) -> None:
        visitor, browser = Browser(house.app), Browser(house.app)
        await browser.sign_in()
        cost: dict[str, list[int]] = {}
        for first, last in ((0, FEW), (FEW, MANY)):
            await _endpoints(house, first, last)
            for path in (*OPEN, *FREQUENT):
                who = visitor if path in OPEN else browser
                cost.setdefault(path, []).append(await _steps(house, who, path))
        grown = {path: seen for path, seen in cost.items() if seen[1] > 1.25 * seen[0]}
        assert grown == {}

    live(story)


def test_a_delivery_is_explained_at_the_same_cost_with_four_times_the_endpoints() -> None:
    async def story(house: House) -> None:
        seen = []
        for first, last in ((0, FEW), (FEW, MANY)):
            await _endpoints(house, first, last)
            (delivery, *_) = await house.deliveries()
            with Counted() as counted:
                await house.client.get(f"/v1/deliveries/{delivery['id']}")
            seen.append(counted.steps)
        assert seen[1] <= 1.25 * seen[0]

    live(story)
