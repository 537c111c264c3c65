"""Senders without a server: ``python -m bench.post bare|homing|ceiling PORT COUNT``.

``bare`` is the yardstick of all ratios: an aiohttp session and the standard library's HMAC, as one
would write it on a good day. ``homing`` is Homing's sender instead. ``ceiling`` writes the same
bytes again and again, to know what the receiver can take. All keep 64 requests in flight on uvloop.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import sys
import time
from collections.abc import Awaitable, Callable
from typing import cast

import aiohttp
import uvloop

from bench import letter
from bench.receiver import RESPONSE
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.reach import Reach
from homing.policy.signature import Signer, read_secret
from homing.policy.url import parse_url
from homing.ports import Request, Response

DEADLINE_MS = 30_000


async def bare(port: int, count: int) -> None:
    """The yardstick."""
    urls = [letter.url(port, number) for number in range(letter.URLS)]
    secret, body = read_secret(letter.SECRET), letter.body()
    numbers = iter(range(count))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            webhook_id = f"msg_{number:016d}"
            timestamp = str(int(time.time()))
            content = f"{webhook_id}.{timestamp}.".encode() + body
            digest = hmac.new(secret, content, hashlib.sha256).digest()
            headers = {
                "content-type": "application/json",
                "user-agent": "homing/bench",
                "webhook-id": webhook_id,
                "webhook-timestamp": timestamp,
                "webhook-signature": "v1," + base64.b64encode(digest).decode(),
                "homing-event-type": letter.event_type(number),
                "homing-delivery": webhook_id,
                "homing-attempt": "1",
            }
            where = urls[number % letter.URLS]
            async with session.post(where, data=body, headers=headers) as response:
                await response.read()
                assert response.status == 204

    connector = aiohttp.TCPConnector(limit=letter.IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(work(session) for _ in range(letter.IN_FLIGHT)))


async def homing(port: int, count: int) -> None:
    """Homing's sender in the same loop: as many in flight, the same URLs and headers."""
    sender = HttpSender(SenderOptions(reach=Reach(loopback=True)))
    targets = [parse_url(letter.url(port, number))[1] for number in range(letter.URLS)]
    kinds = [letter.event_type(number).encode() for number in range(letter.URLS)]
    signer, body = Signer(letter.SECRET), letter.body()
    numbers = iter(range(count))
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = count

    def send(number: int) -> None:
        place = number % letter.URLS
        webhook_id = b"msg_%016d" % number
        timestamp = b"%d" % int(time.time())
        lines = letter.header_lines(signer, webhook_id, timestamp, body, kinds[place])
        sender.send(Request("default", targets[place], lines, body, DEADLINE_MS), done)

    def done(response: Response) -> None:
        nonlocal left
        left -= 1
        if response.code != 204 and not over.done():
            over.set_exception(RuntimeError(f"{response.failure}: {response.detail}"))
        elif not left:
            over.set_result(None)
        elif (number := next(numbers, None)) is not None:
            send(number)

    for _ in range(min(letter.IN_FLIGHT, count)):
        send(next(numbers))
    await over
    await sender.close()


class _Static(asyncio.Protocol):
    """Writes the same request again and again."""

    def __init__(self, request: bytes, take: Callable[[], bool]) -> None:
        self._request, self._take = request, take

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert len(data) == len(RESPONSE)
        self.go()

    def go(self) -> None:
        if self._take():
            self._transport.write(self._request)


async def ceiling(port: int, count: int) -> None:
    """What the receiver can take from one sender that does nothing else."""
    body = letter.body()
    lines = letter.header_lines(Signer(letter.SECRET), b"msg_0", b"0", body, b"bench.t00")
    head = b"POST /hook/0 HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % port
    request = b"%s%scontent-length: %d\r\n\r\n%s" % (head, lines, len(body), body)
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    to_send, waiting = count, 0

    def take() -> bool:
        nonlocal to_send, waiting
        if to_send:
            to_send -= 1
            return True
        waiting += 1
        if waiting == letter.IN_FLIGHT:
            over.set_result(None)
        return False

    lines_open = [
        await loop.create_connection(lambda: _Static(request, take), "127.0.0.1", port)
        for _ in range(letter.IN_FLIGHT)
    ]
    for _, protocol in lines_open:
        protocol.go()
    await over
    for transport, _ in lines_open:
        transport.close()


SENDERS: dict[str, Callable[[int, int], Awaitable[None]]] = {
    "bare": bare,
    "homing": homing,
    "ceiling": ceiling,
}


async def main(name: str, port: int, count: int) -> None:
    """Send, and say how long it took."""
    began, cpu = time.monotonic(), time.process_time()
    await SENDERS[name](port, count)
    letter.say({"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu})


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
