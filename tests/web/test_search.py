"""One text finds anything, through the API and the dashboard, and nothing of another tenant."""

from __future__ import annotations

from urllib.parse import quote, quote_plus, urlencode

import pytest

from homing.engine.options import EngineOptions
from homing.policy.payload_fields import PayloadFields
from homing.store import search
from web.asgi import Client, Got
from web.browse import Browser, text
from web.house import House, live

FIELDS = EngineOptions(payload_fields=PayloadFields(("data.invoice.id",), (b"k" * 32,)))


async def find(house: House, q: str, key: str = "", **more: str) -> Got:
    client = Client(house.app, key=key) if key else house.client
    return await client.get("/v1/search?" + urlencode({"q": q, **more}))


async def hits(house: House, q: str, key: str = "", **more: str) -> list[tuple[str, str]]:
    got = await find(house, q, key, **more)
    assert got.status == 200, got.body
    return [(it["kind"], it["id"]) for it in got.json["items"]]


async def viewer(house: House, tenant: str) -> str:
    body = {"name": "n", "role": "viewer", "tenant": tenant}
    return str((await house.client.post("/v1/keys", body)).json["key"])


async def browser(house: House, key: str | None = None) -> Browser:
    made = Browser(house.app)
    assert (await (made.sign_in(key) if key else made.sign_in())).status == 303
    return made


async def page(house: House, q: str, key: str | None = None) -> Got:
    return await (await browser(house, key)).get("/search?" + urlencode({"q": q}))


async def one_of_each(house: House, tenant: str = "acme") -> dict[str, str]:
    """The ids of one object of each kind."""
    made = await house.subscribe(f"https://hooks.{tenant}.example/in", tenant=tenant)
    data = {"invoice": {"id": 4711}}
    event = await house.publish(tenant=tenant, id=f"inv-{tenant}", type="invoice.paid", data=data)
    await house.settled()
    delivery = (await house.deliveries(f"?tenant={tenant}"))[0]
    assert delivery["webhook_id"] == delivery["id"]
    return {
        "subscription": made["id"],
        "endpoint": made["endpoint"],
        "event": event,
        "delivery": delivery["id"],
    }


def test_every_id_finds_its_object_and_opens_its_page() -> None:
    async def story(house: House) -> None:
        ids = await one_of_each(house)
        await one_of_each(house, "other")
        for kind, shown in ids.items():
            assert await hits(house, shown) == [(kind, shown)]
            got = await page(house, f"  {shown} ")
            assert got.status == 303
            opened = await (await browser(house)).get(got.headers["location"])
            assert opened.status == 200
            assert shown in text(opened)

    live(story)


def test_a_url_and_a_part_of_its_host_find_the_endpoint() -> None:
    async def story(house: House) -> None:
        ids = await one_of_each(house)
        await house.subscribe("https://hooks.acme.example/in2", tenant="acme")
        await house.subscribe("https://bücher.example/", tenant="acme")
        endpoint = ("endpoint", ids["endpoint"])
        assert await hits(house, "HTTPS://Hooks.Acme.example:443/in") == [endpoint]
        assert len(await hits(house, "oks.ACM")) == 2
        assert len(await hits(house, "https://hooks.acme.example")) == 2
        assert len(await hits(house, "bücher.example")) == 1
        assert await hits(house, "h%s_acme") == []

    live(story)


def test_a_type_finds_its_events_if_a_subscription_names_it_or_an_event_has_it() -> None:
    async def story(house: House) -> None:
        await house.subscribe(types=["invoice.*", "order.paid"])
        for name in ("invoice.paid", "order.paid"):
            assert await hits(house, name) == [("type", name)]
        assert await hits(house, "order.sent") == []
        assert await hits(house, "invoice.") == []
        await house.publish(type="order.sent")
        assert await hits(house, "order.sent") == [("type", "order.sent")]
        got = await page(house, "order.sent")
        assert (got.status, got.headers["location"]) == (303, "/events?q=order.sent")
        theirs = await viewer(house, "other")
        assert await hits(house, "order.sent", theirs) == []
        assert await hits(house, "invoice.paid", theirs) == []

    live(story)


def test_a_payload_field_finds_its_events() -> None:
    async def story(house: House) -> None:
        ids = await one_of_each(house)
        assert await hits(house, "data.invoice.id:4711") == [("event", ids["event"])]
        assert await hits(house, "data.invoice.id:471") == []
        assert await hits(house, "data.invoice.id:4711", await viewer(house, "other")) == []
        got = await page(house, "data.invoice.id:4711")
        assert got.headers["location"] == f"/events/acme/{ids['event']}"
        nothing = await find(house, "data.invoice.id:1")
        examples = [it["q"] for it in nothing.json["examples"]]
        assert "data.invoice.id:4711" in examples
        for example in examples:
            assert await hits(house, example), example

    live(story, FIELDS)


def test_several_are_listed_with_their_kinds_and_bounded() -> None:
    async def story(house: House) -> None:
        for number in range(25):
            await house.subscribe(f"https://h{number}.acme.example/", tenant="acme")
        await house.publish(tenant="acme", id="same")
        await house.publish(tenant="other", id="same")
        got = await find(house, "acme")
        assert (len(got.json["items"]), got.json["more"]) == (20, True)
        both = await find(house, "same")
        assert [it["tenant"] for it in both.json["items"]] == ["other", "acme"]
        assert await hits(house, "same", tenant="acme") == [("event", "same")]
        assert await hits(house, "tenant:acme same") == [("event", "same")]
        assert await hits(house, "tenant:acme same", tenant="other") == []
        shown = await page(house, "same")
        assert shown.status == 200
        assert "2 results for same" in text(shown)
        assert shown.body.count(b'href="/events/') == 2
        assert "20+ results" in text(await page(house, "acme"))

    live(story)


def test_nothing_found_says_what_can_be_searched_with_examples_that_work() -> None:
    async def story(house: House) -> None:
        assert "no event was published" in text(await page(house, "zzz"))
        await one_of_each(house)
        got = await find(house, "zzz")
        assert got.json["items"] == []
        assert len(got.json["examples"]) == 5
        for example in got.json["examples"]:
            assert await hits(house, example["q"]), example
        for query in ("zzz", ""):
            shown = text(await page(house, query))
            assert "a delivery by its id, or by the webhook-id" in shown
        assert "Nothing found for zzz" in text(await page(house, "zzz"))

    live(story)


def test_a_search_that_was_not_complete_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TENANTS_MAX", 1)
    monkeypatch.setattr(search, "ENDPOINTS_MAX", 1)

    async def story(house: House) -> None:
        await one_of_each(house)
        await one_of_each(house, "other")
        notes = (await find(house, "no-such")).json["notes"]
        assert [it.partition(":")[0] for it in notes] == [
            "Only some of the tenants were searched",
            "Only some of the endpoints were searched for a part of a URL",
        ]
        assert "put tenant:NAME before the text" in text(await page(house, "no-such"))
        assert (await find(house, "tenant:other inv-other")).json["notes"] == []
        whole = (await find(house, "https://nobody.example/hook")).json["notes"]
        assert whole[0].startswith("Only some of the tenants were searched")

    live(story)


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "reason"),
    [
        ("", "must say what to search for"),
        ("x" * 8_192, "must be at most 2,200 characters"),
        ("data.x:1", "must not name data.x: of the payload fields none can be searched"),
        ("tenant:a.b x", "must have the name of a tenant after tenant:"),
    ],
)
def test_a_text_that_cannot_be_searched_is_refused(q: str, reason: str) -> None:
    async def story(house: House) -> None:
        got = await find(house, q)
        assert got.status == 422
        (problem,) = got.json["problems"]
        assert problem["field"] == "q"
        assert reason in problem["reason"]
        shown = await page(house, q)
        assert shown.status == 200
        assert not q or reason in text(shown)

    live(story)


@pytest.mark.parametrize(
    "q",
    [
        "%",
        "_",
        "' OR 1=1 --",
        "\\",
        "%00",
        "\u202e\u2066evil",
        "a\x01b",
        "\x7f",
        "😀" * 300,
        "dlv_" + "z" * 13,
        "ep_8000000000000",
        "https://[::1",
        "https://\u202e.example",
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "{{7*7}}",
        "tenant:acme",
        "type:" + "a" * 300,
        "x" * 2_200,
    ],
)
def test_hostile_text_finds_nothing_and_is_escaped(q: str) -> None:
    async def story(house: House) -> None:
        await one_of_each(house)
        got = await find(house, q)
        assert got.status in {200, 422}
        assert got.status == 422 or got.json["items"] == []
        shown = await page(house, q)
        assert shown.status == 200
        assert b"<script>alert" not in shown.body
        assert b"<img src=x" not in shown.body

    live(story)


@pytest.mark.parametrize("raw", ["%00", "a%00", "%ff", "%ed%a0%80"])
def test_text_that_no_database_holds_is_refused(raw: str) -> None:
    async def story(house: House) -> None:
        got = await house.client.get(f"/v1/search?q={raw}")
        assert got.status == 422
        assert got.json["problems"][0]["field"] == "q"

    live(story)


def test_what_another_tenant_has_looks_as_if_it_did_not_exist() -> None:
    async def story(house: House) -> None:
        theirs = await one_of_each(house)
        await one_of_each(house, "other")
        key = await viewer(house, "other")
        texts = {
            theirs["delivery"]: "dlv_0000000000077",
            theirs["endpoint"]: "ep_0000000000077",
            theirs["subscription"]: "sub_0000000000077",
            theirs["event"]: "inv-none",
            "https://hooks.acme.example/in": "https://hooks.none.example/in",
            "hooks.acme": "hooks.none",
            f"tenant:acme {theirs['event']}": "tenant:none inv-none",
            "tenant:acme data.invoice.id:4711": "tenant:none data.invoice.id:1",
        }
        for asked, unknown in texts.items():
            for more in ({}, {"tenant": "acme"}):
                got, none = [await find(house, it, key, **more) for it in (asked, unknown)]
                assert (got.status, got.body) == (none.status, none.body), asked
            got, none = [await page(house, it, key) for it in (asked, unknown)]
            assert got.status == none.status == 200
            same = got.body
            for form in (asked, quote(asked), quote_plus(asked)):  # The page repeats the text.
                same = same.replace(form.encode(), b"")
            assert b"acme.example" not in same
            assert theirs["event"].encode() not in same

    live(story, FIELDS)


def test_a_deleted_subscription_is_not_found() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        await house.client.call("DELETE", f"/v1/subscriptions/{made['id']}")
        assert await hits(house, made["id"]) == []

    live(story)


# --- the list of deliveries -----------------------------------------------------------------


def test_the_deliveries_of_an_event_are_listed_at_once_however_old_it_is() -> None:
    async def story(house: House) -> None:
        await house.subscribe(tenant="acme")
        await house.publish(tenant="acme", id="old")
        batch = [{"type": "a.b", "data": 1, "tenant": "acme"}] * 1_000
        for _ in range(3):
            assert (await house.client.post("/v1/events", batch)).status == 202
        await house.settled()
        await house.subscribe(tenant="other")
        await house.publish(tenant="other", id="old")
        await house.settled()
        for key, count in ((await viewer(house, "acme"), 1), (None, 2)):
            got = await (await browser(house, key)).get("/deliveries?q=event:old")
            assert got.body.count(b"<tr data-row=") == count
            assert b'rel="next"' not in got.body

    live(story)
