"""The metrics of the other processes of a supervisor, so that one scrape of the port shows all.

A process that is scraped sends a datagram to each of the others, and each replies with its own
metrics. One that does not reply in time is missing from this scrape, which says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct
from prometheus_client.core import Metric

from homing.server.siblings import Siblings

REPLY_WITHIN_S = 1.0
MESSAGE_BYTES_MAX = 1 << 20


class _Sample(Struct, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class _Family(Struct, array_like=True):
    name: str
    sentence: str
    kind: str
    samples: list[_Sample]


class _Message(Struct, array_like=True):
    """A question of process ``sender``, or the reply of process ``sender`` to one."""

    sender: int
    question: int  # its number
    families: list[_Family] | None = None


_decoder = msgspec.msgpack.Decoder(_Message)
_encode = msgspec.msgpack.Encoder().encode


class MetricsExchange:
    """Asks the other processes for their metrics, and replies with those of this process."""

    def __init__(self, siblings: Siblings, own: Callable[[], Iterable[Metric]]) -> None:
        self._siblings, self._own = siblings, own
        self._question = 0
        self._replies: dict[int, Sequence[Metric]] = {}
        self._complete = asyncio.Event()
        self._asking: asyncio.Task[Mapping[str, Sequence[Metric] | None]] | None = None

    @property
    def name(self) -> str:
        """Of this process, as a label."""
        return str(self._siblings.number + 1)

    @property
    def inbox(self) -> socket.socket:
        return self._siblings.inbox

    async def others(self) -> Mapping[str, Sequence[Metric] | None]:
        """The metrics of each other process by its name; None if it did not reply in time."""
        if self._asking is None or self._asking.done():  # One question for all who wait for it.
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Mapping[str, Sequence[Metric] | None]:
        me = self._siblings.number
        others = [number for number in range(self._siblings.count) if number != me]
        self._question += 1
        self._replies = {}
        self._complete.clear()
        for number in others:
            self._siblings.send(number, _encode(_Message(me, self._question)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLY_WITHIN_S):
                await self._complete.wait()
        return {str(number + 1): self._replies.get(number) for number in others}

    def receive(self) -> None:
        """Read one message of another process, and reply if it is a question."""
        try:
            message = _decoder.decode(self._siblings.inbox.recv(MESSAGE_BYTES_MAX))
        except OSError:
            return
        if message.families is None:
            families = [_family(one) for one in self._own()]
            reply = _Message(self._siblings.number, message.question, families)
            self._siblings.send(message.sender, _encode(reply))
        elif message.question == self._question:
            self._replies[message.sender] = [_metric(one) for one in message.families]
            if len(self._replies) == self._siblings.count - 1:
                self._complete.set()


@contextlib.asynccontextmanager
async def replying(exchange: MetricsExchange | None) -> AsyncIterator[None]:
    """Reply to the other processes, if there are any."""
    if exchange is None:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(exchange.inbox, exchange.receive)
    try:
        yield
    finally:
        loop.remove_reader(exchange.inbox)


def _family(metric: Metric) -> _Family:
    samples = [_Sample(it.name, it.labels, it.value) for it in metric.samples]
    return _Family(metric.name, metric.documentation, metric.type, samples)


def _metric(family: _Family) -> Metric:
    metric = Metric(family.name, family.sentence, family.kind)
    for sample in family.samples:
        metric.add_sample(sample.name, sample.labels, sample.value)
    return metric
