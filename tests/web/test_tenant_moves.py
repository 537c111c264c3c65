"""A tenant that moves between installations, as its callers and its receivers see it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from engine.world import always
from homing.engine.options import HOUR_MS, EngineOptions
from homing.model import Subscription, read_id
from homing.store.catalog_versions import raise_catalog
from homing.store.tx import Tx
from web.asgi import Client, Got
from web.house import House, live

ACME = "acme"
THERE = "https://two.example"
DAY_MS = 24 * HOUR_MS


async def mark(house: House, step: str | None) -> None:
    """Write a step as `homing move --tenant` does it; None: the move was given up."""

    async def write(tx: Tx) -> None:
        version = await raise_catalog(tx)
        if step is None:
            await tx.all("tenant_move_remove", tenant=ACME, id="m")
            return
        if step == "arrived":
            raised = {"tenant": ACME, "version": version}
            await tx.all("tenant_subscriptions_raise", **raised)
        await tx.all(
            "tenant_move_set",
            tenant=ACME,
            id="m",
            step=step,
            place="two",
            url=THERE,
            version=version,
            at=0,
        )

    await house.world.db.run(write)
    await house.world.engine._core.catalog.refresh()  # As a poll notices the new version.
    await house.publish(tenant="other")


async def key_of(house: House, role: str) -> Client:
    made = {"name": role, "role": role, "tenant": ACME}
    got = await house.client.post("/v1/keys", made)
    return Client(house.app, key=got.json["key"])


def refused(got: Got, code: str = "tenant_moving") -> bool:
    assert (got.status, got.json["code"]) == (503, code), got.body
    assert ACME in got.json["detail"]
    return int(got.headers["retry-after"]) > 0


def test_nothing_is_accepted_changed_or_sent_while_a_tenant_leaves() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts["https://acme.example/hook"] = always(500)
        mine = await house.subscribe("https://acme.example/hook", tenant=ACME)
        await house.subscribe("https://other.example/hook", tenant="other")
        stream = (
            await house.client.post("/v1/subscriptions", {"types": ["*"], "tenant": ACME})
        ).json
        manager, publisher = await key_of(house, "manager"), await key_of(house, "publisher")
        await house.publish(tenant=ACME)
        await house.settled()
        (delivery,) = await house.deliveries(f"?tenant={ACME}")
        page = (await manager.get(f"/v1/subscriptions/{stream['id']}/events")).json
        one, path = delivery["id"], f"/v1/subscriptions/{mine['id']}"
        before = len(house.world.hits("https://acme.example/hook"))

        await mark(house, "leaving")

        assert refused(await publisher.post("/v1/events", {"type": "a.b", "data": 1}))
        assert refused(await house.client.post("/v1/events", _events("other", ACME)))
        target = {"kind": "webhook", "address": "https://acme.example/n"}
        changes: list[tuple[str, Any]] = [
            (f"{path}/test", None),
            (f"{path}/secret/rotate", {}),
            (f"{path}/pause", None),
            (f"{path}/backfill", {"from": "1h"}),
            (f"/v1/subscriptions/{stream['id']}/ack", {"cursor": page["cursor"]}),
            ("/v1/subscriptions", {"types": ["*"]}),
            (f"/v1/endpoints/{mine['endpoint']}/freeze", None),
            (f"/v1/deliveries/{one}/cancel", None),
            ("/v1/replays", {"filter": {"status": "delivered"}}),
            ("/v1/notice-targets", target),
            ("/v1/erasures", {"event": delivery["event"]}),
        ]
        for at, document in changes:
            assert refused(await manager.post(at, document)), at
        assert refused(await manager.patch(path, {"description": "changed"}))
        made = {"name": "new", "role": "viewer", "tenant": ACME}
        assert refused(await house.client.post("/v1/keys", made))
        assert (await manager.get(path)).status == 200, "what it has can be read"
        assert len(await house.deliveries("?tenant=other")) > 0
        await house.world.wait(3 * DAY_MS)
        assert len(house.world.hits("https://acme.example/hook")) == before
        assert len(await house.deliveries("?tenant=other")) > 0
        (waiting,) = await house.deliveries(f"?tenant={ACME}")
        assert waiting["status"] == "pending", "its window did not end meanwhile"

        house.world.sender.scripts["https://acme.example/hook"] = always(204)
        await mark(house, None)

        await house.publish(tenant=ACME)
        await house.settled()
        assert {it["status"] for it in await house.deliveries(f"?tenant={ACME}")} == {"delivered"}

    live(story)


def _events(*tenants: str) -> list[dict[str, Any]]:
    return [{"type": "a.b", "data": 1, "tenant": tenant} for tenant in tenants]


def test_a_tenant_that_arrives_is_served_when_it_is_complete() -> None:
    async def story(house: House) -> None:
        url = "https://acme.example/hook"
        house.world.sender.scripts[url] = always(500)
        await house.subscribe(url, tenant=ACME)
        manager = await key_of(house, "manager")
        await house.publish(tenant=ACME)
        await house.settled()
        sent = len(house.world.hits(url))
        await mark(house, "arriving")
        assert refused(await manager.get("/v1/subscriptions"))
        assert refused(await house.client.post("/v1/events", _events(ACME)))
        await house.world.crash()  # A process that starts meanwhile reads the same rows.
        house = House(house.world)
        await house.world.wait(HOUR_MS)
        assert len(house.world.hits(url)) == sent
        house.world.sender.scripts[url] = always(204)

        await mark(house, "arrived")

        await house.settled()
        assert len(house.world.hits(url)) == sent + 1
        await house.publish(tenant=ACME)
        await house.settled()
        assert len(house.world.hits(url)) == sent + 2

    live(story)


@pytest.mark.parametrize("step", ["left", "moved"])
def test_the_callers_of_a_tenant_that_was_moved_are_told_where_it_is(step: str) -> None:
    async def story(house: House) -> None:
        mine = await house.subscribe("https://acme.example/hook", tenant=ACME)
        manager, publisher = await key_of(house, "manager"), await key_of(house, "publisher")
        await mark(house, step)
        path = f"/v1/subscriptions/{mine['id']}"
        for got in (
            await manager.get("/v1/deliveries"),
            await manager.get(path),
            await manager.patch(path, {"description": "x"}),
            await publisher.post("/v1/events", {"type": "a.b", "data": 1}),
            await house.client.post("/v1/events", _events(ACME)),
            await house.client.post("/v1/subscriptions", {"types": ["*"], "tenant": ACME}),
        ):
            assert refused(got, "tenant_moved")
            assert THERE in got.json["detail"]
        assert (await house.client.post("/v1/events", _events("other"))).status == 202

    live(story)


def test_retention_waits_while_rows_are_copied() -> None:
    async def story(house: House) -> None:
        await house.subscribe("https://acme.example/hook", tenant=ACME)
        event = await house.publish(tenant=ACME)
        await house.settled()
        await mark(house, "leaving")
        await house.world.wait(3 * DAY_MS)
        assert (await house.client.get(f"/v1/events/{event}?tenant={ACME}")).status == 200
        await mark(house, None)
        await house.world.wait(2 * HOUR_MS)
        assert (await house.client.get(f"/v1/events/{event}?tenant={ACME}")).status == 404

    live(story, EngineOptions(retention_ms=DAY_MS))


@pytest.mark.parametrize("step", ["left", "moved"])
def test_a_request_that_runs_while_the_rows_are_removed_is_told_where_the_tenant_is(
    step: str,
) -> None:
    """It was let in before the switch, and found nothing any more after it."""

    async def story(house: House) -> None:
        stream = (
            await house.client.post("/v1/subscriptions", {"types": ["*"], "tenant": ACME})
        ).json
        manager, path = await key_of(house, "manager"), f"/v1/subscriptions/{stream['id']}"
        cursor = (await manager.get(f"{path}/events")).json["cursor"]
        read, number = house.world.views.subscription, read_id("sub", stream["id"])

        async def late(subscription_id: int) -> Subscription | None:
            await mark(house, step)
            raw: Any = house.world.db
            for table, column in (("pull_stream", "subscription_id"), ("subscription", "id")):
                text = f"DELETE FROM {table} WHERE {column} = {number}"
                await raw.raw(lambda run, text=text: run(text))
            return await read(subscription_id)

        house.world.views.subscription = late  # type: ignore[method-assign]
        got = await manager.post(f"{path}/ack", {"cursor": cursor})
        assert refused(got, "tenant_moved"), got
        house.world.views.subscription = read  # type: ignore[method-assign]
        await mark(house, None)
        assert (await manager.post(f"{path}/ack", {"cursor": cursor})).status == 404

    live(story)


def test_a_reader_is_not_changed_while_the_rows_of_its_tenant_arrive() -> None:
    """The operator's key is let in; the subscription is there already, and its stream is not."""

    async def story(house: House) -> None:
        stream = (
            await house.client.post("/v1/subscriptions", {"types": ["*"], "tenant": ACME})
        ).json
        path = f"/v1/subscriptions/{stream['id']}"
        cursor = (await house.client.get(f"{path}/events")).json["cursor"]
        await mark(house, "arriving")
        number, raw = read_id("sub", stream["id"]), cast("Any", house.world.db)
        await raw.raw(lambda run: run(f"DELETE FROM pull_stream WHERE subscription_id = {number}"))
        assert refused(await house.client.post(f"{path}/ack", {"cursor": cursor}))
        assert refused(await house.client.get(f"{path}/events?reader=new&from=now"))
        assert refused(await house.client.call("DELETE", f"{path}/readers"))

    live(story)
