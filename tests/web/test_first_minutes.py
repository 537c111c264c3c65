"""The first minutes, attacked: the built-in receiver, exports, the chosen tenant, sign-in links."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from client.hooks import hook
from homing.app.access import Caller
from homing.app.exports import AT_ONCE, PAGE_ROWS
from homing.cli.sign_in_link import link_to
from homing.errors import TooMany
from homing.languages.language import LANGUAGES
from homing.policy.built_in_receiver import HOST, PREFIX, receiver_url
from homing.policy.hash_keys import HashKeys
from homing.policy.keys import Role
from homing.server.settings import Settings
from homing.testing import HomingServer, running_server
from homing.web.dashboard.characters import readable, visible
from homing.web.dashboard.export import cell
from homing.web.dashboard.files import Files
from web.browse import Browser, text
from web.house import House, live
from web.test_pages import Person


@pytest.fixture(scope="module")
def server() -> Iterator[HomingServer]:
    """It may not connect to loopback addresses."""
    with running_server(Settings.of(listen="127.0.0.1:0")) as server:
        yield server


def keys_of(server: HomingServer) -> HashKeys:
    """The keys that sign the URLs of its built-in receivers."""
    keys = server._engine._core.options.hash_keys
    assert keys is not None
    return keys


# --- the built-in receiver ------------------------------------------------------------------


def test_only_the_path_of_a_built_in_receiver_is_reached_and_no_other_of_this_server(
    server: HomingServer,
) -> None:
    right = receiver_url(keys_of(server), "acme")
    wrong = [
        f"http://{HOST}/healthz",
        f"http://{HOST}/v1/events",
        f"http://{HOST}{PREFIX}acme/{'0' * 32}",
        right.replace("/acme/", "/globex/"),
        right + "/../../../v1/status",
        right + "?x=/v1/status",
    ]
    for url in (right, *wrong):
        server.client.subscribe(url, ["*"], tenant="acme")
    server.client.publish("a.b", {"n": 1}, tenant="acme")
    server.settle()
    found = {it.url: it for it in server.client.deliveries(tenant="acme") if it.type == "a.b"}
    assert found.pop(right).status == "delivered"
    assert len(found) == len(wrong)
    for one in found.values():
        (attempt,) = server.client.delivery(one.id).attempts
        assert attempt.code is None, (one.url, attempt)
        assert attempt.address is None, "the server was dialled"


def test_the_built_in_receiver_says_what_it_got_and_refuses_strangers(
    server: HomingServer,
) -> None:
    path = receiver_url(keys_of(server), "acme").partition(HOST)[2]
    got = httpx.post(server.url + path, content=b"x" * 70_000)
    assert (got.status_code, got.json()["received_bytes"]) == (200, 70_000)
    assert httpx.post(server.url + path, content=b"x" * 3_000_000).status_code == 413
    assert httpx.get(server.url + path).status_code == 405
    for wrong in (path[:-1], path + "0", PREFIX, PREFIX + "acme", PREFIX + "\x00/x"):
        got = httpx.post(server.url + wrong.replace("\x00", "%00"), content=b"x" * 70_000)
        assert got.status_code == 404, wrong


def test_the_first_steps_end_with_the_first_subscription_of_ones_own(server: HomingServer) -> None:
    key = server.client.create_key("m", "manager", tenant="fresh").key
    person = Person(server, key)
    assert "Your first delivery" in person.see("/")
    person.do("/", "/first-steps/receiver", tenant="fresh")
    assert "Send a test event" in person.see("/")
    response, page = person.do("/", "/first-steps/receiver", tenant="fresh")
    assert response.status == 409, page
    response, _ = person.do("/", "/first-steps/receiver", tenant="acme")
    assert response.status == 403
    server.client.subscribe("https://receiver.example/hook", ["*"], tenant="fresh")
    assert "Your first delivery" not in person.see("/")


def test_a_command_of_the_first_steps_works_as_it_is_pasted(server: HomingServer) -> None:
    page = Person(server, server.key).see("/?tenant=quite-new")
    assert f"--server {server.url}" in page
    viewer = server.client.create_key("v", "viewer", tenant="quite-new").key
    assert "admin.key" not in Person(server, viewer).see("/")


def test_all_scripts_and_styles_are_small_when_they_are_sent(server: HomingServer) -> None:
    """A page, without its HTML, stays far below 145 kB; it has the texts of one language."""
    files = Files()
    sizes = {it: len(files.compressed(it)) for it in files.names if not it.endswith(".txt")}
    texts = [size for name, size in sizes.items() if name.startswith("messages.")]
    assert len(texts) == len(LANGUAGES) - 1
    assert sum(sizes.values()) - sum(texts) + max(texts) < 85_000
    got = httpx.get(f"{server.url}{files.root}/app.js", headers={"accept-encoding": "gzip"})
    assert got.headers["content-encoding"] == "gzip"
    assert got.content == files.get("app.js").content  # type: ignore[union-attr]
    plain = httpx.get(f"{server.url}{files.root}/app.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == got.content


# --- sign-in links --------------------------------------------------------------------------


def test_a_sign_in_link_opens_one_session_and_wrong_ones_are_slowed_down(
    server: HomingServer,
) -> None:
    link = link_to(server.url, server.key).partition("#")[2]

    def sign_in(key: str) -> httpx.Response:
        return httpx.post(f"{server.url}/sign-in", data={"key": key})

    assert sign_in(link).status_code == 303
    again = sign_in(link)
    assert again.status_code == 401
    assert "used before" in again.text
    assert sign_in(link[:-1] + ("0" if link[-1] != "0" else "1")).status_code == 401
    got = httpx.get(f"{server.url}/v1/status", headers={"authorization": f"Bearer {link}"})
    assert got.status_code == 401, "a link is no key"


# --- exports --------------------------------------------------------------------------------


def test_an_export_has_every_row_of_the_callers_tenant_and_no_other() -> None:
    async def story(house: House) -> None:
        await house.subscribe(tenant="acme")
        await house.subscribe(tenant="globex")
        count = PAGE_ROWS + 7
        for _ in range(count // 101 + 1):
            events = [{"type": "a.b", "data": 1, "tenant": "acme"}] * 101
            await house.client.post("/v1/events", events)
        await house.publish(tenant="globex")
        await house.settled()
        key = await house.client.post("/v1/keys", {"name": "n", "role": "viewer", "tenant": "acme"})
        browser = Browser(house.app)
        await browser.sign_in(key.json["key"])
        got = await browser.get("/deliveries.ndjson")
        rows = [json.loads(it) for it in got.body.splitlines()]
        assert len(rows) == 101 * (count // 101 + 1)
        assert {it["tenant"] for it in rows} == {"acme"}
        got = await browser.get("/deliveries.csv?q=tenant%3Aglobex")
        assert list(csv.DictReader(io.StringIO(got.body.decode()))) == []
        for path in ("/endpoints.csv", "/events.csv", "/subscriptions.csv"):
            got = await browser.get(path)
            found = list(csv.DictReader(io.StringIO(got.body.decode())))
            assert found, path
            assert {it["tenant"] for it in found} == {"acme"}, path
        assert b"whsec_" not in (await browser.get("/subscriptions.ndjson")).body.replace(
            b"whsec_****", b""
        )

    live(story)


def test_one_export_of_a_tenant_runs_at_a_time() -> None:
    async def story(house: House) -> None:
        exports = house.use_cases.exports
        caller = Caller("n", Role.VIEWER, "acme")
        first = await exports.events(caller, tenant=None, event_type=None)
        with pytest.raises(TooMany):
            await exports.events(caller, tenant=None, event_type=None)
        other = await exports.events(
            Caller("n", Role.VIEWER, "globex"), tenant=None, event_type=None
        )
        async for _ in first:
            pass
        await exports.events(caller, tenant=None, event_type=None)
        async for _ in other:
            pass

    live(story)


def test_exports_of_many_tenants_are_open_and_their_pages_are_read_in_turns() -> None:
    """Four that read slowly, or begin again and again, keep nobody else out."""

    async def story(house: House) -> None:
        views, reading, most = house.world.views, 0, 0
        page = views.events

        async def slow(**asked: Any) -> Any:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await asyncio.sleep(1)
            reading -= 1
            return await page(**asked)

        views.events = slow  # type: ignore[method-assign]

        async def begin(name: str) -> AsyncIterator[Any]:
            caller = Caller("n", Role.VIEWER, name)
            return await house.use_cases.exports.events(caller, tenant=None, event_type=None)

        async def again_and_again(name: str) -> None:
            while True:
                async for _ in await begin(name):
                    pass

        slow_readers = [await begin(f"slow{n}") for n in range(6)]
        greedy = [asyncio.create_task(again_and_again(f"greedy{n}")) for n in range(8)]
        await house.world.wait(100)
        began = house.world.clock.now()
        await begin("modest")
        assert house.world.clock.now() - began <= 3_000  # Eight others had one page each before.
        assert most == AT_ONCE
        assert len(slow_readers) == 6
        for task in greedy:
            task.cancel()

    live(story)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_a_cell_that_a_spreadsheet_would_run_is_text(begin: str) -> None:
    assert cell(f"{begin}cmd|' /C calc'!A0").startswith("'")
    assert cell(7) == "7"
    assert cell(None) == ""
    assert cell({"a": [1]}) == '{"a":[1]}'


# --- the chosen tenant ----------------------------------------------------------------------


def test_the_chosen_tenant_narrows_lists_and_bulk_replays_but_no_rights() -> None:
    async def story(house: House) -> None:
        for tenant in ("acme", "globex"):
            await house.subscribe(tenant=tenant)
            await house.publish(tenant=tenant)
        await house.settled()
        browser = Browser(house.app)
        await browser.sign_in()
        assert (await browser.form("/tenants", "/tenants", tenant="globex")).status == 303
        for path in ("/deliveries", "/events", "/endpoints", "/subscriptions", "/deliveries.csv"):
            assert "acme" not in text(await browser.get(path)), path
        page = text(await browser.get("/bulk?q=status%3Adelivered"))
        assert "globex" in page
        assert "acme" not in page
        asked = await browser.get("/deliveries?q=tenant%3Aacme")
        assert asked.body.count(b"data-row=") == 1
        got = await browser.form("/tenants", "/tenants", tenant="no such name!")
        assert got.status == 422
        key = await house.client.post("/v1/keys", {"name": "n", "role": "viewer", "tenant": "acme"})
        viewer = Browser(house.app)
        await viewer.sign_in(key.json["key"])
        viewer.cookies["homing_tenant"] = "globex"
        assert "globex" not in text(await viewer.get("/deliveries"))
        assert (await viewer.get("/tenants")).status == 403

    live(story)


# --- characters -----------------------------------------------------------------------------


def test_letters_of_other_scripts_are_decoded_in_a_url_and_nothing_else() -> None:
    assert readable("https://a.example/%E6%B3%A8%E6%96%87?x=%2F%20") == (
        "https://a.example/注文?x=%2F%20"
    )
    for kept in ("/%E2%80%AE", "/%FF%FE", "/%00", "/%C2%A0", "/%25E6"):
        assert readable(kept) == kept


def test_hidden_characters_get_a_name_and_markup_stays_text() -> None:
    assert 'title="right-to-left override">U+202E<' in visible("a\u202eb")
    assert visible("<b>\x00") == (
        '&lt;b&gt;<span class="v-char" title="control character">U+0000</span>'
    )
    assert visible("a\n\tb") == "a\n\tb"


def test_two_attempts_are_compared_and_an_unknown_one_is_not_found(server: HomingServer) -> None:
    with hook(500), running_server() as other, hook(500) as receiver:
        other.client.subscribe(receiver.url, ["*"])
        other.client.publish("a.b", {})
        other.live_through(minutes=3)
        (delivery,) = other.client.deliveries()
        person = Person(other)
        page = person.see(f"/deliveries/{delivery.id}/compare?first=1&second=2")
        assert "homing-attempt" in page
        for query in ("first=1&second=9", "first=&second=", "first=1"):
            person.see(f"/deliveries/{delivery.id}/compare?{query}", status=404)
