"""Who asks is said once, in the head of a request: not in a trailer, and not twice.

Shows what-homing-promises.md#hostile-input, of headers.
"""

from __future__ import annotations

import pytest

from security.framing import CHUNKED, GOOD, HOST, KEY
from security.served import Served, served

BEHIND_PROXY = {
    "proxy_user_header": "X-User",
    "proxy_groups_header": "X-Groups",
    "proxy_networks": ("127.0.0.1/32",),
    "people": ("group:admins=admin", "*=viewer:acme"),
}
AT = b"host: localhost\r\n"
END = b"connection: close\r\n"
EVE = b"x-user: eve\r\n"


def body_in_chunks(head: bytes, trailers: bytes, body: bytes = GOOD) -> bytes:
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    return head + END + CHUNKED + b"\r\n" + chunks + trailers + b"\r\n"


async def shown_to(at: Served, trailers: bytes) -> bytes:
    head = b"GET /keys HTTP/1.1\r\n" + AT + EVE
    _, got, _ = await at.say(body_in_chunks(head, trailers, b"x"))
    return got


async def test_a_trailer_adds_no_group_to_a_person() -> None:
    async with served(**BEHIND_PROXY) as at:
        groups = b"x-groups: admins\r\n"
        _, got, _ = await at.say(b"GET /keys HTTP/1.1\r\n" + AT + EVE + groups + END + b"\r\n")
        assert b" 200 " in got[:20]  # The page is the admins'.
        for trailers in (b"", groups, b"x-user: x\r\n" + groups):
            assert b" 403 " in (await shown_to(at, trailers))[:20]


@pytest.mark.parametrize("path", [b"/v1/events", b"/v1/subscriptions"])
async def test_a_trailer_is_no_key(path: bytes) -> None:
    async with served() as at:
        head = b"POST " + path + b" HTTP/1.1\r\n" + AT
        key = b"authorization: Bearer " + KEY.encode() + b"\r\n"
        codes, _, _ = await at.say(body_in_chunks(head, key))
        assert codes == [401]
        assert at.house.engine.pulse().published == 0


async def test_a_trailer_changes_nothing_of_a_publish() -> None:
    async with served() as at:
        trailers = (
            b"authorization: Bearer wrong\r\ncontent-encoding: gzip\r\nce-specversion: 1.0\r\n"
            b"expect: 100-continue\r\nhost: elsewhere\r\n"
        )
        for sent in (trailers, b""):
            request = body_in_chunks(b"POST /v1/events HTTP/1.1\r\n" + HOST, sent)
            codes, _, ended = await at.say(request)
            assert (codes, ended) == ([202], True)
        assert at.house.engine.pulse().published == 2


@pytest.mark.parametrize(
    "again",
    ["authorization", "Authorization", "host", "cookie", "x-user", "X-GROUPS", "sessionid"],
)
@pytest.mark.parametrize("path", ["/v1/events", "/v1/subscriptions", "/healthz", "/keys"])
async def test_a_repeated_header_of_identity_is_refused(again: str, path: str) -> None:
    said = {
        "authorization": f"Bearer {KEY}",
        "host": "localhost",
        "cookie": "a=b",
        "x-user": "eve",
        "x-groups": "dev",
        "sessionid": KEY,
    }
    method = "POST" if path == "/v1/events" else "GET"
    head = f"{method} {path} HTTP/1.1\r\ncontent-length: {len(GOOD) if method == 'POST' else 0}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in said.items())
    body = GOOD if method == "POST" else b""
    async with served(**BEHIND_PROXY) as at:
        once = f"{head}connection: close\r\n\r\n".encode() + body
        codes, _, _ = await at.say(once)
        assert codes != [400]
        published = at.house.engine.pulse().published
        for value in (said[again.lower()], "", "other"):
            twice = f"{head}{again}: {value}\r\n\r\n".encode() + body
            codes, got, ended = await at.say(twice)
            assert (codes, ended) == ([400], True)
            assert b"application/problem+json" in got
            assert f"'{again.lower()}' more than once".encode() in got
        assert at.house.engine.pulse().published == published


async def test_other_headers_may_be_repeated() -> None:
    async with served() as at:
        more = b"accept: a/b\r\naccept: c/d\r\nx-user: a\r\nx-user: b\r\n" + END
        codes, _, _ = await at.say(b"GET /healthz HTTP/1.1\r\n" + AT + more + b"\r\n")
        assert codes == [200]
