"""The pool: idle connections, each kept only as long as writing on it again is safe.

A receiver that closes an idle connection in the moment we write on it leaves a question nobody can
answer: did the request arrive? Sending it again by ourselves could deliver twice without a trace,
so we never do; the attempt fails as ``closed`` or ``reset`` and the schedule goes on. An innocent
keep-alive timeout must then not get the chance to look like a failure, so the race is made rare:

- a connection is used again within 4 s of its last answer (common servers close after 5 s), or
  within what the receiver announces (``Keep-Alive: timeout=N``) less one second;
- never after ``Connection: close``, HTTP/1.0, an answer not read to its end, or stray bytes;
- an end that the loop has seen removes it at once, and one that has rested for half a second is
  asked once more, with a poll, whether an end waits unseen.

Its address was checked when it was made; 60 s later that says nothing any more, and a new look-up
and check are due. The number of idle connections is bounded in all; the longest idle goes first.
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
        """The connection that rested shortest, if it is fit to be written on."""
        while (stack := self._by_key.get(key)) is not None:
            connection = stack.pop()
            if not stack:
                del self._by_key[key]
            del self._by_age[connection]
            # One whose end the loop has seen is not here any more.
            if now < connection.expires_at and (
                now - connection.idle_at < QUIET_AFTER_S or connection.quiet()
            ):
                return connection
            connection.drop()
        return None

    def put(self, connection: Connection, now: float) -> None:
        """Let it rest, or close it if it may not be used again."""
        announced_s = connection.reader.keep_alive_s
        keep_s = self._keep_s
        if announced_s is not None:
            keep_s = min(announced_s - ANNOUNCED_MARGIN_S, self._idle_s_max)
        expires_at = now + keep_s
        too_old_at = connection.checked_at + self._address_age_s_max
        connection.idle_at = now
        connection.expires_at = min(expires_at, too_old_at)
        connection.finish()
        if connection.expires_at <= now or self._idle_max <= 0:
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
        """Forget a connection that ended; one that is not here is no matter."""
        if connection not in self._by_age:
            return
        del self._by_age[connection]
        stack = self._by_key[connection.key]
        stack.remove(connection)
        if not stack:
            del self._by_key[connection.key]

    def shed(self, count: int) -> int:
        """Close the longest idle ones; how many there were."""
        oldest = [connection for connection, _ in zip(self._by_age, range(count), strict=False)]
        for connection in oldest:
            self.discard(connection)
            connection.drop()
        return len(oldest)

    def expire(self, now: float) -> float | None:
        """Close what may not be used any more; when the next one falls due, if one is left."""
        overdue = [connection for connection in self._by_age if connection.expires_at <= now]
        for connection in overdue:
            self.discard(connection)
            connection.drop()
        return min((connection.expires_at for connection in self._by_age), default=None)
