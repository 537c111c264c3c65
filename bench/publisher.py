"""The publisher: ``python -m bench.publisher PORT KEY RUN``, told what to do line by line.

It is made to cost little beside the server it loads: every request is built before the clock
starts, and a connection is a bare protocol that writes the next one when it is answered.

    flood FIRST COUNT BATCH CONNECTIONS     as fast as the server responds
    pace FIRST COUNT RATE CONNECTIONS       so many events a second, stamped when they are sent

It responds to each line with one of JSON, in which ``started`` is a time of the monotonic clock. A
flood says ``{"ready": true}`` first and waits for a line that says ``go``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

import uvloop

from bench import letter

_ACCEPTED = b"HTTP/1.1 202"


class Line(asyncio.Protocol):
    """One connection; ``responded`` is called with it whenever a request was accepted."""

    def __init__(self, responded: Callable[[Line], None]) -> None:
        self._responded = responded
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self._data.find(b"content-length: ") + 16
        if len(self._data) < end + 4 + int(self._data[at : self._data.find(b"\r\n", at)]):
            return
        if not self._data.startswith(_ACCEPTED):
            sys.exit(f"the server refused: {self._data[:400]!r}")
        self._data = b""
        self._responded(self)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            sys.exit(f"a connection broke: {error}")


class Publisher:
    """The requests, and the connections they go out on."""

    def __init__(self, port: int, admin_key: str, run: str) -> None:
        self._port, self._run = port, run
        self._data = letter.event_data(run)
        self._head = (
            f"POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"authorization: Bearer {admin_key}\r\ncontent-type: application/json\r\n"
        ).encode()

    def _request(self, content: bytes) -> bytes:
        return b"%scontent-length: %d\r\n\r\n%s" % (self._head, len(content), content)

    def _requests(self, first: int, count: int, batch: int) -> Iterator[bytes]:
        for start in range(first, first + count, batch):
            events = [
                letter.event_json(self._run, number, self._data)
                for number in range(start, min(start + batch, first + count))
            ]
            yield self._request(events[0] if batch == 1 else b"[" + b",".join(events) + b"]")

    async def _connect(self, count: int, responded: Callable[[Line], None]) -> list[Line]:
        loop = asyncio.get_running_loop()
        lines = []
        for _ in range(count):
            made = await loop.create_connection(lambda: Line(responded), "127.0.0.1", self._port)
            lines.append(made[1])
        return lines

    async def flood(self, first: int, count: int, batch: int, connections: int) -> None:
        """All of it, as fast as it is taken."""
        requests = deque(self._requests(first, count, batch))
        over = asyncio.Event()
        resting = 0

        def responded(line: Line) -> None:
            nonlocal resting
            if requests:
                line.transport.write(requests.popleft())
                return
            resting += 1
            if resting == connections:
                over.set()

        letter.say({"ready": True})
        sys.stdin.readline()  # Nothing else is to be done until then.
        lines = await self._connect(connections, responded)
        started, cpu = time.monotonic(), time.process_time()
        for line in lines:
            responded(line)
        await over.wait()
        now = time.monotonic()
        cpu = time.process_time() - cpu
        letter.say({"started": started, "seconds": now - started, "cpu_s": cpu})
        for line in lines:
            line.transport.close()

    async def pace(self, first: int, count: int, rate: int, connections: int) -> None:
        """One event every so often; the time it is sent at goes with it.

        An event that finds no connection free is stamped when it should have gone: it is late.
        """
        requests = deque(self._requests(first, count, 1))
        late: deque[bytes] = deque()
        free: deque[Line] = deque()
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        left = count

        def responded(line: Line) -> None:
            nonlocal left
            left -= 1
            if late:
                line.transport.write(late.popleft())
            else:
                free.append(line)
            if not left:
                over.set()

        lines = await self._connect(connections, responded)
        free.extend(lines)
        started = time.monotonic()
        begin = loop.time()
        for number in range(count):
            wait_s = begin + number / rate - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            stamp = b"%17.3f" % (time.time() * 1000)
            request = requests.popleft().replace(letter.STAMP, stamp, 1)
            if free:
                free.popleft().transport.write(request)
            else:
                late.append(request)
        await over.wait()
        letter.say({"started": started, "seconds": time.monotonic() - started})
        for line in lines:
            line.transport.close()


def main(port: int, admin_key: str, run: str) -> None:
    publisher = Publisher(port, admin_key, run)
    while command := sys.stdin.readline().split():
        numbers = [int(word) for word in command[1:]]
        match command[0]:
            case "flood":
                uvloop.run(publisher.flood(*numbers))
            case "pace":
                uvloop.run(publisher.pace(*numbers))
            case _:
                sys.exit(f"unknown: {command[0]}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
