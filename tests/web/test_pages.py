"""Pages of deliveries, events and subscriptions: what a person finds, sees and does."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlencode

import pytest

from homing.app.access import Caller
from homing.errors import Invalid
from homing.model import Status
from homing.policy.keys import Role
from homing.testing import KEY, HomingServer, running_server
from homing.web.dashboard.search import find, read_search
from homing_client import Homing
from web.house import House, live

_taken = socket.socket()  # Nobody listens there: every attempt is refused.
_taken.bind(("127.0.0.1", 0))
REFUSING = f"http://127.0.0.1:{_taken.getsockname()[1]}"
NASTY = '"><script>alert(1)</script>'


class Person:
    """Somebody with a browser that follows no script."""

    def __init__(self, server: HomingServer, key: str = KEY, *, accept_language: str = "") -> None:
        self._language = accept_language
        self._host = server.url.removeprefix("http://")
        self._cookies: dict[str, str] = {}
        response, _ = self.send("/sign-in", {"key": key})
        assert response.status == 303

    def _ask(self, method: str, path: str, body: str, kind: str) -> tuple[HTTPResponse, str]:
        connection = HTTPConnection(self._host, timeout=120)
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        headers = {"cookie": cookies, "accept": "text/html", "content-type": kind}
        headers["accept-language"] = self._language
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        for line in response.headers.get_all("set-cookie", []):
            name, _, value = line.partition(";")[0].partition("=")
            self._cookies[name] = value
        return response, text

    def see(self, path: str, *, status: int = 200) -> str:
        response, text = self._ask("GET", path, "", "text/html")
        assert response.status == status, text
        return text

    def follow(self, response: HTTPResponse) -> str:
        """The page that a form leads to."""
        assert response.status == 303
        return self.see(response.getheader("location") or "")

    def send(self, path: str, fields: dict[str, str]) -> tuple[HTTPResponse, str]:
        return self._ask("POST", path, urlencode(fields), "application/x-www-form-urlencoded")

    def do(self, page: str, path: str, **fields: str) -> tuple[HTTPResponse, str]:
        """Send a form of a page, with the token that the page gave."""
        token = re.search(r'name="csrf" value="([^"]+)"', self.see(page))
        assert token is not None
        return self.send(path, {"csrf": token[1], **fields})


@pytest.fixture(scope="module")
def server() -> Iterator[HomingServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def person(server: HomingServer) -> Person:
    return Person(server)


def links(page: str, kind: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf'href="(/{kind}/[^"?]+)"', page)))


def test_a_person_subscribes_publishes_and_finds_the_delivery(person: Person) -> None:
    response, _ = person.do(
        "/subscriptions/new",
        "/subscriptions",
        url=f"{REFUSING}/hook",
        types="flow.*",
        format="standard",
        active="on",
        filters='[{"field": "data.amount", "op": "gt", "value": 100}]',
    )
    page = person.follow(response)
    assert re.search(r"whsec_[A-Za-z0-9+/=]{32,}", page), "the secret is shown once"
    assert "data.amount" in page, "the page shows the filters that are stored"
    subscription = links(page, "subscriptions")[-1].removesuffix("/edit")
    assert "whsec_" not in person.see(subscription)
    for amount in (50, 500):
        response, _ = person.do(
            "/events", "/events", type="flow.paid", data=f'{{"amount":{amount}}}'
        )
        assert response.status == 303
    event = response.getheader("location") or ""
    page = person.see(event)
    assert "500" in page
    delivery = links(page, "deliveries")[0]
    assert "Waiting" in person.see(delivery) or "attempt" in person.see(delivery)
    found = person.see(
        "/deliveries?" + urlencode({"q": "type:flow.* url:127.0.0.1 status:pending"})
    )
    assert links(found, "deliveries") == [delivery]
    other = person.see("/events?q=flow.paid")
    unmatched = next(it for it in links(other, "events") if it != event)
    assert "No subscription matched this event" in person.see(unmatched)
    response, _ = person.do(delivery, f"{delivery}/cancel")
    assert response.status == 303
    assert "cancelled" in person.see(delivery)
    response, _ = person.do(delivery, f"{delivery}/replay")
    assert response.getheader("location") not in {None, delivery}
    response, _ = person.do(subscription, f"{subscription}/delete")
    assert response.status == 303
    person.see(subscription, status=404)


def test_a_secret_is_rotated_and_shown_once(server: HomingServer, person: Person) -> None:
    made = server.client.subscribe(f"{REFUSING}/rotated", ["rotated.*"])
    page = f"/subscriptions/{made.id}"
    response, _ = person.do(page, f"{page}/rotate")
    shown = person.follow(response)
    found = re.search(r"whsec_[A-Za-z0-9+/=]{32,}", shown)
    assert found is not None
    assert found[0] != made.secret
    after = person.see(page)
    assert "whsec_" not in after
    assert "one valid until" in after, "the old one signs beside it for a while"
    key = server.client.create_key("looker", "viewer", tenant="default").key
    viewer = Person(server, key)
    assert "Rotate" not in viewer.see(page)
    response, _ = viewer.do(page, f"{page}/rotate")
    assert response.status == 403


def test_a_form_comes_back_with_every_reason_beside_its_field(person: Person) -> None:
    response, page = person.do(
        "/subscriptions/new",
        "/subscriptions",
        url="ftp://x",
        types="a b!",
        filters="{",
        deadline_ms="soon",
        headers="no colon",
        description=NASTY,
    )
    assert response.status == 422
    for name in ("url", "types", "filters", "deadline_ms", "headers"):
        told = re.search(rf'data-problem="{name}">([^<]+)<', page)
        assert told is not None, name
    assert "<script>alert" not in page
    assert "&#34;&gt;&lt;script&gt;" in page


def test_an_edit_keeps_what_is_masked(person: Person, server: HomingServer) -> None:
    made = server.client.subscribe(
        f"{REFUSING}/kept", ["kept"], token="a-long-token", headers={"x-team": "billing"}
    )
    path = f"/subscriptions/{made.id}"
    page = person.see(f"{path}/edit")
    assert "a-long-token" not in page
    response, _ = person.do(
        f"{path}/edit",
        path,
        url=made.url,
        types="kept more",
        format="standard",
        token="****",
        headers="x-team: ****",
        active="on",
    )
    assert response.status == 303
    after = server.client.subscription(made.id)
    assert after.types == ("kept", "more")
    assert after.token is not None
    assert list(after.headers) == ["x-team"]


def test_bulk_cancel_counts_first_and_goes_on_until_none_is_left(
    person: Person, server: HomingServer
) -> None:
    made = server.client.subscribe(f"{REFUSING}/bulk", ["bulk"])
    for number in range(5):
        server.client.publish("bulk", number)
    words = f"subscription:{made.id}"
    page = person.see("/bulk?" + urlencode({"q": words}))
    assert "Cancel 5" in page
    response, _ = person.do("/deliveries", "/bulk/cancel", q=words)
    page = person.follow(response)
    assert "<b>5</b> cancelled so far" in page
    response, _ = person.do("/deliveries", "/bulk/cancel", q=words, done="5")
    assert response.status == 303
    response, _ = person.do("/deliveries", "/bulk/replay", q=words)
    job = response.getheader("location") or ""
    assert job.startswith("/replays/")
    assert "Replayed" in person.see(job)


def test_filters_are_tried_on_the_latest_events(person: Person, server: HomingServer) -> None:
    server.client.publish("tried", {"amount": 7})
    token = {"filters": '[{"field": "data.amount", "op": "eq", "value": 7}]'}
    _, page = person.do("/subscriptions/new", "/subscriptions/try", **token)
    assert "matches" in page
    _, page = person.do("/subscriptions/new", "/subscriptions/try", filters='[{"op": "?"}]')
    assert 'class="problem"' in page


def test_a_viewer_of_one_tenant_sees_its_own_and_may_do_nothing(server: HomingServer) -> None:
    admin: Homing = server.client
    theirs = admin.subscribe(f"{REFUSING}/theirs", ["*"])
    key = admin.create_key("portal", "viewer", tenant="acme")
    viewer = Person(server, key.key)
    assert "theirs" not in viewer.see("/subscriptions")
    viewer.see(f"/subscriptions/{theirs.id}", status=404)
    viewer.see("/subscriptions/new", status=403)
    assert "New subscription" not in viewer.see("/subscriptions")
    event = admin.publish("secret.thing", {"a": 1})
    viewer.see(f"/events/default/{event.id}", status=404)
    response, _ = viewer.send("/events", {"type": "a", "csrf": "x"})
    assert response.status == 403


@pytest.mark.parametrize(
    ("text", "status", "url", "kind"),
    [
        ("", None, None, None),
        ("status:dropped type:invoice.* url:Acme", Status.DROPPED, "Acme", "invoice.*"),
        ("acme", None, "acme", None),
        ("https://acme.example/a", None, "https://acme.example/a", None),
    ],
)
def test_a_search_is_read(
    text: str, status: Status | None, url: str | None, kind: str | None
) -> None:
    found = read_search(text, now=10_000_000).conditions
    assert (found.status, found.url, found.type) == (status, url, kind)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("colour:red", "colour"),
        ("status:lost", "status"),
        ("type:a!b", "type"),
        ("type:a!*", "type"),
        ("since:yesterday", "since"),
        ("endpoint:7", "endpoint"),
        ("event:a.b", "event"),
        ("url:", "url"),
        ("tenant:a!", "tenant"),
    ],
)
def test_a_search_that_is_not_understood_names_its_qualifier(text: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_search(text, now=10_000_000)
    assert [it.field for it in refused.value.problems] == [field]


def test_a_tenant_s_search_never_leaves_it() -> None:
    async def story(house: House) -> None:
        for tenant in ("acme", "other"):
            await house.subscribe(f"https://{tenant}.example/", tenant=tenant)
            await house.publish(tenant=tenant)
        caller = Caller("n", Role.VIEWER, "acme")
        found = {}
        for text in ("", "tenant:acme", "tenant:other"):
            rows, _ = await find(
                house.use_cases.deliveries,
                caller,
                read_search(text, now=0),
                before_id=None,
                limit=9,
            )
            found[text] = {row.delivery.tenant for row in rows}
        assert found == {"": {"acme"}, "tenant:acme": {"acme"}, "tenant:other": set()}

    live(story)
