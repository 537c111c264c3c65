"""The receiver of every part: responds with 204 at once and counts distinct webhook ids.

A process of its own, the same for all parts. It speaks just enough HTTP: a POST with a length.
``GET /count`` returns the distinct ids, all requests, when the first and the last new id came
(seconds of the monotonic clock, which all processes of a machine share) and its own CPU time.
``GET /lag`` returns the milliseconds from the time written in each body to its arrival.
``GET /reset`` forgets. It ends when its standard input does, so it never outlives a bench.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from typing import cast

import uvloop

RESPONSE = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"
_LENGTH = b"ength: "  # however its first letters are written
_ID = b"webhook-id: "
_COLLECTED = b"POST /v1/"  # spans, metrics and log lines by OTLP, for which it is the collector
_STAMP = b'"sent_at":'
_STAMP_CHARS = 17  # 1700000000000.123
_UNSTAMPED = ord("0")  # the second digit of a time that was not written in


class Tally:
    """What has come."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.ids: set[bytes] = set()
        self.requests = 0
        self.first_at = self.last_at = 0.0
        self.lags = array("d")
        self.cpu_from = time.process_time()

    def asked(self, path: bytes) -> bytes:
        if path == b"/reset":
            self.reset()
        if path == b"/lag":
            body = json.dumps(self.lags.tolist()).encode()
        else:
            document = {
                "distinct": len(self.ids),
                "requests": self.requests,
                "first_at": self.first_at,
                "last_at": self.last_at,
                "cpu_s": time.process_time() - self.cpu_from,
            }
            body = json.dumps(document).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)

    def note(self, data: bytes, end: int) -> None:
        """A request whose head ends there; its body follows."""
        self.requests += 1
        at = data.find(_ID) + len(_ID)
        webhook_id = data[at : data.find(b"\r\n", at)]
        if webhook_id not in self.ids:
            self.ids.add(webhook_id)
            self.last_at = time.monotonic()
            self.first_at = self.first_at or self.last_at
        at = data.find(_STAMP, end) + len(_STAMP)
        if data[at + 1] != _UNSTAMPED:
            self.lags.append(time.time() * 1000 - float(data[at : at + _STAMP_CHARS]))


class Receiver(asyncio.Protocol):
    """One connection."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._data + data if self._data else data
        responses: list[bytes] = []
        while (end := data.find(b"\r\n\r\n")) >= 0:
            if data.startswith(b"GET "):
                responses.append(self._tally.asked(data.split(b" ", 2)[1]))
                data = data[end + 4 :]
                continue
            at = data.find(_LENGTH) + len(_LENGTH)
            whole = end + 4 + int(data[at : data.find(b"\r\n", at)])
            if len(data) < whole:
                break
            if not data.startswith(_COLLECTED):
                self._tally.note(data, end)
            responses.append(RESPONSE)
            data = data[whole:]
        self._data = data
        if responses:
            self._transport.write(b"".join(responses))


class Leash(asyncio.Protocol):
    """Tells when standard input ends."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def connection_lost(self, _error: Exception | None) -> None:
        self._ended.set()


async def main() -> None:
    tally = Tally()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    server = await loop.create_server(lambda: Receiver(tally), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.connect_read_pipe(lambda: Leash(ended), sys.stdin)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main())
