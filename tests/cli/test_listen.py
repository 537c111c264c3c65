"""``homing listen``: subscribes itself, verifies, shows, misbehaves when told, and tidies up."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from cli.terminal import Terminal
from homing.cli.listener import Behaviour


def test_a_request_is_verified_and_shown_and_the_subscription_goes(terminal: Terminal) -> None:
    with terminal.going("listen", "listen.one", "--count", "1", "--json", end=None) as listening:
        terminal.well("publish", "listen.one", '{"a": [1]}', "--id", "listen-1")
        got = listening.line()
    assert listening.code == 0
    assert (got["method"], got["type"], got["attempt"]) == ("POST", "listen.one", 1)
    assert (got["verified"], got["responded"]) == (True, 204)
    assert got["body"]["data"] == {"a": [1]}
    assert "homing listen" not in terminal.well("subscriptions").out


def test_a_stranger_is_refused_and_a_failing_one_fails(terminal: Terminal) -> None:
    with terminal.going("listen", "listen.two", "--fail", "503", "--keep", "--json") as listening:
        terminal.well("publish", "listen.two", "--id", "listen-2")
        assert listening.line()["responded"] == 503
        (mine,) = [
            one
            for one in terminal.well("subscriptions", "--json").lines
            if one["types"] == ["listen.two"]
        ]
        stranger = urllib.request.Request(mine["url"], data=b"{}")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(stranger, timeout=10)
        forged = listening.line()
        assert (forged["verified"], forged["responded"]) == (False, 401)
    assert listening.code == 0
    assert mine["id"] in terminal.well("subscriptions", "--json").out
    terminal.well("unsubscribe", mine["id"])


@pytest.mark.parametrize(("flags", "end"), [((), "deletes"), (("--keep",), "keeps")])
def test_people_see_it_like_http(terminal: Terminal, flags: tuple[str, ...], end: str) -> None:
    with terminal.going("listen", "listen.three", "--count", "1", *flags, end=None) as listening:
        terminal.well("publish", "listen.three", '{"cents": 4200}')
    assert listening.first.startswith("Listening at http://127.0.0.1:")
    for told in ("POST /\n", "webhook-signature: v1,", '    "cents": 4200\n', "✓ verified"):
        assert told in listening.rest
    assert f"Ctrl-C ends it and {end} the subscription" in listening.rest
    for one in terminal.well("subscriptions", "--json").lines:
        if one["types"] == ["listen.three"]:
            terminal.well("unsubscribe", one["id"])


@pytest.mark.parametrize(
    ("behaviour", "after_s", "random_fraction", "response"),
    [
        (Behaviour(), 0, 0.0, (204, 0.0)),
        (Behaviour(fail=503), 0, 0.9, (503, 0.0)),
        (Behaviour(fail=503, rate=0.5), 0, 0.4, (503, 0.0)),
        (Behaviour(fail=503, rate=0.5), 0, 0.5, (204, 0.0)),
        (Behaviour(fail=500, for_s=60.0, slow_s=3.0), 59, 0.0, (500, 3.0)),
        (Behaviour(fail=500, for_s=60.0, slow_s=3.0), 60, 0.0, (204, 0.0)),
        (Behaviour(slow_s=3.0), 0, 0.0, (204, 3.0)),
        (Behaviour(fail=503, rate=0.0), 0, 0.0, (204, 0.0)),
    ],
)
def test_it_misbehaves_as_it_was_told(
    behaviour: Behaviour, after_s: float, random_fraction: float, response: tuple[int, float]
) -> None:
    assert behaviour.response(after_s=after_s, random_fraction=random_fraction) == response


def test_what_it_was_told_is_said() -> None:
    told = Behaviour(fail=503, rate=0.5, for_s=120.0, slow_s=3.0).sentence()
    assert told == "responds with 503 after 3 s to 50% of the requests for 120 s, then with 204"
    assert Behaviour().sentence() == ""
