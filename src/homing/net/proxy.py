"""The HTTP proxy of this installation: a tunnel to the target, made with CONNECT.

Requests to http and https targets both go through a tunnel, so the proxy sees no URL, no header and
no body of an https request, and the target's certificate is verified as without a proxy.
"""

from __future__ import annotations

import asyncio
import socket

from homing.model import Failure
from homing.net import trouble
from homing.net.trouble import Trouble
from homing.policy.egress import Proxy

HEAD_BYTES_MAX = 16 * 1024
_CLOSED = Trouble(Failure.SENDER_PROXY, "the proxy closed the connection without a response")
# The proxy says that it could not reach the target. Everything else is about the proxy itself, or
# about what it lets this installation do.
_ABOUT_TARGET = frozenset((500, 502, 503, 504))


async def open_tunnel(sock: socket.socket, proxy: Proxy, authority: str) -> Trouble | None:
    """Ask the proxy for a tunnel; None once the socket leads to the target."""
    loop = asyncio.get_running_loop()
    head = b""
    try:
        await loop.sock_sendall(sock, proxy.head(authority))
        while b"\r\n\r\n" not in head:
            part = await loop.sock_recv(sock, HEAD_BYTES_MAX)
            if not part:
                return _CLOSED
            head += part
            if len(head) > HEAD_BYTES_MAX:
                return Trouble(Failure.SENDER_PROXY, "the response of the proxy is too large")
    except OSError as error:
        return of_proxy(trouble.of_error(error))
    code = _code(head)
    if code is None:
        return Trouble(Failure.SENDER_PROXY, "the response of the proxy is not HTTP")
    if 200 <= code <= 299:
        if not head.endswith(b"\r\n\r\n"):
            said = "the proxy sent more than its response before the tunnel was used"
            return Trouble(Failure.SENDER_PROXY, said)
        return None
    if code == 407:
        said = "the proxy refused its user name and password (407): check the setting egress_proxy"
        return Trouble(Failure.SENDER_PROXY, said)
    if code in _ABOUT_TARGET:
        said = f"the proxy could not connect to the target ({code})"
        return Trouble(Failure.SENDER_TUNNEL, said)
    return Trouble(Failure.SENDER_PROXY, f"the proxy refused a connection to the target ({code})")


def of_proxy(why: Trouble) -> Trouble:
    """A failure on the way to the proxy; a limit of this process stays one."""
    if why.failure in {Failure.SENDER_LIMITS, Failure.SENDER_FAULT}:
        return why
    return Trouble(Failure.SENDER_PROXY, f"the proxy cannot be reached: {why.detail}")


def _code(head: bytes) -> int | None:
    """The status code of a response; None if it is no HTTP/1 response."""
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        return None
    code = words[1]
    return int(code) if len(code) == 3 and code.isdigit() else None
