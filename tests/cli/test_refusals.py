"""What goes wrong is told in one line, with what to do, and by an exit code."""

from __future__ import annotations

import pytest

from cli.terminal import Terminal
from homing.policy.networks import Kind
from net.receiver import a_free_port
from policy.test_reach import FORBIDDEN


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("deliveries", "--key", "wrong"), 1, "does not accept the key"),
        (("deliveries", "--since", "yesterday"), 1, "since must be a time after RFC 3339"),
        (("deliveries", "show", "dlv_0000000000000"), 1, "no such delivery"),
        (("deliveries", "--status", "lost"), 2, "is not one of"),
        (("publish", "a.b", "{not json"), 2, "DATA is not JSON"),
        (("publish", "a b", "1"), 1, "type"),
        (("publish",), 2, "Give either a TYPE"),
        (("subscribe", "ftp://x", "a.*"), 1, "url must begin with http"),
        (("subscribe", "http://x/", "--header", "colonless"), 2, "must be like 'name: value'"),
        (("endpoints", "--server", "http://homing.example"), 2, "give its key with --key"),
        (("endpoints", "--server", "gopher://x", "--key", "k"), 2, "must begin with http://"),
        (("tail", "--for", "soon"), 2, "must be a duration"),
    ],
)
def test_a_refusal_is_one_clear_line(
    terminal: Terminal, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = terminal.run(*arguments)
    assert (done.code, done.out) == (code, "")
    assert told in done.err.replace("\n", " ")


def test_no_forbidden_url_gets_through(terminal: Terminal) -> None:
    """One address of each kind but loopback, which the server of these tests allows."""
    forbidden = {kind: one for one, kind in FORBIDDEN.items() if "%" not in one}
    del forbidden[Kind.LOOPBACK]
    oauth = ("--oauth-client-id", "homing", "--oauth-client-secret", "s3cret")

    def commands(there: str) -> dict[str, tuple[str, ...]]:
        with_token = ("subscribe", "https://fine.example/", "no.such", *oauth)
        return {
            "url": ("subscribe", there, "no.such"),
            "oauth_token_url": (*with_token, "--oauth-token-url", there),
            "address": ("notices", "add", "webhook", there),
        }

    for host in [f"[{one}]" if ":" in one else one for one in forbidden.values()]:
        for field, arguments in commands(f"https://{host}/").items():
            done = terminal.run(*arguments)
            assert (done.code, done.out) == (1, ""), arguments
            assert f": {field} is not allowed" in done.err, arguments
    for arguments in commands("https://fine.example/").values():
        terminal.well(*arguments)  # The control.


def test_a_process_says_the_same(terminal: Terminal) -> None:
    done = terminal.process("deliveries", "show", "dlv_0000000000000")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("homing: There is nothing with this id.")
    assert len(done.err.splitlines()) == 1
    well = terminal.process("publish", "a.b", "-", "--id", "by-process", "--json", given="[1]")
    assert (well.code, well.document) == (
        0,
        {"id": "by-process", "deliveries": 0, "duplicate": False, "warning": ""},
    )


def test_without_a_server_it_is_said_how_to_get_one(terminal: Terminal) -> None:
    nobody = f"http://127.0.0.1:{a_free_port()}"
    for name in ("endpoints", "listen"):
        done = terminal.run(name, "--server", nobody)
        assert done.code == 3
        assert f"No server responds at {nobody} (Connection refused)" in done.err
        assert "homing serve" in done.err
    named = terminal.run("endpoints", HOMING_SERVER=nobody)
    assert named.code == 3


def test_a_wrong_environment_and_a_missing_key_are_told(terminal: Terminal) -> None:
    wrong = terminal.run("endpoints", HOMING_COLOUR="red")
    assert (wrong.code, "HOMING_COLOUR" in wrong.err) == (2, True)
    missing = terminal.run("endpoints", HOMING_DATA="elsewhere")
    assert missing.code == 2
    assert "elsewhere/admin.key does not exist" in missing.err
