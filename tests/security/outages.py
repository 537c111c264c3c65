"""Scoreboard 11 in its in-process form: our own network down in every way, on virtual time.

The engine, the store and the gate are the real ones; the network between us and the receivers is a
script. A form with a network namespace and a DNS server of its own is still to come: this one says
nothing of the sender and the resolver.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from engine.outages import OUTAGES, STRICT, Net
from engine.world import MINUTE, World
from homing.model import State, Status
from homing.policy.gate import GateRules
from homing.sim.loop import run_virtual
from security.part import Part, Toll

DEAF = GateRules(endpoints_min=1_000_000)  # a gate that never judges


def outage_parts(*, quick: bool, seed: int) -> list[Part]:
    """11 of the scoreboard."""
    del seed
    urls = 100 if quick else 2_000
    return [
        Part(
            "11",
            "our network down, in-process",
            partial(_run, urls, GateRules()),
            control=partial(_run, 100, DEAF),
        )
    ]


async def _run(urls: int, rules: GateRules, _: Path) -> Toll:
    return await asyncio.to_thread(run_virtual, _outages(urls, rules))


async def _outages(count: int, rules: GateRules) -> Toll:
    toll = Toll()
    world = await World.make(replace(STRICT, gate=rules))
    net = Net(world)
    urls = [f"https://host{n % 200}.example/{n}" for n in range(count)]
    await net.connect(urls)
    for kind, reply in OUTAGES.items():
        net.out = reply
        await world.publish()
        await world.wait(2 * MINUTE)
        net.out = None
        await world.wait(MINUTE)
        toll.fired += 1
        pending = sum(one.pending for one in await world.views.ledger(tenant=None))
        if pending:
            toll.blame(f"{kind}: {pending} are not delivered a minute after it healed")
    spent = changed = 0
    for row in await world.deliveries():
        if row.status is Status.PENDING or row.delivery.retry or row.delivery.t0 is not None:
            spent += 1
            toll.blame(f"{row.url}: {row.status}, retry {row.delivery.retry}")
    before: int | None = None
    while True:
        page, before = await world.views.endpoints(
            tenant=None, state=None, before_id=before, limit=200
        )
        for endpoint in page:
            if endpoint.health.state is not State.ENABLED or endpoint.health.failures:
                changed += 1
                toll.blame(f"{endpoint.url}: {endpoint.health.state}")
        if before is None:
            break
    toll.figures = {"urls": count, "spent": spent, "changed": changed}
    return toll
