"""Erasures at two real processes on one PostgreSQL: the one that is called does not own the URL.

The receiver holds every request back, so that the deliveries of a tenant are in the memory of the
process that owns its endpoint. The erasure is asked of the other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from acceptance.running import Line
from fleet.house import Process, Receiver, fetch
from postgres import Server

EVENTS = 40
DEADLINE_MS = 30_000
WITHIN_S = 90.0  # an upper bound only, for a busy machine
VALUE = "a-person"

WHAT: dict[str, dict[str, Any]] = {
    "event": {"event": "e-5"},
    "field": {"field": "data.who", "value": VALUE},
    "tenant": {"everything": True},
}


@dataclass
class HeldReceiver(Receiver):
    """Responds to nothing before it is released."""

    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        await self.released.wait()


async def ask(line: Line, method: str, path: str, document: Any = None) -> Any:
    reply = await line.ask(method, path, document)
    assert reply.status < 300, (path, reply.status, reply.body)
    return reply.json


def erased_by(kind: str, key: str) -> bool:
    number = int(key.removeprefix("e-"))
    return {"event": number == 5, "field": number % 2 == 1, "tenant": True}[kind]


@contextlib.asynccontextmanager
async def crew_of(roles: tuple[str, str], dsn: str, folder: Path) -> AsyncIterator[list[Process]]:
    """Two processes that have divided the buckets between them."""
    environ = {"HOMING_SEARCH_FIELDS": "data.who"}
    crew = [Process(dsn, folder, role, n, environ=environ) for n, role in enumerate(roles)]
    senders = sum(role != "api" for role in roles)
    try:
        for process in crew:
            await process.start()
        owned = "SELECT count(*) FROM lease WHERE owner IS NOT NULL GROUP BY owner"
        while len(found := await fetch(dsn, owned)) < senders or sum(n for (n,) in found) < 256:
            await asyncio.sleep(0.05)
        yield crew
    finally:
        codes = await asyncio.gather(*(it.end() for it in crew if it.process))
    assert not any(codes)


async def until_sum(line: Line, tenant: str, expected: dict[str, int]) -> None:
    """Until the ledger of a tenant has these counts; it balances all the time."""
    names = ("delivered", "pending", "dropped", "cancelled")
    while True:
        (row,) = (await ask(line, "GET", f"/v1/ledger?tenant={tenant}"))["items"]
        assert row["accepted"] == sum(row[name] for name in names), row
        if {name: row[name] for name in expected} == expected:
            return
        await asyncio.sleep(0.05)


async def until_done(line: Line, erasure: Any) -> Any:
    while erasure["state"] != "done":
        await asyncio.sleep(0.05)
        erasure = await ask(line, "GET", f"/v1/erasures/{erasure['id']}")
    return erasure


async def subscribe_and_publish(line: Line, tenant: str, port: int) -> None:
    url = f"http://127.0.0.1:{port}/{tenant}"
    new = {"url": url, "tenant": tenant, "types": ["*"], "deadline_ms": DEADLINE_MS}
    await ask(line, "POST", "/v1/subscriptions", new)
    batch = [
        {
            "type": "a.b",
            "tenant": tenant,
            "id": f"e-{number}",
            "data": {"who": VALUE if number % 2 else "another"},
        }
        for number in range(EVENTS)
    ]
    await ask(line, "POST", "/v1/events", batch)


async def erase_at_the_other(crew: list[Process], receiver: HeldReceiver) -> dict[str, float]:
    """Erase of each tenant by the process that does not own its URL; returns when it responded."""
    # A process that only delivers has no API.
    lines = {name: it.line() for it in crew if it.role != "deliver" for name in it.names}
    for tenant in WHAT:
        await subscribe_and_publish(next(iter(lines.values())), tenant, receiver.port)
    responded: dict[str, float] = {}
    erasures: dict[str, Any] = {}
    for tenant, what in WHAT.items():
        while not (sent := [it for it in receiver.arrivals if it.path == f"/{tenant}"]):
            await asyncio.sleep(0.02)
        (owner,) = {it.who for it in sent}
        (other,) = [line for label, line in lines.items() if label != owner]
        erasures[tenant] = await ask(other, "POST", "/v1/erasures", {"tenant": tenant, **what})
        responded[tenant] = time.time()
        for line in lines.values():  # Hidden at both at once.
            assert (await line.ask("GET", f"/v1/events/e-5?tenant={tenant}")).status == 404
    receiver.released.set()
    for tenant, erasure in erasures.items():
        gone = sum(erased_by(tenant, f"e-{number}") for number in range(EVENTS))
        expected = {"delivered": EVENTS - gone, "pending": 0, "cancelled": gone}
        for line in lines.values():
            await until_sum(line, tenant, expected)
            done = await until_done(line, erasure)
            assert (done["events"], done["cancelled"], done["more"]) == (gone, gone, False)
    for line in lines.values():
        line.close()
    return responded


@pytest.mark.parametrize(
    "roles",
    [pytest.param(("both", "both"), marks=pytest.mark.long), ("api", "deliver")],
    ids=" and ".join,
)
async def test_nothing_erased_is_sent_by_the_process_that_owns_its_url(
    postgres: Server, tmp_path: Path, roles: tuple[str, str]
) -> None:
    dsn = await postgres.make()
    async with (
        asyncio.timeout(WITHIN_S),
        HeldReceiver().listening() as receiver,
        crew_of(roles, dsn, tmp_path) as crew,
    ):
        responded = await erase_at_the_other(crew, receiver)
        left = await fetch(dsn, "SELECT tenant, key FROM event_key")

    for tenant in WHAT:
        kept = {f"e-{number}" for number in range(EVENTS) if not erased_by(tenant, f"e-{number}")}
        sent = [it for it in receiver.arrivals if it.path == f"/{tenant}"]
        assert kept <= {it.key for it in sent}
        late = [it for it in sent if it.sent > responded[tenant] and it.key not in kept]
        assert not late
        assert {key for name, key in left if name == tenant} == kept
    assert not await fetch(dsn, "SELECT 1 FROM endpoint WHERE tenant = 'tenant'")


@pytest.mark.long
async def test_a_process_that_hung_during_an_erasure_sends_nothing_of_it_when_it_goes_on(
    postgres: Server, tmp_path: Path
) -> None:
    dsn = await postgres.make()
    tenant = "field"
    async with (
        asyncio.timeout(WITHIN_S),
        HeldReceiver().listening() as receiver,
        crew_of(("both", "both"), dsn, tmp_path) as crew,
    ):
        await subscribe_and_publish(crew[0].line(), tenant, receiver.port)
        while not receiver.arrivals:
            await asyncio.sleep(0.02)
        (owner,) = [it for it in crew if receiver.arrivals[0].who in it.names]
        (other,) = [it for it in crew if it is not owner]
        line = other.line()
        owner.signal(signal.SIGSTOP)
        try:
            asked = {"tenant": tenant, **WHAT[tenant]}
            erasure = await ask(line, "POST", "/v1/erasures", asked)
            responded = time.time()
            receiver.released.set()  # The response is there when the process goes on.
        finally:
            owner.signal(signal.SIGCONT)
        expected = {"delivered": EVENTS // 2, "pending": 0, "cancelled": EVENTS // 2}
        await until_sum(line, tenant, expected)
        await until_done(line, erasure)
        line.close()
    sent_late = {it.key for it in receiver.arrivals if it.sent > responded}
    assert not {key for key in sent_late if erased_by(tenant, key)}


async def test_an_erased_tenant_is_used_again_at_once_by_servers_that_start_before_and_after(
    postgres: Server, tmp_path: Path
) -> None:
    dsn = await postgres.make()
    async with asyncio.timeout(WITHIN_S), Receiver().listening() as receiver:
        first = Process(dsn, tmp_path, "both", 0)
        second = Process(dsn, tmp_path, "both", 1)
        try:
            await first.start()
            line = first.line()
            url = f"http://127.0.0.1:{receiver.port}/again"
            new = {"url": url, "tenant": "again", "types": ["*"]}
            await ask(line, "POST", "/v1/subscriptions", new)
            whole = {"tenant": "again", "everything": True}
            await until_done(line, await ask(line, "POST", "/v1/erasures", whole))
            made = await ask(line, "POST", "/v1/subscriptions", new)
            await publish_one(line, "one")
            await second.start()
            other = second.line()
            owned = "SELECT count(*) FROM lease WHERE owner IS NOT NULL GROUP BY owner"
            while len(await fetch(dsn, owned)) < 2:
                await asyncio.sleep(0.05)
            found = await ask(other, "GET", f"/v1/subscriptions/{made['id']}")
            assert found["active"]
            for number in range(4):
                await publish_one(line, f"here-{number}")
                await publish_one(other, f"there-{number}")
            await until_sum(other, "again", {"delivered": 9, "pending": 0, "cancelled": 0})
            assert (await publish_one(other, "one"))["duplicate"]
            line.close()
            other.close()
        finally:
            await asyncio.gather(*(it.end() for it in (first, second) if it.process))
    assert {it.key for it in receiver.arrivals} == {
        "one",
        *(f"{where}-{number}" for where in ("here", "there") for number in range(4)),
    }


async def publish_one(line: Line, key: str) -> Any:
    document = {"type": "a.b", "tenant": "again", "id": key, "data": {}}
    (receipt,) = (await ask(line, "POST", "/v1/events", document))["events"]
    return receipt
