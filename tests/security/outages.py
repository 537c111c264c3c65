"""Scoreboard 11: our own network down in every way, on an island and on virtual time.

On an island (``cutoff``) everything is real. On virtual time the engine, the store and the outage
detection are real, and the network between the sender and the receivers is a script. That does not
test the sender and the resolver, but it also runs on machines without network namespaces.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from engine.outages import OUTAGES, STRICT, Net
from engine.world import MINUTE, World
from homing.model import State, Status
from homing.policy.outage import OutageRules
from homing.sim.loop import run_virtual
from security.cutoff import BLAMES, KINDS, Spec, cut_off
from security.island import way_in
from security.part import Part, Toll

NO_ISLAND = (
    "NO NETWORK NAMESPACES ON THIS MACHINE (root, or user namespaces; unshare, ip and mount): "
    "the outage runs in-process only, and says nothing of the sender and the resolver."
)
DEAF = OutageRules(endpoints_min=1_000_000)  # an outage is never detected


def outage_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#failures-on-the-senders-side."""
    del seed
    urls = 100 if quick else 2_000
    short = partial(_run, urls, OutageRules())
    deaf = partial(_run, 100, DEAF)
    if way_in() is None:
        print(NO_ISLAND)
        return [Part("our network down, NOT FOR REAL", short, control=deaf)]
    kinds = ("no route", "NXDOMAIN") if quick else tuple(KINDS)
    whole = Spec(urls=urls, kinds=kinds, out_s=5 if quick else 30)
    blames = Spec(urls=50, kinds=("no route",), out_s=3, healed_within_s=5, argv=BLAMES)
    return [
        Part("our network down", lambda _: cut_off(whole), lambda _: cut_off(blames)),
        Part("our network down, in-process", short, control=deaf),
    ]


async def _run(urls: int, rules: OutageRules, _: Path) -> Toll:
    return await asyncio.to_thread(run_virtual, _outages(urls, rules))


async def _outages(count: int, rules: OutageRules) -> Toll:
    toll = Toll()
    world = await World.make(replace(STRICT, outage=rules))
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
