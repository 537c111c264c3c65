"""Every operation of the API against a real server process, by both clients."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
import standardwebhooks
from msgspec import Raw

from acceptance.running import KEY, Server
from client.both import Make, both, listed, raised
from client.hooks import hook
from homing_client import (
    AsyncHoming,
    Conflict,
    DeliveryDetail,
    Event,
    Homing,
    Invalid,
    Jwks,
    NotAuthorized,
    NotFound,
    Receipt,
    TooLarge,
    Unreachable,
    verify,
)
from referee import accepted_by_both, accepted_v1a

PATIENCE_S = 20.0


@pytest.fixture
def tenant() -> str:
    """Each story has a tenant of its own on the server they share."""
    return uuid.uuid4().hex


def client(make: Make, server: Server) -> AsyncHoming:
    return make(f"http://127.0.0.1:{server.port}", KEY)


async def finished(homing: AsyncHoming, tenant: str, count: int = 1) -> list[DeliveryDetail]:
    """The tenant's deliveries, once so many are finished."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows = [
                row
                for row in await listed(homing.deliveries(tenant=tenant))
                if row.status != "pending"
            ]
            if len(rows) >= count:
                return [await homing.delivery(row.id) for row in rows]
            await asyncio.sleep(0.01)


@both
async def test_an_event_is_published_delivered_verified_and_replayed(
    server: Server, tenant: str, make: Make
) -> None:
    homing = client(make, server)
    with hook() as receiver:
        made = await homing.subscribe(receiver.url, ["invoice.*"], tenant=tenant)
        receipt = await homing.publish("invoice.paid", {"n": 17}, tenant=tenant)
        assert receipt.deliveries == 1
        (delivery,) = await finished(homing, tenant)
        assert (delivery.status, delivery.event) == ("delivered", receipt.id)
        assert [one.code for one in delivery.attempts] == [204]
        again = await homing.replay_delivery(delivery.id)
        assert again.replay
        await finished(homing, tenant, 2)
    for headers, body in receiver.came:
        verified = verify(headers, body, made.secret)
        assert (verified.id, verified.event_type) == (delivery.webhook_id, "invoice.paid")
        assert verified.delivery in {delivery.id, again.id}
        assert verified.attempt == 1
        lower = {name.lower(): value for name, value in headers.items()}
        document = standardwebhooks.Webhook(made.secret).verify(body.decode(), lower)
        assert document["data"] == {"n": 17}
    latest = await homing.attempts(tenant=tenant)
    assert {one.delivery for one in latest.items} == {delivery.id, again.id}
    assert (await homing.attempts(cursor=latest.next_cursor, tenant=tenant)).items == ()
    assert (await homing.status()).outage.state == "none"
    (ledger,) = await homing.ledger(tenant=tenant)
    assert (ledger.accepted, ledger.delivered, ledger.balanced) == (2, 2, True)


@both
async def test_events_are_published_in_batches_listed_and_looked_at(
    server: Server, tenant: str, make: Make
) -> None:
    homing = client(make, server)
    mine = Event(type="a.b", data=Raw(b'{"n": 1.50}'), id="a/b", tenant=tenant)
    batch = [mine, Event(type="a.c", data=[1], tenant=tenant)]
    first, second = await homing.publish_many(batch)
    assert first.id == "a/b"
    assert len(second.id) == 32
    assert (first.duplicate, second.duplicate) == (False, False)
    assert await homing.publish_many([mine]) == [Receipt("a/b", 0, duplicate=True)]
    many = (Event(type="a.d", data=n, tenant=tenant) for n in range(1_100))
    receipts = await listed(homing.publish_all(many))
    assert len({one.id for one in receipts}) == 1_100
    seen = await listed(homing.events(tenant=tenant))
    assert [one.id for one in seen] == [one.id for one in [first, second, *receipts]][::-1]
    assert [one.id for one in await listed(homing.events(tenant=tenant, type="a.c"))] == [second.id]
    shown = await homing.event("a/b", tenant=tenant)
    assert bytes(shown.data) == b'{"n": 1.50}'
    assert shown.deliveries == ()


@both
async def test_a_subscription_is_made_changed_tested_and_deleted(
    server: Server, tenant: str, make: Make
) -> None:
    homing = client(make, server)
    with hook() as receiver:
        made = await homing.subscribe(
            receiver.url, ["*"], tenant=tenant, token="t0ken-of-mine", headers={"x-a": "1"}
        )
        assert made.secret.startswith("whsec_")
        assert made.token != "t0ken-of-mine"
        changed = await homing.change_subscription(
            made.id, token=None, headers={"x-a": None, "x-b": "2"}, types=["b"], description="Ours"
        )
        assert (changed.token, set(changed.headers), changed.types) == (None, {"x-b"}, ("b",))
        attempt = await homing.test_subscription(made.id)
        assert (attempt.lane, attempt.outcome, attempt.code) == ("test", "delivered", 204)
        assert receiver.came[0][0]["x-b"] == "2"
        unproved = await homing.subscribe(
            receiver.url, ["b"], tenant=tenant, verification="challenge"
        )
        assert unproved.unverified
        asked = await homing.verify_subscription(unproved.id)
        assert asked.receiver is not None
        assert "does not return the challenge" in asked.receiver.problem
        await homing.delete_subscription(unproved.id)
    await homing.publish("past.made", 1, tenant=tenant)
    late = await homing.subscribe(
        "https://example.com/", ["past.*"], since="1h", per_second=50, tenant=tenant
    )
    assert late.backfill is not None
    assert (late.backfill.count, late.backfill.exact) == (1, True)
    assert (await homing.replay_job(late.backfill.id)).filter.subscription == late.id
    assert made.backfill is None
    await homing.delete_subscription(late.id)
    assert (await homing.count_past(made.id, since="1h")).exact
    assert (await homing.backfill(made.id, since="1h")).filter.backfill
    paused = await homing.pause_subscription(made.id)
    assert paused.paused_since is not None
    assert (await homing.resume_subscription(made.id)).paused_since is None
    assert [one.id for one in await listed(homing.subscriptions(tenant=tenant))] == [made.id]
    assert (await homing.subscription(made.id)).description == "Ours"
    await homing.delete_subscription(made.id)
    assert isinstance(await raised(homing.delete_subscription(made.id)), NotFound)
    assert await listed(homing.subscriptions(tenant=tenant)) == []


@both
async def test_an_endpoint_is_frozen_its_delivery_cancelled_and_replayed_in_bulk(
    server: Server, tenant: str, make: Make
) -> None:
    homing = client(make, server)
    with hook() as receiver:
        made = await homing.subscribe(receiver.url, ["a"], tenant=tenant)
        frozen = await homing.freeze_endpoint(made.endpoint)
        assert (frozen.state, frozen.transitions[0].by) == ("frozen", "the admin key")
        await homing.publish("a", 1, tenant=tenant)
        (waiting,) = await listed(homing.deliveries(endpoint=made.endpoint, status="pending"))
        assert (await homing.endpoint(made.endpoint)).waiting == 1
        assert [
            one.id for one in await listed(homing.endpoints(tenant=tenant, state="frozen"))
        ] == [made.endpoint]
        conflict = await raised(homing.replay_delivery(waiting.id))
        assert isinstance(conflict, Conflict)
        assert conflict.code == "still_pending"
        assert (await homing.cancel_delivery(waiting.id)).status == "cancelled"
        where: dict[str, Any] = {"tenant": tenant, "status": "cancelled", "since": "1h"}
        assert (await homing.count_replay(**where)).count == 1
        job = await homing.start_replay(**where)
        assert (await homing.enable_endpoint(made.endpoint)).state == "enabled"
        rows = await finished(homing, tenant, 2)
        assert [row.status for row in rows] == ["delivered", "cancelled"]
    assert (await homing.replay_job(job.id)).replayed == 1
    assert (await homing.cancel_replay(job.id)).filter.status == "cancelled"


@both
async def test_refusals_are_errors_of_the_tree(server: Server, tenant: str, make: Make) -> None:
    homing = client(make, server)
    await homing.publish("a", 1, id="one", tenant=tenant)
    conflict = await raised(homing.publish("a", 2, id="one", tenant=tenant))
    assert isinstance(conflict, Conflict)
    assert conflict.code == "event_conflict"
    invalid = await raised(homing.publish("no type", 1))
    assert isinstance(invalid, Invalid)
    assert [one.field for one in invalid.problems] == ["events[0].type"]
    assert isinstance(await raised(homing.publish("a", "x" * 2_000_000)), TooLarge)
    assert isinstance(await raised(homing.publish("a", "x" * 20_000_000)), TooLarge)
    assert isinstance(await raised(homing.event("none", tenant=tenant)), NotFound)
    stranger = make(f"http://127.0.0.1:{server.port}", "another-key")
    assert isinstance(await raised(stranger.publish("a", 1)), NotAuthorized)


@both
async def test_a_secret_is_rotated_and_both_verify(server: Server, tenant: str, make: Make) -> None:
    homing = client(make, server)
    with hook() as receiver:
        made = await homing.subscribe(receiver.url, ["*"], tenant=tenant)
        rotated = await homing.rotate_secret(made.id)
        assert rotated.secret not in repr(rotated)
        await homing.publish("a.b", {"n": 1}, tenant=tenant)
        await finished(homing, tenant)
        final = await homing.rotate_secret(made.id, overlap_ms=0)
        await homing.publish("a.b", {"n": 2}, tenant=tenant)
        await finished(homing, tenant, 2)
    secrets = (made.secret, rotated.secret, final.secret)
    (first, second) = [
        [accepted_by_both(headers, body, secret) for secret in secrets]
        for headers, body in receiver.came
    ]
    assert first == [True, True, False]
    assert second == [False, False, True]
    assert verify(*receiver.came[0], rotated.secret).event_type == "a.b"


@both
async def test_a_signing_key_is_rotated_and_both_verify(
    server: Server, tenant: str, make: Make
) -> None:
    homing = client(make, server)
    with hook() as receiver:
        made = await homing.subscribe(receiver.url, ["*"], tenant=tenant, signature="ed25519")
        rotated = await homing.rotate_signing_keys(tenant=tenant)
        await homing.publish("a.b", {"n": 1}, tenant=tenant)
        await finished(homing, tenant)
        final = await homing.rotate_signing_keys(tenant=tenant, overlap_ms=0)
        await homing.publish("a.b", {"n": 2}, tenant=tenant)
        await finished(homing, tenant, 2)
    keys = [it.keys[0].value for it in (rotated, final)]
    (first, second) = [
        [accepted_v1a(headers, body, key) for key in (made.public_keys[0].value, *keys)]
        for headers, body in receiver.came
    ]
    assert first == [True, True, False]
    assert second == [False, False, True]
    assert await homing.signing_keys(tenant=tenant) == final
    address = f"http://127.0.0.1:{server.port}{final.jwks}"
    for key_set in (await homing.jwks(tenant=tenant), Jwks(address), keys):
        assert verify(*receiver.came[1], key_set).event_type == "a.b"


@both
async def test_keys_are_made_used_and_revoked(server: Server, tenant: str, make: Make) -> None:
    homing = client(make, server)
    made = await homing.create_key("shop", "publisher", tenant=tenant, expires="1d")
    assert made.key not in repr(made)
    publisher = make(f"http://127.0.0.1:{server.port}", made.key)
    receipt = await publisher.publish("a.b", 1)
    assert (await homing.event(receipt.id, tenant=tenant)).tenant == tenant
    assert isinstance(await raised(publisher.event(receipt.id)), NotAuthorized)
    (listed_key,) = await listed(homing.keys(tenant=tenant))
    assert (listed_key.id, listed_key.role) == (made.id, "publisher")
    assert listed_key.last_used_at is not None
    await homing.revoke_key(made.id)
    assert isinstance(await raised(publisher.publish("a.b", 1)), NotAuthorized)


@both
async def test_portal_links_are_made_listed_and_revoked(
    server: Server, tenant: str, make: Make
) -> None:
    homing = client(make, server)
    made = await homing.create_portal_link(tenant=tenant, role="manager", subject="ada")
    assert made.url.startswith(f"http://127.0.0.1:{server.port}/portal/open/plk_")
    assert made.url not in repr(made)
    (link,) = await listed(homing.portal_links(tenant=tenant))
    assert (link.id, link.state, link.subject) == (made.id, "waiting", "ada")
    await homing.revoke_portal_link(made.id)
    (link,) = await listed(homing.portal_links(tenant=tenant))
    assert link.state == "revoked"
    png = "data:image/png;base64,iVBORw0KGgo="
    await homing.change_portal(tenant=tenant, name="Acme", theme="dark", logo=png)
    site = "https://app.example.com"
    changed = await homing.change_portal(tenant=tenant, frame_ancestors=[site])
    assert (changed.name, changed.theme, changed.frame_ancestors) == ("Acme", "dark", (site,))
    assert changed.logo is not None
    assert (await homing.change_portal(tenant=tenant, logo="")).logo is None
    assert (await homing.portal(tenant=tenant)).name == "Acme"


@both
async def test_notice_targets_are_made_tested_and_their_notices_listed(
    server: Server, tenant: str, make: Make
) -> None:
    homing = client(make, server)
    url = "https://hooks.invalid/secret-part"
    made = await homing.create_notice_target("webhook", url, tenant=tenant, notices=["frozen"])
    assert made.secret is not None
    assert made.secret not in repr(made)
    (target,) = await listed(homing.notice_targets(tenant=tenant))
    assert (target.id, target.address) == (made.id, "https://hooks.invalid/****")
    changed = await homing.change_notice_target(made.id, name="ours")
    assert (changed.name, changed.notices, changed.language) == ("ours", ("frozen",), "en")
    changed = await homing.change_notice_target(made.id, language="ja")
    assert (changed.name, changed.language) == ("ours", "ja")
    dutch = await homing.create_notice_target("webhook", url, tenant=tenant, language="nl")
    assert dutch.language == "nl"
    await homing.delete_notice_target(dutch.id)
    rotated = await homing.rotate_notice_target_secret(made.id)
    assert rotated.id == made.id
    assert rotated.secret not in {None, made.secret}
    assert "needs no link" in str(await raised(homing.send_notice_target_link(made.id)))
    assert not (await homing.test_notice_target(made.id)).arrived
    subscription = await homing.subscribe("https://a.invalid/", ["*"], tenant=tenant)
    await homing.freeze_endpoint(subscription.endpoint)
    (notice,) = await listed(homing.notices(tenant=tenant, target=made.id))
    assert (notice.kind, notice.target) == ("frozen", made.id)
    assert (await homing.notice_target(made.id)).id == made.id
    await homing.delete_notice_target(made.id)
    assert await listed(homing.notice_targets(tenant=tenant)) == []


@both
async def test_health_is_asked_once_and_told(server: Server, make: Make) -> None:
    homing = client(make, server)
    assert await homing.healthy()
    assert await homing.ready()
    assert "homing_" in await homing.metrics()
    nobody = make("http://127.0.0.1:1", KEY)
    assert isinstance(await raised(nobody.healthy()), Unreachable)


async def test_clients_are_context_managers_and_closed_afterwards(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with Homing(url, KEY) as homing:
        assert homing.ready()
    with pytest.raises(RuntimeError, match="closed"):
        homing.ready()
    async with AsyncHoming(url, KEY) as other:
        assert await other.ready()
    with pytest.raises(RuntimeError, match="closed"):
        await other.ready()
    assert KEY not in repr(homing) + repr(other)
