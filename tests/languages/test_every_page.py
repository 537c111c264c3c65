"""Every page of the dashboard and of the portal is said in the language of the reader.

The pages are rendered in a language that does not exist, in which every message stands between
brackets. Text outside of them would stay English for everybody.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.routing import compile_path

from engine.world import always
from homing.languages import language
from homing.server.settings import Settings
from homing.testing import running_server
from homing.web.dashboard.pages.simulator import DEFAULTS
from homing.web.dashboard.routes import PAGES
from homing.web.portal.pages import PAGES as PORTAL_PAGES
from languages.seen import Pseudo, untranslated
from web.browse import Browser
from web.house import House, live
from web.test_pages import Person

DUTCH = ("accept-language", "nl")
FAILING, WORKING = "https://down.example/hook", "https://up.example/hook"
DATA = (
    r"Homing|homing(\.[a-z_.]+)?|CSV|NDJSON|JSON|URLs?|UTC|API|TLS|DNS|SHA-256|HMAC|Ed25519|OAuth",
    r"https?://\S*|[a-z]+\.example\S*|(sub|dlv|ep|evt|cau|ntc|ntt|era|key|rpl|msg|pl|lnk)_[0-9A-Za-z]+",
    r"order\.paid|acme|default|admin|seventeen|whsec_\S*|hk_\S*|p50|p99|DELETE|POST|GET|PUT|PATCH",
    r"[1-5][0-9]{2} [A-Z][a-z]+( [A-Z][a-z]+)*|ada@customer\.example",
    r"[0-9.,]+ ?(µs|ms|s|min|h|d|k?B|MB|%)\b|v?0\.1\.0",
    r"SQLite|PostgreSQL|Workfront|CloudEvents|Slack|Teams",
    r"\b[a-z0-9]+(_[a-z0-9]+)+\b",  # names of fields and settings
)
LINK = re.compile(r'(?:href|hx-get)="(/[^"#]*)"')
# Files and bodies; the simulator needs a server.
SKIPPED = re.compile(
    r"/static/|/audit/export|/simulator|/event-data/|\.(csv|ndjson|json)(\?|$)|/request/body|/portal/(logo|style)"
)
PAGES_MAX = 150


async def _day(house: House) -> dict[str, Any]:
    """A day in the life of an installation: something of everything that pages show."""
    sender, client = house.world.sender, house.client
    sender.scripts[FAILING] = always(503)
    failing = await house.subscribe(FAILING, tenant="acme", description="seventeen")
    await house.subscribe(WORKING, tenant="acme")
    given = {"description": "seventeen", "schema": {"type": "object"}, "sample": {"n": 17}}
    asked = {"tenant": "acme", "name": "order.paid", **given}
    assert (await client.post("/v1/event-types", asked)).status == 201
    for _ in range(3):
        await house.publish(tenant="acme", type="order.paid", data={"n": 17})
    await house.settled()
    await house.world.wait(200_000)
    return failing


async def _others(house: House, failing: dict[str, Any]) -> list[str]:
    """Pages that only forms and scripts lead to."""
    found = await house.deliveries("?status=pending")
    asked = {"filter": {"tenant": "acme", "status": "delivered"}}
    made = await house.client.post("/v1/replays", asked)
    assert made.status == 202, made.body
    delivery, subscription = found[0]["id"], failing["id"]
    return [
        "/search?q=nothing",
        f"/endpoints/{failing['endpoint']}/replay-count?since=24h",
        f"/deliveries/{delivery}/compare?first=1&second=2",
        f"/deliveries/{delivery}/attempts/1/request",
        "/bulk/failed",
        "/bulk/cancelling?q=&done=7",
        f"/replays/{made.json['id']}",
        f"/subscriptions/{subscription}/backfill-count?from=1h",
    ]


async def _crawl(browser: Browser, start: str, root: str) -> dict[str, str]:
    """All pages that links lead to, as text."""
    waiting, seen, shapes = [start], dict[str, str](), dict[str, int]()
    while waiting and len(seen) < PAGES_MAX:
        path = waiting.pop(0)
        got = await browser.get(path, DUTCH)
        if got.status != 200 or not got.headers["content-type"].startswith("text/html"):
            continue
        seen[path] = got.body.decode()
        for link in LINK.findall(seen[path]):
            to = unescape(link)
            shape = re.sub(r"[a-z]+_[0-9A-Za-z]+|evt[^/?]*|=[^&]*", "*", to)
            known = to in seen or to in waiting or SKIPPED.search(to) or not to.startswith(root)
            if known or shapes.get(shape, 0) >= 3:
                continue
            shapes[shape] = shapes.get(shape, 0) + 1
            waiting.append(to)
    return seen


def _unvisited(pages: Any, seen: dict[str, str]) -> list[str]:
    paths = [it.path for it in pages if it.method == "GET" and not SKIPPED.search(it.path)]
    visited = [path.partition("?")[0] for path in seen]
    return [it for it in paths if not any(compile_path(it)[0].match(path) for path in visited)]


@pytest.fixture(autouse=True)
def pseudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_translations", lambda _code: Pseudo())


def _check(seen: dict[str, str]) -> None:
    problems = [f"{path} {it}" for path, page in seen.items() for it in untranslated(page, DATA)]
    assert not problems, "\n".join(dict.fromkeys(problems))


def test_every_page_of_the_dashboard_is_translated_whole() -> None:
    async def story(house: House) -> None:
        failing = await _day(house)
        browser = Browser(house.app)
        signing_in = (await browser.get("/sign-in", DUTCH)).body.decode()
        wrong = (await browser.call("POST", "/sign-in", headers=(DUTCH,))).body.decode()
        await browser.sign_in()
        seen = await _crawl(browser, "/", "/")
        for path in await _others(house, failing):
            got = await browser.get(path, DUTCH)
            assert got.status == 200, (path, got.body)
            seen[path] = got.body.decode()
        missing = (await browser.get("/nothing", DUTCH)).body.decode()
        _check({**seen, "/sign-in": signing_in, "/sign-in wrong": wrong, "/nothing": missing})
        left = _unvisited(PAGES, seen)
        assert not left, " ".join(left)

    live(story)


def test_the_pages_of_an_empty_installation_are_translated_whole() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        _check(await _crawl(browser, "/", "/"))

    live(story)


def test_every_page_of_the_portal_is_translated_whole() -> None:
    async def story(house: House) -> None:
        await _day(house)
        asked = {"tenant": "acme", "role": "manager"}
        made = await house.client.post("/v1/portal-links", asked)
        assert made.status == 201, made.body
        browser = Browser(house.app)
        opening = await browser.get("/portal/open/" + made.json["url"].rpartition("/")[2], DUTCH)
        assert (await browser.open_portal(made.json["url"])).status == 303
        seen = await _crawl(browser, "/portal/endpoints", "/portal")
        gone = (await Browser(house.app).get("/portal/endpoints", DUTCH)).body.decode()
        _check({**seen, "/portal/open": opening.body.decode(), "/portal closed": gone})
        left = _unvisited(PORTAL_PAGES, seen)
        assert not left, " ".join(left)

    live(story)


def test_the_simulator_is_translated_whole() -> None:
    outage = {"run_for": "4h", "from": "10m", "to": "1h", "every": "1m"}
    with running_server(Settings.of(listen="127.0.0.1:0")) as server:
        person = Person(server, accept_language="nl")
        addresses = ["/simulator", "/simulator?" + urlencode({**DEFAULTS, **outage})]
        wrong = "/simulator?" + urlencode({**DEFAULTS, "every": "soon", "percent": "0"})
        _check({path: person.see(path) for path in addresses})
        _check({wrong: person.see(wrong, status=422)})
