"""HTTP responses and how they are sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import cast

from msgspec import Struct
from starlette.types import Send

from homing.policy.exact import encode

Headers = tuple[tuple[bytes, bytes], ...]
JSON = b"application/json"


class Response(Struct, frozen=True):
    """Status, body and headers."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: Headers = ()
    stream: AsyncIterator[bytes] | None = (
        None  # instead of a body: parts that are sent as they come
    )


def json_response(content: Struct, *, status: int = 200, headers: Headers = ()) -> Response:
    """A response with this value as JSON."""
    return Response(status, encode(content), JSON, headers)


# Browsers must not guess the type of a response, and must not show it inside another site's page.
SECURITY_HEADERS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


async def send_response(
    send: Send, response: Response, *, security_headers: Headers = SECURITY_HEADERS
) -> None:
    """Sends the response through ASGI."""
    headers = _lines(response, security_headers)
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if response.stream is None:
        await send({"type": "http.response.body", "body": response.body})
        return
    async with aclosing(cast("AsyncGenerator[bytes]", response.stream)) as parts:
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def response_bytes(response: Response) -> bytes:
    """The response as bytes, for code that writes to a connection without ASGI."""
    head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n".encode()
    lines = b"".join(b"%b: %b\r\n" % line for line in _lines(response, SECURITY_HEADERS))
    return b"%b%b\r\n%b" % (head, lines, response.body)


def _lines(response: Response, security_headers: Headers) -> list[tuple[bytes, bytes]]:
    lines = [*security_headers, *response.headers]
    if not any(name == b"cache-control" for name, _ in response.headers):
        lines.insert(0, (b"cache-control", b"no-store"))
    if response.status != 204:
        lines.append((b"content-type", response.content_type))
        if response.stream is None:
            lines.append((b"content-length", b"%d" % len(response.body)))
    return lines
