"""Request smuggling: an ambiguous request gets a 400, and its connection is closed."""

from __future__ import annotations

from security.framing import ATTACKS, GOOD, HEAD, KEY, ODD, Attack, smuggled
from security.served import Served, served


async def _known(at: Served, event: str) -> bool:
    path = f"GET /v1/events/{event} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
    codes, _, _ = await at.say(path.encode() + b"connection: close\r\n\r\n")
    assert codes in ([200], [404])
    return codes == [200]


async def test_every_attack_on_framing_is_refused_and_nothing_is_smuggled() -> None:
    wrong: dict[str, object] = {}
    async with served() as at:
        for attack in ATTACKS:
            codes, _, ended = await at.say(attack.sent + smuggled(attack.name))
            if codes != [400] or not ended or await _known(at, attack.name):
                wrong[attack.name] = (codes, ended)
    assert wrong == {}
    assert len(ATTACKS) >= 60


async def test_what_is_odd_but_clear_is_answered_once_and_the_line_is_cut() -> None:
    wrong: dict[str, object] = {}
    async with served() as at:
        for attack in ODD:
            codes, _, ended = await at.say(attack.sent + smuggled(attack.name))
            if len(codes) != 1 or not ended or await _known(at, attack.name):
                wrong[attack.name] = (codes, ended)
    assert wrong == {}


async def test_the_control_is_a_plain_pipeline_of_two() -> None:
    """The second request is executed if the end of the first one is unambiguous."""
    async with served() as at:
        first = Attack("plain", HEAD + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD)
        async with at.line() as (reader, writer):
            writer.write(first.sent + smuggled("plain"))
            got = b""
            while got.count(b"HTTP/1.1 202") < 2:
                got += await reader.read(65536)
        assert await _known(at, "plain")
