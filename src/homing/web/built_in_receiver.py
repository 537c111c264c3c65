"""The built-in receiver: responds to a delivery with the size and the hash of its body."""

from __future__ import annotations

import asyncio
import hashlib

from msgspec.json import encode
from starlette.types import Receive, Scope, Send

from homing.app.built_in_receiver import BuiltInReceiver
from homing.errors import TooLarge, TooSlow
from homing.web.body import ClientGone
from homing.web.problems import MethodNotAllowed, NoSuchPath
from homing.web.response import JSON, Response, send_response

BODY_BYTES_MAX = 2 * 1024 * 1024  # more than an event in any format
ARRIVE_WITHIN_S = 30.0


class ReceiveTestEvents:
    """The route of the built-in receiver. It keeps nothing, so nobody can fill it."""

    def __init__(self, receiver: BuiltInReceiver) -> None:
        self._receiver = receiver

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._receiver.accepts(scope["path"]):
            raise NoSuchPath
        if scope["method"] != "POST":
            raise MethodNotAllowed(("POST",))
        size, digest, more = 0, hashlib.sha256(), True
        try:
            async with asyncio.timeout(ARRIVE_WITHIN_S):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    if size > BODY_BYTES_MAX:
                        raise TooLarge(f"A body may have {BODY_BYTES_MAX:,} bytes.")
                    digest.update(part)
        except TimeoutError:
            raise TooSlow(f"The body did not arrive within {ARRIVE_WITHIN_S:.0f} s.") from None
        found = digest.hexdigest()
        headers = ((b"received-bytes", b"%d" % size), (b"received-sha256", found.encode()))
        body = encode({"received_bytes": size, "received_sha256": found})
        await send_response(send, Response(200, body, JSON, headers))
