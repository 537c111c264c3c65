"""The names of the keys that seal, in the database: a start with other keys is told in time."""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import Subscription
from homing.ports.seals import Claim, Rewrite
from homing.store import rows
from homing.store.tx import Db, Tx


class Seals:
    """``SealStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def claim_seal(self, ours: Sequence[str]) -> Claim:
        async def work(tx: Tx) -> Claim:
            await tx.one("catalog_lock")  # Of two that come first at once, one is second.
            known: dict[str, int] = dict(await tx.all("seals"))
            missing = tuple(name for name in known if name not in ours)
            if missing:
                return Claim(missing, done=False)
            if ours[0] not in known:
                await tx.all("seal_add", name=ours[0])
            return Claim((), done=known == {ours[0]: 1})

        return await self._db.run(work)

    async def sealed_page(self, after_id: int, *, limit: int) -> list[Subscription]:
        async def work(tx: Tx) -> list[Subscription]:
            found = await tx.all("seal_page", after_id=after_id, limit=limit)
            return [rows.subscription(row) for row in found]

        return await self._db.run(work, look=True)

    async def seal_again(
        self, subscriptions: Sequence[Subscription], *, plaintext: bool = False
    ) -> None:
        async def work(tx: Tx) -> None:
            if plaintext:
                await tx.all("removal_due")
            for subscription in subscriptions:
                row = rows.subscription_row(subscription)
                values = dict(zip(rows.COLUMNS["subscription"], row, strict=True))
                await tx.all("seal_again", **values)

        await self._db.run(work)

    async def all_sealed(self, name: str) -> None:
        async def work(tx: Tx) -> None:
            await tx.all("seal_done", name=name)
            await tx.all("seal_only", name=name)

        await self._db.run(work)

    async def is_removal_due(self) -> bool:
        async def work(tx: Tx) -> bool:
            return await tx.one("removal") is not None

        return await self._db.run(work, look=True)

    async def remove_plaintext(self) -> Rewrite:
        return await self._db.rewrite()
