"""Slows down wrong keys per source address; a valid key never waits.

Each source may send ten wrong keys without delay, and one more every six seconds. Beyond that it
gets one response per second, and a 429 if too many responses are waiting. All clients behind a
proxy share one source, so only wrong keys wait. Memory is bounded: the source without wrong keys
for the longest time is forgotten first.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable

from homing.errors import TooMany
from homing.languages.sentences import say

FREE = 10
REGAIN_MS = 6_000
STEP_MS = 1_000
WAITING_MAX = 10  # delayed responses per source
HELD_MAX = 1_000  # delayed responses in total
SOURCES_MAX = 10_000


class Throttle:
    """Counts wrong keys by source."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        # Per source: when all its wrong keys are forgotten; each wrong key adds REGAIN_MS.
        self._busy_until: OrderedDict[str, int] = OrderedDict()
        self._held = 0

    async def wrong(self, source: str) -> None:
        """Counts a wrong key; returns when the response may be sent. Raises TooMany."""
        now = self._now()
        source = network_of(source)
        used_until = max(self._busy_until.pop(source, now), now)
        over_ms = used_until - now - (FREE - 1) * REGAIN_MS
        if over_ms <= 0:
            self._keep(source, used_until + REGAIN_MS)
            return
        waiting = (over_ms + REGAIN_MS - 1) // REGAIN_MS
        if waiting > WAITING_MAX or self._held >= HELD_MAX:
            self._keep(source, used_until)
            raise TooMany(
                say("Too many wrong keys were sent from this address."), after_ms=REGAIN_MS
            )
        self._keep(source, used_until + REGAIN_MS)
        self._held += 1
        try:
            await asyncio.sleep(waiting * STEP_MS / 1000)
        finally:
            self._held -= 1

    def _keep(self, source: str, until: int) -> None:
        self._busy_until[source] = until
        if len(self._busy_until) > SOURCES_MAX:
            self._busy_until.popitem(last=False)

    def __len__(self) -> int:
        return len(self._busy_until)


def network_of(source: str) -> str:
    """The source to count: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return source
    if address.version == 4:
        return source
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
