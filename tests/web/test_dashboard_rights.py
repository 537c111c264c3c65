"""What the dashboard does asks the roles and quotas that the API asks."""

from __future__ import annotations

import pytest

from homing.policy.keys import Role
from homing.policy.quota import Quota
from homing.web.asgi import asgi_app
from homing.web.dashboard.request import Page
from homing.web.dashboard.routes import PAGES
from homing.web.routes import OPERATIONS
from web.asgi import Client, Got
from web.browse import Browser, text
from web.house import URL, House, live, use_cases

# Every command of the dashboard, and the operation of the API that does the same.
SAME_AS = {
    "/event-types": "createEventType",
    "/event-types/{tenant}/{id}": "changeEventType",
    "/event-types/{tenant}/{id}/delete": "deleteEventType",
    "/customer-portal": "changePortal",
    "/customer-portal/links": "createPortalLink",
    "/customer-portal/links/{id}/revoke": "revokePortalLink",
    "/events": "publishEvents",
    "/first-steps/event": "publishEvents",
    "/first-steps/receiver": "createSubscription",
    "/tenants": "getLedger",
    "/deliveries/{id}/replay": "replayDelivery",
    "/deliveries/{id}/cancel": "cancelDelivery",
    "/bulk/replay": "startReplay",
    "/bulk/cancel": "cancelDelivery",
    "/replays/{id}/stop": "cancelReplay",
    "/endpoints/{id}/enable": "enableEndpoint",
    "/endpoints/{id}/freeze": "freezeEndpoint",
    "/endpoints/{id}/test": "testSubscription",
    "/endpoints/{id}/replay": "startReplay",
    "/subscriptions": "createSubscription",
    "/subscriptions/check": "createSubscription",
    "/subscriptions/try": "tryFilters",
    "/subscriptions/{id}": "changeSubscription",
    "/subscriptions/{id}/delete": "deleteSubscription",
    "/subscriptions/{id}/rotate": "rotateSecret",
    "/subscriptions/{id}/test": "testSubscription",
    "/subscriptions/{id}/verify": "verifySubscription",
    "/subscriptions/{id}/pause": "pauseSubscription",
    "/subscriptions/{id}/resume": "resumeSubscription",
    "/subscriptions/{id}/backfill": "backfillSubscription",
    "/system/lost-commits": "confirmLostCommits",
    "/subscriptions/{id}/readers/remove": "removeReader",
    "/subscriptions/{id}/signing-keys/rotate": "rotateSigningKeys",
    "/notices/targets": "createNoticeTarget",
    "/notices/targets/{id}": "changeNoticeTarget",
    "/notices/targets/{id}/rotate": "rotateNoticeTargetSecret",
    "/notices/targets/{id}/link": "sendNoticeTargetLink",
    "/notices/targets/{id}/test": "testNoticeTarget",
    "/notices/targets/{id}/delete": "deleteNoticeTarget",
    "/keys": "createKey",
    "/erasures": "erase",
    "/keys/{id}/revoke": "revokeKey",
    "/deliveries/{id}/try": "tryDelivery",
}
FORM = {"url": URL, "types": "*", "format": "standard", "active": "on"}


class Limited:
    """The same house through another server's app, with quotas."""

    def __init__(self, house: House, quota: Quota) -> None:
        app = asgi_app(use_cases(house.world, quota=quota))
        self.client, self.browser = Client(app), Browser(app)

    async def sign_in(self, role: Role = Role.ADMIN) -> Browser:
        """A browser with a new key of this role."""
        body = {"name": "n", "role": role}
        if role is not Role.ADMIN:
            body["tenant"] = "acme"
        made = await self.client.post("/v1/keys", body)
        assert (await self.browser.sign_in(made.json["key"])).status == 303
        return self.browser


@pytest.mark.parametrize(
    "page", [it for it in PAGES if it.method == "POST"], ids=lambda it: it.path
)
def test_a_command_of_the_dashboard_asks_no_less_than_the_api(page: Page) -> None:
    operation = next(it for it in OPERATIONS if it.id == SAME_AS[page.path])
    assert page.roles <= operation.roles


@pytest.mark.parametrize("role", [Role.MANAGER, Role.VIEWER])
def test_a_key_that_may_not_publish_does_not_publish_on_the_dashboard(role: Role) -> None:
    async def story(house: House) -> None:
        browser = await Limited(house, Quota()).sign_in(role)
        page = await browser.get("/events")
        assert "Publish a test event" not in text(page)
        got = await browser.form("/", "/events", type="a.b", data="1")
        assert got.status == 403
        assert "may not do this" in text(got)
        assert (await house.client.get("/v1/events?tenant=acme")).json["items"] == []

    live(story)


def refused(got: Got) -> None:
    """Told as a page, with the quota that is used up."""
    assert got.status == 429, text(got)
    assert int(got.headers["retry-after"]) >= 1
    assert "The tenant default may" in text(got)


def test_the_dashboard_publishes_within_the_rate_of_the_tenant() -> None:
    async def story(house: House) -> None:
        limited = Limited(house, Quota(publish_per_second=1))
        browser = await limited.sign_in()
        sent = [await browser.form("/events", "/events", type="a.b", data="1") for _ in range(5)]
        assert [it.status for it in sent] == [303, 303, 303, 429, 429]
        refused(sent[-1])
        event = {"type": "a.b", "data": 1}
        assert (await limited.client.post("/v1/events", event)).status == 429, "one rate for both"

    live(story)


def test_the_dashboard_tells_a_repeated_id_apart() -> None:
    async def story(house: House) -> None:
        browser = await Limited(house, Quota()).sign_in()
        for said in (
            "Published: 0 deliveries.",
            "This id was published before: nothing new is sent.",
        ):
            got = await browser.form("/events", "/events", type="a.b", data="1", id="by-hand-1")
            assert (got.status, got.headers["location"]) == (303, "/events/default/by-hand-1")
            assert said.encode().hex() in got.headers["set-cookie"]

    live(story)


def test_what_the_dashboard_published_counts_as_pending_at_once() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        limited = Limited(house, Quota(pending_max=2))
        browser = await limited.sign_in()
        sent = [await browser.form("/events", "/events", type="a.b", data="1") for _ in range(3)]
        assert [it.status for it in sent] == [303, 303, 429]
        refused(sent[-1])

    live(story)


def test_the_dashboard_makes_no_more_subscriptions_than_the_tenant_may_have() -> None:
    async def story(house: House) -> None:
        limited = Limited(house, Quota(subscriptions_max=1))
        browser = await limited.sign_in()
        new = "/subscriptions/new"
        assert (await browser.form(new, "/subscriptions", **FORM)).status == 303
        refused(await browser.form(new, "/subscriptions", **FORM))
        assert await house.world.views.subscriptions_of("default", limit=9) == 1

    live(story)


def test_every_replay_on_the_dashboard_waits_for_room_as_at_the_api() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        await house.publish()
        await house.settled()
        (done,) = await house.deliveries()
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        await house.publish()
        browser = await Limited(house, Quota(pending_max=1)).sign_in()
        at = f"/deliveries/{done['id']}"
        refused(await browser.form(at, f"{at}/replay"))
        refused(await browser.form("/", "/bulk/replay", q="tenant:default"))
        endpoint = f"/endpoints/{made['endpoint']}"
        refused(await browser.form(endpoint, f"{endpoint}/replay", since="1h"))
        assert await house.world.views.pending_of("default") == 1

    live(story)


def test_changing_a_subscription_on_the_dashboard_keeps_its_rate() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(rate_per_second=2)
        browser = Browser(house.app)
        await browser.sign_in()
        at = f"/subscriptions/{made['id']}"
        got = await browser.form(f"{at}/edit", at, **{**FORM, "description": "changed"})
        assert got.status == 303, text(got)
        shown = (await house.client.get(f"/v1{at}")).json
        assert (shown["description"], shown["rate_per_second"]) == ("changed", 2)

    live(story)
