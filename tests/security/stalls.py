"""Scoreboard 33: no input holds up the event loop, and twice the input costs twice the CPU.

Every input of a real server is fuzzed: heads, cookies, URLs, JSON, NDJSON, filters, searches, the
simulator's fields, forms. An input is a fragment repeated, or two of them, up to and beyond the
limit of its size. The server records each turn of its loop that took long. The shorter of its time
and its CPU time counts, so that a busy machine does not make a turn long. The readers of ``inputs``
are measured separately.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from acceptance.running import KEY, Server
from security.fuzzed_requests import Fuzz, post
from security.inputs import INPUTS, Input
from security.part import Part, Toll, undisturbed
from security.watched_loop import FILE

STALL_MAX_S = 0.050
RESPONSE_WITHIN_S = 60.0
WATCHED, BROKEN = ("-m", "security.watched_loop"), ("-m", "security.quadratic_names")


def stall_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#hostile-input, of the event loop."""
    count = 400 if quick else 5_000
    return [
        Part(
            "stalls of the event loop",
            lambda at: fuzzed(at, count=count, seed=seed),
            lambda at: fuzzed(at, count=6, seed=seed, argv=BROKEN, kinds=("names_of_a_value",)),
        ),
        Part("CPU of every reader", measured_all, measured_broken),
    ]


# --- a real server ---------------------------------------------------------------------------


async def fuzzed(
    folder: Path,
    *,
    count: int,
    seed: int,
    argv: tuple[str, ...] = WATCHED,
    kinds: tuple[str, ...] = (),
) -> Toll:
    """Fire so many inputs, one after the other, and look for long turns."""
    toll, stalls = Toll(), folder / "stalls"
    stalls.touch()
    with undisturbed(toll):
        server = Server(folder / "data", argv=argv, environ={FILE: str(stalls)})
        await server.start()
        try:
            fuzz = Fuzz(random.Random(seed), await signed_in(server.port))
            makers = [it for it in fuzz.makers if not kinds or it.__name__ in kinds]
            fired = []
            for number in range(count):
                one = makers[number % len(makers)]()
                fired.append((time.monotonic(), one.kind, len(one.sent)))
                toll.figures.setdefault("status", Counter())[await _say(server.port, one.sent)] += 1  # type: ignore[index]
                toll.fired += 1
            await asyncio.sleep(0.1)
        finally:
            await server.terminate()
    judge(toll, stalls, fired)
    return toll


def judge(toll: Toll, stalls: Path, fired: list[tuple[float, str, int]]) -> None:
    """Blame long turns, each on what was sent last before it ended."""
    worst: dict[str, float] = {}
    longest = 0.0
    for line in stalls.read_text().splitlines():
        ended, took, cpu = map(float, line.split())
        if ended < fired[0][0]:
            continue  # While it started.
        took_s = min(took, cpu)
        began = ended - took
        at = max((it for it in fired if it[0] <= ended), key=lambda it: it[0])
        kind = f"{at[1]} of {at[2]:,} bytes"
        longest = max(longest, took_s)
        worst[kind] = max(worst.get(kind, 0.0), took_s)
        if took_s >= STALL_MAX_S:
            toll.blame(f"{kind}: {took_s * 1000:.0f} ms, {began - at[0]:+.3f} s after it was sent")
    order = sorted(worst.items(), key=lambda it: -it[1])[:3]
    toll.figures["status"] = dict(toll.figures.get("status", {}))  # type: ignore[call-overload]
    toll.figures["longest_stall_ms"] = f"{longest * 1000:.1f}"
    toll.figures["worst"] = "; ".join(f"{kind} {took * 1000:.0f} ms" for kind, took in order)


async def _say(port: int, sent: bytes) -> int:
    """The status of the response; 0 if the connection was ended without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError, EOFError, TimeoutError):
            async with asyncio.timeout(RESPONSE_WITHIN_S):
                writer.write(sent)
                line = await reader.readline()
                while await reader.read(256 * 1024):
                    pass
                found = re.match(rb"HTTP/1.1 (\d+)", line)
                return int(found[1]) if found else 0
    finally:
        writer.transport.abort()
    return 0


async def signed_in(port: int) -> tuple[bytes, bytes]:
    """The session's cookie, and the token that its forms carry."""

    async def got(sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        response = await reader.read(-1)
        writer.close()
        return response

    form = b"key=" + KEY.encode()
    head = b"host: localhost\r\nconnection: close\r\n"
    response = await got(post(b"/sign-in", form, head))
    found = re.search(rb"set-cookie: (homing_session=[^;]+)", response)
    assert found is not None, response[:300]
    page = await got(
        b"GET /subscriptions HTTP/1.1\r\n" + head + b"cookie: " + found[1] + b"\r\n\r\n"
    )
    token = re.search(rb'name="csrf" value="([0-9a-f]+)"', page)
    assert token is not None
    return found[1], token[1]


# --- the readers by themselves ---------------------------------------------------------------

SMALLEST = 8  # times the size at which their steps are counted
DOUBLINGS = 4
GROWN_MAX = 3.0 * 2**DOUBLINGS  # CPU time has its noise; what is quadratic grows 256-fold
WORTH_S = 0.010  # shorter ones are within the noise of the clock


async def measured_all(_folder: Path) -> Toll:
    """How the CPU time of each reader grows."""
    return measured(INPUTS)


async def measured_broken(_folder: Path) -> Toll:
    """A reader that compares every name with all others."""

    def compared(names: list[str]) -> int:
        return sum(names.count(name) for name in names)

    return measured((Input("all with all", compared, lambda n: [str(k) for k in range(n)], 14),))


def measured(inputs: tuple[Input, ...]) -> Toll:
    toll = Toll()
    grown_most = 0.0
    for one in inputs:
        first, last = (_cpu_s(one.of(one.size * SMALLEST * times)) for times in (1, 2**DOUBLINGS))
        toll.fired += 1
        if last < WORTH_S:
            continue
        grown = last / max(first, 1e-6)
        if grown > GROWN_MAX:
            # Some readers read large input in slices, which takes longer for each byte: what grows
            # too fast does so again beyond that size.
            size = one.size * SMALLEST * 4**DOUBLINGS
            grown = min(grown, _cpu_s(one.of(size)) / last)
        grown_most = max(grown_most, grown)
        if grown > GROWN_MAX:
            toll.blame(f"{one.name}: {2**DOUBLINGS} times the input took {grown:.0f} times the CPU")
    toll.figures |= {"times_input": 2**DOUBLINGS, "times_cpu_most": f"{grown_most:.0f}"}
    return toll


def _cpu_s(run: Callable[[], object]) -> float:
    return min(_timed(run) for _ in range(3))


def _timed(run: Callable[[], object]) -> float:
    began = time.thread_time()
    run()
    return time.thread_time() - began
