"""How the file descriptors of a process are divided between API connections and attempts.

If there are enough, both get the numbers of the settings. If they are short, a part is reserved for
files and DNS look-ups, API connections get at least a third of the rest, and attempts get the
remainder: neither callers that open connections nor receivers that hang can use up all of them.
"""

from __future__ import annotations

from msgspec import Struct

SPARE_MAX = 192  # for files, database connections and look-ups
SPARE_PART = 8
API_PART = 3
KEPT_IDLE = 256  # idle connections to receivers, kept for the next attempt
FREE_MIN = 16


class Shares(Struct, frozen=True):
    """How many descriptors each side may use."""

    connections: int  # to the API
    sockets: int  # to receivers, for attempts in flight and idle connections


def share_out(*, limit: int, used: int, connections_max: int, slots: int) -> Shares:
    """Divide the limit; ``used`` are open before the first connection, ``slots`` are wanted."""
    free = max(limit - used, FREE_MIN)
    free -= min(free // SPARE_PART, SPARE_MAX)
    connections = min(connections_max, max(free - slots - KEPT_IDLE, free // API_PART))
    return Shares(connections, free - connections)


def fitting(wanted: int, *, sockets: int, slots: int) -> int:
    """``wanted`` slots, reduced in proportion where there are fewer sockets than slots in all."""
    return wanted if sockets >= slots else max(wanted * sockets // slots, 1)
