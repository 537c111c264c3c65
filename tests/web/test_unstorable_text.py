"""Text that a database cannot hold is refused with the name of its field, wherever it comes in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from starlette.types import ASGIApp

from homing.server.settings import Settings
from homing.server.wiring import running
from postgres import Server
from web.asgi import KEY, Client, Got
from web.browse import Browser, text
from web.doors import Entry, api_addresses, api_bodies, page_addresses, page_forms

pytestmark = pytest.mark.anyio

# A NUL; half a surrogate pair and a lone byte, which are not UTF-8.
ESCAPED = ("%00", "%ED%A0%80", "%FF")
# The server replaces what is not UTF-8 in a path before the application reads the path.
IN_PATHS = ("%00",)


@pytest.fixture
async def app(postgres: Server, tmp_path: Path) -> AsyncIterator[ASGIApp]:
    """The whole application on PostgreSQL: what is not refused before it is an error there."""
    settings = Settings.of(
        grace_ms=1_000,
        writer="thread",
        data=str(tmp_path),
        database_url=await postgres.make(),
    )
    async with running(settings, admin_key=KEY) as house:
        yield cast("ASGIApp", house.config.app)


def wrong(entry: Entry, escaped: str, got: Got, named: list[str]) -> list[str]:
    """What is wrong with this response."""
    if 400 <= got.status < 500 and entry.field in named:
        return []
    return [f"{entry.method} {entry.path} {entry.form} {escaped}: {got.status} {named}"]


async def test_the_api_names_the_parameter(app: ASGIApp) -> None:
    client, found, count = Client(app), [], 0
    for entry in api_addresses():
        for escaped in ESCAPED if "?" in entry.path else IN_PATHS:
            path = entry.path.format(escaped)
            got = await client.call(entry.method, path, json=entry.body)
            named = got.fields if got.status >= 400 else []
            found += wrong(entry, escaped, got, named)
            count += 1
    assert found == []
    assert count > 100


@pytest.mark.parametrize("bad", ["a\0b", "\0", "a\ud800b", "\udfff"], ids=ascii)
async def test_the_api_names_the_field_of_a_body(app: ASGIApp, bad: str) -> None:
    client, found, count = Client(app), [], 0
    for entry in api_bodies(bad):
        body = json.dumps(entry.body).encode()  # It writes escapes.
        got = await client.call(entry.method, entry.path, body=body)
        found += wrong(entry, ascii(bad), got, got.fields if got.status >= 400 else [])
        count += 1
    assert found == []
    assert count > 40


async def test_the_dashboard_names_the_parameter(app: ASGIApp) -> None:
    browser, found, count = Browser(app), [], 0
    await browser.sign_in()
    token = await browser.token("/subscriptions")
    for entry in page_addresses():
        for escaped in ESCAPED if "?" in entry.path else IN_PATHS:
            path = entry.path.format(escaped) if "?" in entry.path else entry.path.format("\0")
            got = await _asked(browser, entry, path, f"csrf={token}")
            found += wrong(entry, escaped, got, [entry.field] if _names(got, entry) else [])
            count += 1
    assert found == []
    assert count > 100


async def test_the_dashboard_names_the_field_of_a_form(app: ASGIApp) -> None:
    browser, found, count = Browser(app), [], 0
    await browser.sign_in()
    token = await browser.token("/subscriptions")
    for entry in page_forms():
        for escaped in ESCAPED:
            form = f"csrf={token}&{entry.form.format(escaped)}"
            got = await _asked(browser, entry, entry.path, form)
            found += wrong(entry, escaped, got, [entry.field] if _names(got, entry) else [])
            count += 1
    assert found == []
    assert count > 100


async def _asked(browser: Browser, entry: Entry, path: str, form: str) -> Got:
    if entry.method == "GET":
        return await browser.get(path)
    same_origin = (("origin", f"http://{browser.host}"), ("sec-fetch-site", "same-origin"))
    return await browser.call(entry.method, path, body=form.encode(), headers=same_origin)


def _names(got: Got, entry: Entry) -> bool:
    return f"{entry.field} must be" in text(got)


async def test_a_script_of_a_page_gets_the_name_too(app: ASGIApp) -> None:
    browser = Browser(app)
    await browser.sign_in()
    for name in ("q", "%00", "%FF"):
        got = await browser.get(f"/endpoints?{name}=%00", ("hx-request", "true"))
        assert got.status == 422
        assert "must be" in got.headers["hx-trigger"]


async def test_a_name_that_is_no_text_can_be_shown(app: ASGIApp) -> None:
    client = Client(app)
    for name in ("%00", "%FF", "%ED%A0%80"):
        got = await client.get(f"/v1/events?{name}=1")
        assert got.status == 422
        assert "\0" not in got.fields[0]
    got = await client.call("POST", "/v1/keys", body=b'{"\\ud800\\u0000": 1, "role": "admin"}')
    assert got.status == 422
    assert got.fields == ["body"]


async def test_what_is_wrong_is_named_once_and_with_what_to_do(app: ASGIApp) -> None:
    client = Client(app)
    got = await client.get("/v1/deliveries?url=%00%00&tenant=%00&limit=1")
    assert got.status == 422
    assert got.fields == ["url", "tenant"]
    assert "remove the NUL" in got.problem.problems[0].reason
    many = {"filters": [{"field": "data.a", "op": "eq", "value": ["\0"] * 5_000}]}
    got = await client.post("/v1/filters/try", many)
    assert got.status == 422
    assert len(got.fields) == 100
    assert got.fields[1] == "filters[0].value[1]"


async def test_a_body_of_very_many_values_is_refused_without_a_look_at_all_of_them(
    app: ASGIApp,
) -> None:
    got = await Client(app).post("/v1/filters/try", {"filters": [*([[]] * 50_000), "\0"]})
    assert (got.status, got.fields) == (422, ["body"])


async def test_escapes_of_good_text_are_taken(app: ASGIApp) -> None:
    client = Client(app)
    name = b'{"name": "\\ud83d\\ude00 \\\\u0000 \\u00e9", "role": "viewer"}'
    got = await client.call("POST", "/v1/keys", body=name)
    assert got.status == 201
    assert got.json["name"] == "😀 \\u0000 é"
    assert (await client.get("/v1/deliveries?url=%C3%A9")).fields == ["url"]
    browser = Browser(app)
    await browser.sign_in()
    assert (await browser.get("/endpoints?q=%F0%9F%98%80")).status == 200


async def test_the_data_of_an_event_is_kept_byte_for_byte(app: ASGIApp) -> None:
    client = Client(app)
    data = b'{"a" : "\\u0000", "\\u0000": ["x\\u0000y"]}'
    body = b'{"id": "e1", "type": "a.b", "data": %b}' % data
    assert (await client.call("POST", "/v1/events", body=body)).status == 202
    assert data in (await client.get("/v1/events/e1")).body
    for tried in (b'"event": "e1"', b'"data": ' + data):
        asked = b'{"filters": [{"field": "data.a", "op": "notExists"}], %b}' % tried
        got = await client.call("POST", "/v1/filters/try", body=asked)
        assert got.status in {200, 422}, got.body
        assert got.status == 200 or got.fields != ["data"]
    browser = Browser(app)
    await browser.sign_in()
    assert (await browser.get("/events/default/e1")).status == 200
