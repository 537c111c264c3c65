"""No call to a receiver is made under a lock, slot or queue that two tenants share.

Shows what-homing-promises.md#hostile-input.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

import pytest

from engine.world import Hit, Reply
from homing.engine import shared
from homing.model import Verification
from homing.ports import Request, Response
from homing.web.asgi import asgi_app
from homing.web.workfront.api import BASE
from web.asgi import Client, Got
from web.house import House, live, use_cases
from web.test_verification import echoing

HANGING, OWN = "https://hanging.example", "https://own.example/hook"
CHALLENGE = {"types": ["*"], "verification": "challenge"}
DEADLINE_MS = 30_000


async def tenant(house: House, name: str, *, proves: bool = False) -> Client:
    """A tenant's client; ``proves``: of an installation that asks every new URL for a proof."""
    made = await house.client.post("/v1/keys", {"name": name, "role": "manager", "tenant": name})
    app = house.app
    if proves:
        strict = {"verification": Verification.CHALLENGE}
        app = asgi_app(use_cases(house.world, house.api_keys, **strict))
    return Client(app, key=made.json["key"])


async def subscribed(client: Client, url: str, **more: Any) -> str:
    got = await client.post("/v1/subscriptions", {"url": url, "types": ["*"], **more})
    assert got.status == 201, got.body
    return f"/v1/subscriptions/{got.json['id']}"


async def target(client: Client, url: str) -> str:
    got = await client.post("/v1/notice-targets", {"kind": "slack", "address": url})
    assert got.status == 201, got.body
    return f"/v1/notice-targets/{got.json['id']}"


def workfront(url: str) -> dict[str, str]:
    return {"objCode": "TASK", "eventType": "UPDATE", "url": url, "authToken": "t"}


Acts = list[tuple[str, Callable[[], Coroutine[Any, Any, Got]]]]


async def acts_of(house: House, name: str, url: str, *, copies: int) -> Acts:
    """Everything for which a caller waits until a receiver has responded."""
    client, proving = await tenant(house, name), await tenant(house, name, proves=True)
    proved = [await subscribed(client, f"{url}/{n}") for n in range(copies)]
    targets = [await target(client, f"{url}/target/{n}") for n in range(copies)]
    post, patch = proving.post, proving.patch
    acts: Acts = []
    for n in range(copies):
        new = {"url": f"{url}/new/{n}", "deadline_ms": DEADLINE_MS, **CHALLENGE}
        moved = {"url": f"{url}/moved/{n}", "deadline_ms": DEADLINE_MS, **CHALLENGE}
        acts += [
            ("create", lambda new=new: post("/v1/subscriptions", new)),  # type: ignore[misc]
            ("change", lambda n=n, to=moved: patch(proved[n], to)),  # type: ignore[misc]
            ("test", lambda n=n: post(f"{proved[n]}/test")),  # type: ignore[misc]
            ("test a target", lambda n=n: post(f"{targets[n]}/test")),  # type: ignore[misc]
            (
                "create by Workfront",
                lambda n=n: post(BASE, workfront(f"{url}/w/{n}")),  # type: ignore[misc]
            ),
        ]
    return acts


def test_hanging_receivers_of_one_tenant_hold_up_nobody_else() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts = Hanging()
        ours = await acts_of(house, "calm", OWN, copies=1)
        theirs = await acts_of(house, "greedy", HANGING, copies=9)
        waiting = [asyncio.create_task(act()) for _, act in theirs]
        await house.world.wait(1_000)
        assert Counter(it.done() for it in waiting)[False] >= 20
        hits = len(house.world.sender.hits)
        took = {}
        for name, act in ours:
            began = house.world.clock.now()
            got = await act()
            assert got.status in {200, 201}, (name, got.body)
            took[name] = house.world.clock.now() - began
        assert took == dict.fromkeys(took, 0)
        assert len(took) == 5
        assert len(house.world.sender.hits) - hits >= 4
        for it in waiting:
            await it

    live(story)


class Hanging(dict[str, Callable[[Hit], Reply]]):
    """Receivers of one host respond after any deadline."""

    def get(self, url: str, _default: Any = None) -> Any:
        if url.startswith(HANGING):
            return lambda _: Reply(latency_ms=2 * DEADLINE_MS)
        return echoing


def test_a_tenant_may_test_a_few_targets_at_a_time() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts = Hanging()
        client = await tenant(house, "greedy")
        targets = [await target(client, f"{HANGING}/{n}") for n in range(6)]
        tests = [asyncio.create_task(client.post(f"{it}/test")) for it in targets]
        done = [await it for it in tests]
        assert Counter(it.status for it in done) == {200: 4, 429: 2}
        refused = next(it for it in done if it.status == 429)
        assert "4 tests" in refused.problem.detail
        await house.world.wait(20_000)
        assert (await client.post(f"{targets[-1]}/test")).status == 200

    live(story)


# --- the class of such mistakes ---------------------------------------------------------------


class Watched(asyncio.Lock):
    """A lock that knows which task holds it."""

    held: ClassVar[Counter[Any]] = Counter()

    async def acquire(self) -> bool:  # type: ignore[override]
        got = await super().acquire()
        self.holder = asyncio.current_task()
        self.held[self.holder] += 1
        return got

    def release(self) -> None:
        super().release()
        self.held[self.holder] -= 1


def test_nothing_that_waits_for_a_receiver_holds_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are replaced by ones that know their holder; every request looks who sends it."""
    monkeypatch.setattr(asyncio, "Lock", Watched)
    hold = shared.Shared.hold

    def watched_place(self: Any, tenant: str, amount: int = 1) -> Any:
        holder = asyncio.current_task()
        place = hold(self, tenant, amount)

        class Place:
            async def __aenter__(self) -> None:
                await place.__aenter__()
                Watched.held[holder] += 1

            async def __aexit__(self, *error: Any) -> None:
                Watched.held[holder] -= 1
                await place.__aexit__(*error)

        return Place()

    monkeypatch.setattr(shared.Shared, "hold", watched_place)
    sent: Counter[str] = Counter()

    async def story(house: House) -> None:
        sender = house.world.sender
        send = sender.send

        def looking(request: Request, done: Callable[[Response], None]) -> None:
            task = asyncio.current_task()
            assert not Watched.held[task], f"a lock is held while {request.target.path} is asked"
            sent[request.target.host] += 1
            send(request, done)

        monkeypatch.setattr(sender, "send", looking)
        sender.scripts = Hanging()
        for name, act in await acts_of(house, "acme", "https://own.example", copies=1):
            got = await act()
            assert got.status in {200, 201}, (name, got.body)
        await house.publish(tenant="acme")
        await house.settled()

    live(story)
    assert sent["own.example"] >= 6
