"""The sender: requests to receivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from homing.model import Failure, Phases, Target


class Request(Struct, frozen=True, gc=False):
    """One POST. The sender adds the request line, host and content-length."""

    tenant: str  # connections to a host are shared within one tenant only
    target: Target
    header_block: bytes  # "name: value\r\n" lines
    body: bytes
    deadline_ms: int  # for DNS, connect, TLS and response together

    def __repr__(self) -> str:
        return f"Request({self.target.host}, {len(self.body)} bytes)"


class Response(Struct, frozen=True, gc=False):
    """The response: a status code or a failure, never an exception."""

    code: int | None
    failure: Failure | None
    detail: str  # one line about the failure for people, else ""
    address: str | None  # the address that was dialled
    phases: Phases
    headers: bytes = b""  # raw header lines of the response, at most 16 KiB
    excerpt: bytes = b""  # first bytes of the body, at most 1 KiB
    retry_after: str | None = None  # the value of the header, not parsed
    remembered: bool = False  # the address was cached: no name was looked up


class Sender(Protocol):
    """Sends requests. ``done`` is called exactly once, later, on the event loop."""

    def send(self, request: Request, done: Callable[[Response], None]) -> None: ...

    async def close(self) -> None:
        """Drop idle connections; the engine waits for requests in flight itself."""
