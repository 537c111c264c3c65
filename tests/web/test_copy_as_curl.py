"""The curl command of an attempt sends the same bytes again, and says where it cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape

import httpx
import pytest

from client.hooks import Hook, hook
from homing.testing import HomingServer, running_server

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.fixture
def server() -> Iterator[HomingServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook(500) as receiver:
        yield receiver


def page_of(server: HomingServer, delivery: str, number: int = 1) -> httpx.Response:
    with httpx.Client(base_url=server.url) as browser:
        browser.post("/sign-in", data={"key": server.key}, headers={"origin": server.url})
        return browser.get(f"/deliveries/{delivery}/attempts/{number}/request")


def command_of(page: httpx.Response) -> str:
    found = re.search(r"<code>(.*?)</code>", page.text, re.DOTALL)
    assert found is not None
    return unescape(found[1])


def run(command: str, **variables: str) -> None:
    subprocess.run(
        ["bash", "-c", command],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin"} | variables,
    )


def lowered(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@needs_curl
@pytest.mark.parametrize(
    "data",
    [
        {"id": 7, "note": 'it\'s "quoted" $HOME `id` \\ é 好'},
        {"tab": "a\tb", "bidi": "\u202etxt.exe", "nul": "\u0000"},
        "@/etc/hostname",
    ],
    ids=["quotes", "characters that a terminal hides", "a value that curl reads as a file"],
)
@pytest.mark.parametrize(
    "fmt", ["standard", "raw", "cloudevents", "cloudevents-binary", "workfront"]
)
def test_the_command_sends_the_bytes_and_the_headers_that_were_sent(
    server: HomingServer, receiver: Hook, fmt: str, data: object
) -> None:
    server.client.subscribe(f"{receiver.url}/a[1]/{{b}}?q=%7B", ["*"], format=fmt)
    server.client.publish("invoice.paid", data)
    server.settle()
    (delivery,) = server.client.deliveries()
    page = page_of(server, delivery.id)
    assert "may differ" not in page.text
    run(command_of(page))
    (first, body), (again, body_again) = receiver.came
    assert body_again == body
    assert lowered(again) == lowered(first)
    assert "webhook-signature" in lowered(again)


@needs_curl
def test_secret_values_are_variables_without_which_the_command_sends_nothing(
    server: HomingServer, receiver: Hook
) -> None:
    server.client.subscribe(receiver.url, ["*"], token="t0ken", headers={"x-team": "blue"})
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    (delivery,) = server.client.deliveries()
    page = page_of(server, delivery.id)
    assert "t0ken" not in page.text
    with pytest.raises(subprocess.CalledProcessError):
        run(command_of(page))
    assert len(receiver.came) == 1
    run(command_of(page), VALUE_AUTHORIZATION="t0ken", VALUE_X_TEAM="blue")
    (first, _), (again, _) = receiver.came
    assert lowered(again) == lowered(first)


def test_a_body_in_a_format_of_before_is_found_by_its_signature(
    server: HomingServer, receiver: Hook
) -> None:
    made = server.client.subscribe(receiver.url, ["*"], format="raw")
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    server.client.change_subscription(made.id, format="standard")
    (delivery,) = server.client.deliveries()
    page = page_of(server, delivery.id)
    assert "--data-binary '{\"id\":7}'" in command_of(page)
    assert "may differ" not in page.text


def test_a_body_that_no_signature_proves_says_so(server: HomingServer, receiver: Hook) -> None:
    made = server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    server.client.rotate_secret(made.id, overlap_ms=0)
    (delivery,) = server.client.deliveries()
    assert "may differ" in page_of(server, delivery.id).text


def test_a_long_body_is_a_file(server: HomingServer, receiver: Hook) -> None:
    server.client.subscribe(receiver.url, ["*"], signature="ed25519")
    server.client.publish("invoice.paid", {"text": "é" * 40_000})
    server.settle()
    (delivery,) = server.client.deliveries()
    page = page_of(server, delivery.id)
    assert "may differ" not in page.text
    assert f"--data-binary @{delivery.id}-1.body" in command_of(page)
    with httpx.Client(base_url=server.url) as browser:
        browser.post("/sign-in", data={"key": server.key}, headers={"origin": server.url})
        file = browser.get(f"/deliveries/{delivery.id}/attempts/1/request/body")
    assert file.content == receiver.came[0][1]
    assert file.headers["content-disposition"] == f'attachment; filename="{delivery.id}-1.body"'


@pytest.mark.parametrize("number", ["2", "0", "x", "9" * 40])
def test_an_attempt_that_was_not_made_is_not_found(
    server: HomingServer, receiver: Hook, number: str
) -> None:
    server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    (delivery,) = server.client.deliveries()
    with httpx.Client(base_url=server.url) as browser:
        browser.post("/sign-in", data={"key": server.key}, headers={"origin": server.url})
        path = f"/deliveries/{delivery.id}/attempts/{number}/request"
        assert browser.get(path).status_code == 404
