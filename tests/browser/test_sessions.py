"""Signing in and out in a real browser: nothing is left behind, and nobody is led elsewhere."""

from __future__ import annotations

import http.client
import json
from urllib.parse import quote

from playwright.sync_api import Browser, expect

from browser.person import Person
from homing.testing import HomingServer


def test_after_signing_out_neither_the_back_button_nor_a_copied_cookie_shows_a_page(
    person: Person, server: HomingServer, chromium: Browser
) -> None:
    page = person.page
    person.sign_in()
    person.open("/endpoints")
    expect(page.get_by_role("heading", name="Endpoints", level=1)).to_be_visible()
    copied = page.context.storage_state()
    other_tab = page.context.new_page()
    other_tab.goto(f"{server.url}/deliveries")
    expect(other_tab.get_by_role("heading", name="Deliveries", level=1)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    for _ in range(2):
        page.go_back()
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        expect(page.get_by_role("heading", name="Endpoints", level=1)).to_have_count(0)
    expect(other_tab.get_by_role("button", name="Sign in")).to_be_visible()  # its stream ended
    thief = chromium.new_context(storage_state=copied)
    stolen = thief.new_page()
    stolen.goto(f"{server.url}/endpoints")
    expect(stolen.get_by_role("button", name="Sign in")).to_be_visible()
    thief.close()


def test_a_revoked_key_loses_its_open_page(person: Person, server: HomingServer) -> None:
    given = {"name": "the customer", "role": "viewer", "tenant": "acme"}
    made = call(server, "POST", "/v1/keys", given)
    person.sign_in(made["key"])
    expect(person.page.locator("#live")).to_have_attribute("data-state", "live")
    call(server, "DELETE", f"/v1/keys/{made['id']}")
    expect(person.page.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_link_to_the_door_leads_to_no_other_host(person: Person, server: HomingServer) -> None:
    page = person.page
    for to in ("/\t/evil.example", "/\\evil.example", "/\n/evil.example", "//evil.example"):
        page.goto(f"{server.url}/sign-in?to={quote(to, safe='')}")
        page.get_by_label("API key", exact=True).fill(server.key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        assert page.url == f"{server.url}/", to
    page.goto(f"{server.url}/sign-in?to={quote('/endpoints?state=frozen', safe='')}")
    page.get_by_label("API key", exact=True).fill(server.key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Endpoints", level=1)).to_be_visible()


def call(server: HomingServer, method: str, path: str, content: object = None) -> dict[str, str]:
    """One request to the API."""
    host = server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        headers = {"authorization": f"Bearer {server.key}"}
        body = None if content is None else json.dumps(content).encode()
        connection.request(method, path, body, headers)
        response = connection.getresponse().read()
    finally:
        connection.close()
    return {} if not response else dict(json.loads(response))
