"""The publisher, told line by line: ``bench.publisher PORT KEY RUN TENANT BODY_BYTES OBJECTS``.

It is made to cost little beside the server it loads: every request is built before the clock
starts, and a connection is a bare protocol that writes the next one when it is answered.

    flood FIRST COUNT BATCH CONNECTIONS     as fast as the server responds
    pace FIRST COUNT RATE CONNECTIONS       so many events a second, stamped when they are sent
    press RATE SECONDS BATCH CONNECTIONS    so many events a second, also where it is refused

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
from bench.measure import percentile

_ACCEPTED = b"http/1.1 202"
_BUSY = (b"http/1.1 429", b"http/1.1 503")


class Line(asyncio.Protocol):
    """One connection; ``responded`` is called with it whenever a request was accepted."""

    def __init__(self, responded: Callable[[Line], None]) -> None:
        self._responded = responded
        self._data = b""
        self.sent_at = 0.0

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
        head, self._data = self._data[:end].lower(), b""
        if head.startswith(_ACCEPTED):
            self._responded(self)
        else:
            self.refused(head)

    def refused(self, head: bytes) -> None:
        sys.exit(f"the server refused: {head[:400]!r}")

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            sys.exit(f"a connection broke: {error}")


class Pressure:
    """What became of the requests of ``press``, and the connections that are free."""

    def __init__(self) -> None:
        self.free: list[Pressed] = []
        self.sent_all, self.over = False, asyncio.Event()
        self.open = self.waiting = 0
        self.accepted_ms: list[float] = []
        self.refused = self.with_retry_after = self.broken = 0

    def done(self, line: Pressed) -> None:
        self.waiting -= 1
        line.busy = False
        if not line.transport.is_closing():
            self.free.append(line)
        if self.sent_all and not self.waiting:
            self.over.set()


class Pressed(Line):
    """A connection that may be refused or closed."""

    def __init__(self, pressure: Pressure) -> None:
        super().__init__(self._accepted)
        self._pressure = pressure
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pressure.open += 1

    def send(self, request: bytes) -> None:
        self.busy, self.sent_at = True, time.monotonic()
        self._pressure.waiting += 1
        self.transport.write(request)

    def _accepted(self, _line: Line) -> None:
        self._pressure.accepted_ms.append((time.monotonic() - self.sent_at) * 1000)
        self._pressure.done(self)

    def refused(self, head: bytes) -> None:
        if not head.startswith(_BUSY):
            super().refused(head)
        self._pressure.refused += 1
        self._pressure.with_retry_after += b"\r\nretry-after: " in head
        if b"\r\nconnection: close" in head:
            self.transport.close()
        self._pressure.done(self)

    def connection_lost(self, _error: Exception | None) -> None:
        pressure = self._pressure
        pressure.open -= 1
        if self in pressure.free:
            pressure.free.remove(self)
        if self.busy:
            pressure.broken += 1
            pressure.done(self)


class Publisher:
    """The requests, and the connections they go out on."""

    def __init__(
        self, port: int, admin_key: str, run: str, tenant: str, body_bytes: int, objects: int
    ) -> None:
        self._port, self._run, self._tenant = port, run, tenant
        self._objects = objects  # that the events are about; 0: they have no keys
        self._pad = letter.event_pad(run, body_bytes)
        self._head = (
            f"POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"authorization: Bearer {admin_key}\r\ncontent-type: application/json\r\n"
        ).encode()

    def _request(self, content: bytes) -> bytes:
        return b"%scontent-length: %d\r\n\r\n%s" % (self._head, len(content), content)

    def _requests(self, first: int, count: int, batch: int) -> Iterator[bytes]:
        for start in range(first, first + count, batch):
            events = [
                letter.event_json(self._run, number, self._pad, self._tenant, self._objects)
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
            request = _stamped(requests.popleft())
            if free:
                free.popleft().transport.write(request)
            else:
                late.append(request)
        await over.wait()
        letter.say({"started": started, "seconds": time.monotonic() - started})
        for line in lines:
            line.transport.close()

    async def press(self, rate: int, seconds: int, batch: int, connections: int) -> None:
        """One request every so often, whatever became of those before; single events are stamped.

        Each has a connection of its own until it is answered. One that finds all of them in use is
        not sent.
        """
        loop = asyncio.get_running_loop()
        pressure = Pressure()
        count = rate * seconds // batch * batch
        unsent = 0
        started, cpu = time.monotonic(), time.process_time()
        for number, request in enumerate(self._requests(0, count, batch)):
            wait_s = started + number * batch / rate - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not pressure.free and pressure.open < connections:
                address = ("127.0.0.1", self._port)
                made = await loop.create_connection(lambda: Pressed(pressure), *address)
                pressure.free.append(made[1])
            if pressure.free:
                pressure.free.pop().send(_stamped(request) if batch == 1 else request)
            else:
                unsent += 1
        sent_s = time.monotonic() - started
        pressure.sent_all = True
        if pressure.waiting:
            await pressure.over.wait()
        waits = pressure.accepted_ms
        letter.say(
            {
                "seconds": sent_s,
                "requests": count // batch,
                "accepted": len(waits),
                "refused": pressure.refused,
                "with_retry_after": pressure.with_retry_after,
                "broken": pressure.broken,
                "unsent": unsent,
                "cpu_s": time.process_time() - cpu,
                "p50_ms": percentile(waits, 0.5) if waits else 0.0,
                "p99_ms": percentile(waits, 0.99) if waits else 0.0,
                "worst_ms": max(waits, default=0.0),
            }
        )


def _stamped(request: bytes) -> bytes:
    """A request with the time of now in its event."""
    return request.replace(letter.STAMP, b"%17.3f" % (time.time() * 1000), 1)


def main(port: int, admin_key: str, run: str, tenant: str, body_bytes: int, objects: int) -> None:
    publisher = Publisher(port, admin_key, run, tenant, body_bytes, objects)
    while command := sys.stdin.readline().split():
        numbers = [int(word) for word in command[1:]]
        match command[0]:
            case "flood":
                uvloop.run(publisher.flood(*numbers))
            case "pace":
                uvloop.run(publisher.pace(*numbers))
            case "press":
                uvloop.run(publisher.press(*numbers))
            case _:
                sys.exit(f"unknown: {command[0]}")


if __name__ == "__main__":
    _, port, admin_key, run, tenant, body_bytes, objects = sys.argv
    main(int(port), admin_key, run, tenant, int(body_bytes), int(objects))
