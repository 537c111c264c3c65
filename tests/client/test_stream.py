"""Events that are read: each comes in order, also when the reader or the server is killed."""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from acceptance.running import KEY, Server
from client.both import Make, both
from homing_client import AsyncHoming, Conflict, Invalid, NotFound


@pytest.fixture
def tenant() -> str:
    return uuid.uuid4().hex


async def take(homing: AsyncHoming, subscription: str, count: int, **more: Any) -> list[str]:
    """The ids of the next events; the loop ends after the last of them."""
    found: list[str] = []
    async with aclosing(homing.stream(subscription, **more)) as events:  # type: ignore[type-var]
        async for event in events:
            found.append(event.id)
            if len(found) == count:
                break
    return found


@both
async def test_a_stream_goes_on_after_the_last_event_that_was_handled(
    server: Server, tenant: str, make: Make
) -> None:
    homing = make(f"http://127.0.0.1:{server.port}", KEY)
    made = await homing.subscribe(None, ["order.*"], tenant=tenant)
    assert (made.url, made.endpoint) == ("", "")
    for n in range(5):
        await homing.publish("order.paid", {"n": n}, id=f"{tenant}-{n}", tenant=tenant)
    ids = [f"{tenant}-{n}" for n in range(5)]
    assert await take(homing, made.id, 3) == ids[:3]
    # The loop ended while it handled the third: that one is not acknowledged.
    assert await take(homing, made.id, 3) == ids[2:]
    (reader,) = await homing.readers(made.id)
    assert (reader.name, reader.lag) == ("default", 1)
    assert await take(homing, made.id, 5, reader="other") == ids
    await homing.remove_reader(made.id, "default")
    page = await homing.read_events(made.id, limit=2)
    assert [(it.id, it.type, it.data) for it in page.events] == [
        (ids[0], "order.paid", {"n": 0}),
        (ids[1], "order.paid", {"n": 1}),
    ]
    assert page.lag == 3
    acknowledged = await homing.acknowledge(made.id, page.cursor)
    assert acknowledged.lag == 3
    await homing.delete_subscription(made.id)
    with pytest.raises(NotFound):
        await homing.read_events(made.id)


@both
async def test_a_stream_waits_for_events(server: Server, tenant: str, make: Make) -> None:
    homing = make(f"http://127.0.0.1:{server.port}", KEY)
    made = await homing.subscribe(None, ["*"], tenant=tenant)
    await homing.publish("a", 1, id=f"{tenant}-old", tenant=tenant)
    begun = await homing.read_events(made.id, from_now=True)
    assert begun.events == ()
    taking = asyncio.create_task(take(homing, made.id, 2))
    for n in range(2):
        await homing.publish("a", 1, id=f"{tenant}-{n}", tenant=tenant)
    assert await taking == [f"{tenant}-0", f"{tenant}-1"]


async def test_refusals_are_errors_of_the_client(server: Server, tenant: str) -> None:
    async with AsyncHoming(f"http://127.0.0.1:{server.port}", KEY) as homing:
        made = await homing.subscribe(None, ["*"], tenant=tenant)
        sent = await homing.subscribe("http://127.0.0.1:9000/", ["*"], tenant=tenant)
        with pytest.raises(Invalid):
            await homing.acknowledge(made.id, "made up")
        with pytest.raises(Conflict):
            await homing.read_events(sent.id)
        with pytest.raises(Invalid):
            await homing.subscribe(None, ["*"], tenant=tenant, token="t")


READER = """
import asyncio, sys
from homing_client import AsyncHoming

async def main():
    async with AsyncHoming(sys.argv[1], sys.argv[2]) as homing:
        async for event in homing.stream(sys.argv[3]):
            print(event.id, flush=True)

asyncio.run(main())
"""


@pytest.mark.long
async def test_nothing_is_skipped_when_reader_and_server_are_killed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    await server.start()
    seen: list[str] = []
    try:
        url = f"http://127.0.0.1:{server.port}"
        async with AsyncHoming(url, KEY, timeout=60) as homing:
            made = await homing.subscribe(None, ["*"])
            published = [f"k{n}" for n in range(60)]
            for round_ in range(3):
                reader = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    READER,
                    url,
                    KEY,
                    made.id,
                    stdout=asyncio.subprocess.PIPE,
                )
                assert reader.stdout is not None
                for key in published[20 * round_ : 20 * round_ + 20]:
                    await homing.publish("a", 1, id=key)
                wanted = published[20 * round_ + 10]
                while (line := (await reader.stdout.readline()).decode().strip()) != wanted:
                    assert line
                    seen.append(line)
                seen.append(wanted)
                reader.kill()
                seen += (await reader.stdout.read()).decode().split()
                await reader.wait()
                server.kill()
                await server.gone()
                await server.start()
            while True:
                page = await homing.read_events(made.id)
                if not page.events:
                    break
                seen += [it.id for it in page.events]
                await homing.acknowledge(made.id, page.cursor)
    finally:
        server.kill()
        await server.gone()
    assert list(dict.fromkeys(seen)) == published  # In order, each at least once.
