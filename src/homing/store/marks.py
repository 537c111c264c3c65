"""The batches of this process that are known to be committed, compared with the database.

A batch writes its number in its own transaction. After a failover to a standby that had not
received everything, the number in the database is that of an earlier batch, or of none.
"""

from __future__ import annotations

from homing.errors import DatabaseBehind
from homing.store.tx import Mark

Key = tuple[int, str]  # node, kind


class MarkMemory:
    """For each kind of batch: the last number that was begun, and the last that was committed."""

    def __init__(self) -> None:
        self._begun: dict[Key, int] = {}
        self._committed: dict[Key, int] = {}

    def begin(self, mark: Mark) -> None:
        self._begun[mark[:2]] = mark.number

    def commit(self, mark: Mark) -> None:
        self._committed[mark[:2]] = mark.number

    def committed(self, node: int) -> dict[str, int]:
        """By kind: the last batch of this node that is known to be committed."""
        return {kind: number for (own, kind), number in self._committed.items() if own == node}

    def check(self, key: Key, found: int | None, *, seen: int | None = None) -> None:
        """Raises DatabaseBehind, once for each loss.

        A batch that was begun and not confirmed may be there, or not. ``seen``: the last one that
        was committed when the database was asked; others may have been committed since.
        """
        seen = self._committed.get(key) if seen is None else seen
        if seen is None or (found is not None and seen <= found <= self._begun[key]):
            return
        self._committed.pop(key, None)
        raise DatabaseBehind(key[1], seen=seen, found=found)
