"""Runs the long forms of what guards us: ``python -m security.run [--quick] [--only drip]``.

Each part prints its figures and how long it took; each has a control that must be found, or says
why there is none. A part that fired nothing has failed too. At the end stands a table.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import structlog

from security.at_limits import at_limit_parts
from security.clock_steps import clock_step_parts
from security.dead_hosts import dead_host_parts
from security.dear_filters import dear_filter_parts
from security.doors import door_parts
from security.ended_keys import ended_key_parts
from security.idle_connections import idle_connection_parts
from security.neighbours import neighbour_parts
from security.outages import outage_parts
from security.part import Part, Toll
from security.receivers import receiver_parts
from security.refusing import refusing_parts
from security.shares import share_parts
from security.signatures import signature_parts
from security.silent_names import silent_name_parts
from security.stalls import stall_parts

# Whoever has long forms of their own adds their function here.
PARTS: tuple[Callable[..., list[Part]], ...] = (
    neighbour_parts,
    receiver_parts,
    door_parts,
    outage_parts,
    dead_host_parts,
    signature_parts,
    clock_step_parts,
    silent_name_parts,
    idle_connection_parts,
    ended_key_parts,
    share_parts,
    refusing_parts,
    stall_parts,
    dear_filter_parts,
    at_limit_parts,
)


def _do(part: Part) -> tuple[bool, str, float]:
    began = time.monotonic()
    print(part.name, flush=True)
    try:
        toll = _once(part.run)
    except Exception:  # noqa: BLE001 - the other parts still run
        print(f"  FAILED: {traceback.format_exc()}", flush=True)
        return False, "not run", time.monotonic() - began
    passed = not toll.bad and toll.fired > 0
    print(f"  {'ok' if passed else 'FAILED'}: {toll.line}", flush=True)
    for said in toll.first:
        print(f"    {said[:300]}")
    control = f"none: {part.why_none}"
    if part.control is not None:
        broken = _once(part.control)
        control = "found" if broken.bad else "NOT FOUND"
        passed &= bool(broken.bad)
        print(f"  the control is {control}: {broken.line}", flush=True)
    return passed, control, time.monotonic() - began


def _once(run: Callable[[Path], object]) -> Toll:
    async def whole() -> Toll:
        with tempfile.TemporaryDirectory() as name:
            return await run(Path(name))  # type: ignore[misc,no-any-return]

    return asyncio.run(whole())


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    asked = argparse.ArgumentParser(prog="make security", description=__doc__)
    asked.add_argument("--quick", action="store_true", help="a few minutes in all")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--only", default="", help="words of names of parts, like drip,refusing")
    given = asked.parse_args()
    only = set(filter(None, given.only.split(",")))
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print(f"commit {_commit()}, seed {given.seed}")
    parts = [part for make in PARTS for part in make(quick=given.quick, seed=given.seed)]
    chosen = [part for part in parts if not only or any(word in part.name for word in only)]
    if not chosen:
        asked.error(f"--only takes words of: {', '.join(part.name for part in parts)}")
    results = [(part, *_do(part)) for part in chosen]
    print(f"\n{'run':30}{'result':9}{'control':38}{'took':>8}")
    for part, passed, control, took_s in results:
        verdict = "ok" if passed else "FAILED"
        print(f"{part.name:30}{verdict:9}{control:38}{took_s:7.0f}s")
    return int(not all(passed for _, passed, _, _ in results))


if __name__ == "__main__":
    sys.exit(main())
