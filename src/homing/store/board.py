"""What the dashboard asks for besides the lists; no read is unbounded, and none delays a commit."""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import PART_TRIED, Endpoint, State
from homing.ports.board import Crowd, EndpointSort, Expiring, Rollup
from homing.store import rollups, rows
from homing.store.tx import Db, Tx

ENDPOINTS_LOOK = 5_000  # endpoints that are sorted at a time


class BoardViews:
    """``BoardStore`` on a database."""

    _db: Db

    async def rollups(
        self, *, endpoint_id: int | None, tenant: str | None, since: int, until: int
    ) -> list[Rollup]:
        async def work(tx: Tx) -> list[Rollup]:
            number = endpoint_id or 0
            whose = tenant or "" if endpoint_id is None else ""
            found = await rollups.read(tx, [number], whose, since=since, until=until)
            return found.get(number, [])

        return await self._db.run(work, read=True)

    async def sparks(
        self, endpoint_ids: Sequence[int], *, since: int, until: int
    ) -> dict[int, list[Rollup]]:
        async def work(tx: Tx) -> dict[int, list[Rollup]]:
            return await rollups.read(tx, endpoint_ids, "", since=since, until=until)

        return await self._db.run(work, read=True)

    async def crowd(self, *, tenant: str | None, limit: int) -> Crowd:
        async def work(tx: Tx) -> Crowd:
            enabled = await tx.one("board_enabled", tenant=tenant, limit=limit)
            held: dict[str, int] = dict(await tx.all("board_held", tenant=tenant, limit=limit))
            if tenant is None:
                found = await tx.all("board_pending", limit=limit)
            else:
                found = await tx.all("board_pending_of_tenant", tenant=tenant, limit=limit)
            parts: dict[int, int] = dict(found)
            failing = parts.pop(PART_TRIED, 0)
            return Crowd(
                enabled=enabled[0] if enabled else 0,
                disabled=held.get(State.DISABLED.value, 0),
                frozen=held.get(State.FROZEN.value, 0),
                waiting=sum(parts.values()),
                failing=failing,
                limit=limit,
            )

        return await self._db.run(work, read=True)

    async def expiring(self, *, tenant: str | None, before: int, limit: int) -> list[Expiring]:
        async def work(tx: Tx) -> list[Expiring]:
            found = await tx.all("board_expiring", tenant=tenant, before=before, limit=limit)
            return [
                Expiring(number, url, whose, State(state), count, first_at)
                for number, url, whose, state, count, first_at in found
            ]

        return await self._db.run(work, read=True)

    async def find_endpoints(
        self,
        *,
        tenant: str | None,
        state: State | None,
        text: str,
        sort: EndpointSort,
        offset: int,
        limit: int,
    ) -> tuple[list[Endpoint], bool]:
        async def work(tx: Tx) -> tuple[list[Endpoint], bool]:
            found = await tx.all(
                "board_endpoints",
                tenant=tenant,
                state=None if state is None else state.value,
                text=text.lower(),
                look=ENDPOINTS_LOOK,
                sort=sort.value,
                limit=limit + 1,
                offset=offset,
            )
            return [rows.endpoint(row) for row in found[:limit]], len(found) > limit

        return await self._db.run(work, read=True)

    async def waiting_of(self, endpoint_ids: Sequence[int], *, limit: int) -> dict[int, int]:
        async def work(tx: Tx) -> dict[int, int]:
            return dict(await tx.all("board_waiting", ids=list(endpoint_ids), limit=limit))

        return await self._db.run(work, read=True)

    async def store_bytes(self) -> int:
        async def work(tx: Tx) -> int:
            row = await tx.one("store_bytes")
            assert row is not None
            return int(row[0])

        return await self._db.run(work, read=True)
