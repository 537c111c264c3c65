"""Wrong keys are slowed down per source address; a right key never waits.

Each source has ten wrong keys for free, and gets one more every six seconds. Beyond that the
responses come one a second, and when too many wait, there is a 429 instead. Who comes through a
proxy shares its source, which is why only wrong keys wait. Memory is bounded: the source that was
quiet the longest is forgotten first.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable

from homing.errors import TooMany

FREE = 10
REGAIN_MS = 6_000
STEP_MS = 1_000
WAITING_MAX = 10  # responses held per source
HELD_MAX = 1_000  # responses held in all
SOURCES_MAX = 10_000


class Throttle:
    """How many wrong keys came from where."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        # Per source: until when its free ones are used up; each wrong key moves it on.
        self._busy_until: OrderedDict[str, int] = OrderedDict()
        self._held = 0

    async def wrong(self, source: str) -> None:
        """One more wrong key from there: returns when it may get its response; raises TooMany."""
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
            raise TooMany("Too many wrong keys came from this address.", after_ms=REGAIN_MS)
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
    """An IPv6 customer has a /64 full of addresses: they count as one source."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return source
    if address.version == 4:
        return source
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
