"""Scoreboard 33: a tenant's filters that take seconds, beside the publishes of another tenant.

A real server. One tenant subscribes with filters at their limit and publishes events that cost as
much as they can; another tenant publishes one small event after the other. Its longest wait is
compared with half of the time that one of those events takes, and every event is matched.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from acceptance.running import HONEST, Line, Server
from net.receiver import a_free_port
from security.part import Part, Toll

EVERY_S = 0.01
ALL_AT_ONCE = "import homing.engine.matching as it; it.SLICE_STEPS = 10**12; "
START = "from homing.cli.main import main; main()"


def dear_filter_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#hostile-input, of filters."""
    del seed
    items, events = (50_000, 3) if quick else (100_000, 10)
    return [
        Part(
            "filters that take seconds",
            lambda at: beside(at, items=items, events=events),
            lambda at: beside(at, items=50_000, events=2, argv=("-c", ALL_AT_ONCE + START)),
        )
    ]


def _filters() -> list[dict[str, Any]]:
    """No item is what they look for, and each item is looked at by each of them."""
    return [
        {"field": "data.list", "op": "notContains", "value": {"a": -number}}
        for number in range(1, 21)
    ]


async def beside(folder: Path, *, items: int, events: int, argv: tuple[str, ...] = HONEST) -> Toll:
    """Publish for the one while the other's events are matched."""
    toll = Toll()
    server, nowhere = Server(folder / "data", argv=argv), f"http://127.0.0.1:{a_free_port()}/"
    await server.start()
    try:
        dear = {"tenant": "dear", "url": nowhere, "types": ["*"], "filters": _filters()}
        plain = {"tenant": "plain", "url": nowhere, "types": ["*"]}
        line = Line(server.port)
        for subscription in (dear, plain):
            made = await line.ask("POST", "/v1/subscriptions", subscription)
            assert made.status == 201, made.body
        await _measure(toll, server.port, items=items, events=events)
    finally:
        await server.terminate()
    return toll


async def _measure(toll: Toll, port: int, *, items: int, events: int) -> None:
    # Encoded before the clock starts: encoding takes long, and would hold up the other publisher.
    data = json.dumps({"list": [{"a": 1}] * items})
    bodies = [
        b'{"tenant":"dear","type":"a.b","id":"dear-%d","data":%b}' % (number, data.encode())
        for number in range(events)
    ]

    async def publish_dear(body: bytes) -> int:
        got = await Line(port).ask("POST", "/v1/events", body)
        assert got.status == 202, got.body
        return int(got.json["events"][0]["deliveries"])

    began = time.monotonic()
    publishing = asyncio.gather(*(publish_dear(body) for body in bodies))
    waits: list[float] = []
    line = Line(port)
    while not publishing.done():
        asked = time.monotonic()
        event = {"tenant": "plain", "type": "a.b", "data": 1}
        got = await line.ask("POST", "/v1/events", event)
        assert got.status == 202, got.body
        waits.append(time.monotonic() - asked)
        await asyncio.sleep(EVERY_S)
    matched = await publishing
    took_s = time.monotonic() - began
    toll.fired = events
    toll.figures |= {
        "took_s": round(took_s, 1),
        "neighbour_published": len(waits),
        "neighbour_median_ms": round(sorted(waits)[len(waits) // 2] * 1000, 1),
        "neighbour_longest_ms": round(max(waits) * 1000),
    }
    if max(waits) > took_s / events / 2:
        toll.blame(f"the neighbour waited {max(waits):.1f} s")
    if matched != [1] * events:
        toll.blame(f"{matched.count(0)} of {events} were missed")
