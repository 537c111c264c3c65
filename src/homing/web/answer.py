"""An HTTP answer, ready to be sent."""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct
from starlette.types import Send

from homing.policy.exact import encode

Headers = tuple[tuple[bytes, bytes], ...]
JSON = b"application/json"


class Answer(Struct, frozen=True):
    """Status, body and headers."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: Headers = ()


def json_answer(content: Struct, *, status: int = 200, headers: Headers = ()) -> Answer:
    """An answer that shows this value."""
    return Answer(status, encode(content), JSON, headers)


# No answer of ours is anything else than it says, and none is shown inside a foreign page.
SECURITY_HEADERS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


async def send_answer(
    send: Send, answer: Answer, *, security_headers: Headers = SECURITY_HEADERS
) -> None:
    """Send all of it."""
    headers = _lines(answer, security_headers)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def answer_bytes(answer: Answer) -> bytes:
    """The same, where no framework stands between."""
    head = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n".encode()
    lines = b"".join(b"%b: %b\r\n" % line for line in _lines(answer, SECURITY_HEADERS))
    return b"%b%b\r\n%b" % (head, lines, answer.body)


def _lines(answer: Answer, security_headers: Headers) -> list[tuple[bytes, bytes]]:
    lines = [(b"cache-control", b"no-store"), *security_headers, *answer.headers]
    if answer.status != 204:
        lines.append((b"content-type", answer.content_type))
        lines.append((b"content-length", b"%d" % len(answer.body)))
    return lines
