"""The pool: idle connections, each kept only as long as another request on it is safe.

If a receiver closes an idle connection while a request is being written on it, the sender cannot
know whether the request arrived. Repeating it could deliver twice without a trace, so the sender
never does: the attempt fails as ``closed`` or ``reset``, and the schedule goes on. A normal
keep-alive timeout must not look like such a failure, so the race is made rare:

- a connection is used again within 4 s of its last response (common servers close after 5 s), or
  within the time that the receiver announces (``Keep-Alive: timeout=N``) less one second;
- never after ``Connection: close``, HTTP/1.0, a response not read to its end, or stray bytes;
- a connection whose end the loop has seen is removed at once, and one that was idle for half a
  second is polled once more before it is used.

Its address was checked when it was made. After 60 s that check is too old, and a new look-up and
check are due. The number of idle connections is bounded; the longest idle is closed first.
"""

from __future__ import annotations

from collections import OrderedDict

from homing.net.connection import Connection, PoolKey

KEEP_S = 4.0
ANNOUNCED_MARGIN_S = 1.0
QUIET_AFTER_S = 0.5


class Pool:
    """Idle connections by key, newest first."""

    def __init__(self, *, idle_max: int, idle_s_max: float, address_age_s_max: float) -> None:
        self._idle_max = idle_max
        self._idle_s_max = idle_s_max
        self._keep_s = min(KEEP_S, idle_s_max)
        self._address_age_s_max = address_age_s_max
        self._by_key: dict[PoolKey, list[Connection]] = {}
        self._by_age: OrderedDict[Connection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_age)

    def take(self, key: PoolKey, now: float) -> Connection | None:
        """The connection with the shortest idle time, if it may be used again."""
        while (stack := self._by_key.get(key)) is not None:
            connection = stack.pop()
            if not stack:
                del self._by_key[key]
            del self._by_age[connection]
            # A connection whose end the loop has seen is no longer here.
            if now < connection.expires_at and (
                now - connection.idle_at < QUIET_AFTER_S or connection.quiet()
            ):
                return connection
            connection.drop()
        return None

    def put(self, connection: Connection, now: float, announced_s: int | None) -> None:
        """Keep an idle connection, or close it if it may not be used again.

        ``announced_s`` is how long the receiver keeps it, if it said so.
        """
        keep_s = self._keep_s
        if announced_s is not None:
            keep_s = min(announced_s - ANNOUNCED_MARGIN_S, self._idle_s_max)
        expires_at = now + keep_s
        too_old_at = connection.checked_at + self._address_age_s_max
        expires_at = min(expires_at, too_old_at)
        connection.finish(now, expires_at)
        if expires_at <= now or self._idle_max <= 0:
            connection.drop()
            return
        if len(self._by_age) >= self._idle_max:
            self.shed(1)
        self._by_age[connection] = None
        stack = self._by_key.get(connection.key)
        if stack is None:
            self._by_key[connection.key] = [connection]
        else:
            stack.append(connection)

    def discard(self, connection: Connection) -> None:
        """Remove a connection that ended, if it is here."""
        if connection not in self._by_age:
            return
        del self._by_age[connection]
        stack = self._by_key[connection.key]
        stack.remove(connection)
        if not stack:
            del self._by_key[connection.key]

    def shed(self, count: int) -> int:
        """Close up to ``count`` connections, the longest idle first; returns how many."""
        oldest = [connection for connection, _ in zip(self._by_age, range(count), strict=False)]
        for connection in oldest:
            self.discard(connection)
            connection.drop()
        return len(oldest)

    def expire(self, now: float) -> float | None:
        """Close the connections that have expired; returns when the next one will, or None."""
        overdue = [connection for connection in self._by_age if connection.expires_at <= now]
        for connection in overdue:
            self.discard(connection)
            connection.drop()
        return min((connection.expires_at for connection in self._by_age), default=None)
