"""The sender: requests to receivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from homing.model import Credentials, Failure, Phases, Target, TlsIdentity


class Request(Struct, frozen=True, gc=False):
    """One request, usually a POST. The sender adds the request line, host and content-length."""

    tenant: str  # connections to a host are shared within one tenant only
    target: Target
    header_block: bytes  # "name: value\r\n" lines
    body: bytes
    deadline_ms: int  # for DNS, connect, TLS and response together
    tls: TlsIdentity | None = None  # of the subscription; None: that of the tenant, if any
    body_bytes_max: int = 0  # of the response's body, kept as its excerpt; 0: 1 KiB
    credentials: Credentials | None = None  # the sender adds an access token of this client
    method: bytes = b"POST"
    # Asked after a wait for an access token: False if the request must not be sent any more.
    is_wanted: Callable[[], bool] | None = None

    def __repr__(self) -> str:
        return f"Request({self.target.host}, {len(self.body)} bytes)"


class Response(Struct, frozen=True, gc=False):
    """The response: a status code or a failure, never an exception."""

    code: int | None
    failure: Failure | None
    detail: str  # one line for people about the failure or a new access token, else ""
    address: str | None  # the address that was dialled
    phases: Phases
    headers: bytes = b""  # raw header lines of the response, at most 16 KiB
    excerpt: bytes = b""  # first bytes of the body, at most 1 KiB or ``body_bytes_max``
    retry_after: str | None = None  # the value of the header, not parsed
    remembered: bool = False  # the address was cached: no name was looked up
    proxied: bool = False  # it went through the proxy of this installation


class Sender(Protocol):
    """Sends requests. ``done`` is called exactly once, later, on the event loop."""

    def send(self, request: Request, done: Callable[[Response], None]) -> None: ...

    async def close(self) -> None:
        """Drop idle connections; the engine waits for requests in flight itself."""
