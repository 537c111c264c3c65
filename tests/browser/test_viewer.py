"""The viewer of bodies: as sent, in colours, folded, searched, compared; and hostile ones."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.testing import HomingServer

HOSTILE = (
    b'{"a":1,"a":2,"big":123456789012345678901234567890.10,"neg":-0.0E+5,'
    b'"bidi":"user\xe2\x80\xae txt.exe","zero":"\\u0000\\u202e","tag":"</script><img src=x>",'
    b'"caf\\u00e9":"\\ud83d\\ude00"}'
)


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook(500) as receiver:
        yield receiver


@pytest.fixture
def changing() -> Iterator[str]:
    """A receiver whose failing response has other bytes each time."""
    bodies = [
        b'{"error":"first"}\n\x00\xff\xe2\x80\xae',
        b'{"error":"second"}\n\x00\xff\xe2\x80\xae',
    ]

    class Handler(http.server.BaseHTTPRequestHandler):
        count = 0

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = bodies[min(Handler.count, 1)]
            Handler.count += 1
            self.send_response(503)
            self.send_header("x-number", str(Handler.count))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()


def publish(server: HomingServer, key: str, data: bytes) -> None:
    """Publish data byte for byte."""
    httpx.post(
        f"{server.url}/v1/events",
        content=b'{"type":"a.b","id":"%b","data":%b}' % (key.encode(), data),
        headers={"authorization": f"Bearer {server.key}", "content-type": "application/json"},
    ).raise_for_status()


def rows(page: Page, box: str) -> str:
    expect(page.locator(f"{box} .v-row").first).to_be_visible()
    return "\n".join(page.locator(f"{box} .v-row").all_inner_texts())


@pytest.mark.long
def test_a_body_is_shown_as_it_was_sent_and_hidden_characters_are_named(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    server.client.subscribe(receiver.url, ["*"], format="raw")
    publish(server, "h1", HOSTILE)
    server.settle()
    person.sign_in()
    person.open("/events/default/h1")
    shown = rows(page, "#event-data")
    for text in (
        '"a": 1,\n"a": 2,',
        "123456789012345678901234567890.10",
        "-0.0E+5",
        "userU+202E txt.exe",
        "\\u0000\\u202e",
        "</script><img src=x>",
        '"caf\\u00e9"',
    ):
        assert text in shown, (text, shown)
    page.get_by_role("button", name="Decode escapes").click()
    shown = rows(page, "#event-data")
    assert '"café": "😀"' in shown
    assert "U+0000U+202E" in shown
    page.get_by_role("button", name="As sent").click()
    assert page.locator("#event-data .v-row").count() == 1
    page.get_by_role("button", name="As sent").click()
    person.finds_no_barrier()
    person.keeps("event-viewer")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).click()
    person.sees_toast("Copied.")
    assert page.evaluate("navigator.clipboard.readText()").encode() == HOSTILE
    assert page.request.get(f"{server.url}/event-data/default/h1").body() == HOSTILE


@pytest.mark.long
def test_a_large_or_deep_body_is_folded_searched_and_never_freezes_the_page(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    items = ",".join(f'{{"id":{n},"tags":["x","y"],"name":"item {n}"}}' for n in range(6_000))
    large = b'{"items":[' + items.encode() + b'],"last":"needle in the hay"}'
    deep = b"[" * 900 + b"1" + b"]" * 900
    long = b'"' + b"z" * 200_000 + b'needle"'
    for key, data in (("large", large), ("deep", deep), ("long", long)):
        publish(server, key, data)
    person.sign_in()
    person.open("/events/default/large")
    shown = rows(page, "#event-data")
    assert "6,000 values" in shown
    page.get_by_label("Fold object").click()
    assert page.locator("#event-data .v-row").count() == 1
    search = page.get_by_label("Search inside: Data of the event")
    search.fill("item 4999")
    expect(page.locator("#event-data .v-current")).to_contain_text('"item 4999"')
    expect(page.locator(".viewer-count")).to_have_text("1 of 1")
    search.fill("needle")
    expect(page.locator("#event-data .v-current")).to_contain_text("needle in the hay")
    search.fill("no such text")
    expect(page.locator(".viewer-count")).to_have_text("not found")
    page.get_by_role("button", name="Unfold", exact=True).click()
    assert page.locator("#event-data .v-row").count() == 300
    took = page.evaluate(
        """async () => {
            const text = "[" + "1,".repeat(130000) + "1]";
            const rows = await import(document.body.dataset.root + "/json_rows.js");
            const begun = performance.now();
            rows.jsonRows(text);
            return performance.now() - begun;
        }"""
    )
    assert took < 2_000, took
    person.open("/events/default/deep")
    rows(page, "#event-data")
    page.get_by_role("button", name="Unfold", exact=True).click()
    expect(page.get_by_role("button", name="rows after")).to_be_visible()
    person.open("/events/default/long")
    page.get_by_label("Search inside: Data of the event").fill("needle")
    expect(page.locator("#event-data mark")).to_have_text("needle")


@pytest.mark.long
def test_two_attempts_are_compared_and_the_whole_excerpt_is_shown(
    person: Person, server: HomingServer, changing: str
) -> None:
    page = person.page
    server.client.subscribe(changing, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.live_through(minutes=3)
    (delivery,) = server.client.deliveries()
    person.sign_in()
    person.open(f"/deliveries/{delivery.id}")
    shown = rows(page, "#excerpt-2")
    assert '{"error":"second"}' in shown
    assert "U+0000" in shown
    assert "\\xff" in shown
    assert "U+202E" in shown
    page.locator("#attempt-2").get_by_text("Request body").click()
    assert '"type": "invoice.paid"' in rows(page, "#sent-body-2")
    person.finds_no_barrier()
    person.keeps("delivery-viewer")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Attempts 1 and 2")).to_be_visible()
    changed = page.locator("tr.is-changed")
    expect(changed.filter(has_text="webhook-signature")).to_be_visible()
    expect(changed.filter(has_text="x-number")).to_be_visible()
    expect(page.locator(".diff del")).to_contain_text("first")
    expect(page.locator(".diff ins")).to_contain_text("second")
    person.sees("The same in both attempts")
    person.finds_no_barrier()
    person.keeps("compare")
