"""How the descriptors of a process are shared out between its callers and its receivers.

Where there are plenty, everybody has what the settings say. Where they are short, a part stays
for files and look-ups, the API has at least a third of the rest, and attempts have what is left:
neither callers who open connections nor receivers who hang can take them all.
"""

from __future__ import annotations

from msgspec import Struct

SPARE_MAX = 192  # for files, database connections and look-ups
SPARE_PART = 8
API_PART = 3
KEPT_IDLE = 256  # connections to receivers that are kept between attempts
FREE_MIN = 16


class Shares(Struct, frozen=True):
    """How many descriptors each side may hold."""

    connections: int  # to the API
    sockets: int  # to receivers, for attempts in flight and kept between them


def share_out(*, limit: int, used: int, connections_max: int, slots: int) -> Shares:
    """``used``: open before the first caller and the first attempt; ``slots``: attempts wanted."""
    free = max(limit - used, FREE_MIN)
    free -= min(free // SPARE_PART, SPARE_MAX)
    connections = min(connections_max, max(free - slots - KEPT_IDLE, free // API_PART))
    return Shares(connections, free - connections)


def fitting(wanted: int, *, sockets: int, slots: int) -> int:
    """How many of these slots remain where there are fewer sockets than slots in all."""
    return wanted if sockets >= slots else max(wanted * sockets // slots, 1)
