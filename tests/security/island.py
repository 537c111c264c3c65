"""An island: an isolated network with a resolver, from which no packet reaches the real world.

The island has two network namespaces and a link between them. On this side are the server under
test and a DNS server that a test controls; on the other side is a receiver with all addresses of a
network. The addresses look public: the guard allows them without a setting.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

NETWORK, NEAR, FAR = "20.1.0.0/16", "20.0.0.1", "20.0.0.2"
RESOLVER = "127.0.0.53"
ZONE = "hooks.example.net"
SILENT = "silent"  # Names that begin with it get no answer, whatever the mood.
UNSHARE = ("unshare", "--net", "--mount")
UNSHARE_AS_USER = ("unshare", "--map-root-user", "--net", "--mount")
_TRIAL = "ip link set lo up && ip link add near type veth peer name far && mount -t tmpfs none /mnt"


@functools.cache
def way_in() -> tuple[str, ...] | None:
    """How a process gets onto an island; None: this machine allows none."""
    for way in (UNSHARE, UNSHARE_AS_USER):
        with contextlib.suppress(OSError):
            tried = subprocess.run([*way, "sh", "-c", _TRIAL], capture_output=True, check=False)
            if tried.returncode == 0:
                return way
    return None


def name_of(number: int) -> str:
    return f"h{number}.{ZONE}"


def address_of(number: int) -> str:
    return f"20.1.{number // 250}.{number % 250 + 1}"


# --- names ----------------------------------------------------------------------------------


class Mood(StrEnum):
    """How the DNS server answers."""

    WELL = "well"
    DEAD = "dead"
    SERVFAIL = "servfail"
    NXDOMAIN = "nxdomain"


class Names(asyncio.DatagramProtocol):
    """A DNS server for ``h<number>`` in one zone; every host has one IPv4 address."""

    def __init__(self) -> None:
        self.mood = Mood.WELL
        self.asked = 0
        self.silent = 0  # questions that were not answered, well or not

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.asked += 1
        answer = dns_answer(data, self.mood)
        if answer is None:
            self.silent += 1
        else:
            self._transport.sendto(answer, addr)


def dns_answer(query: bytes, mood: Mood) -> bytes | None:
    """The response to one question, after RFC 1035."""
    if mood is Mood.DEAD:
        return None
    end = query.index(b"\0", 12) + 5  # the name, its type and its class
    question, kind = query[12:end], query[end - 4 : end - 2]
    label = query[13 : 13 + query[12]]
    if label.startswith(SILENT.encode()):
        return None
    answers, code = b"", {Mood.SERVFAIL: 2, Mood.NXDOMAIN: 3}.get(mood, 0)
    if code == 0 and kind == b"\0\1":
        number = int(label[1:])
        address = bytes(map(int, address_of(number).split(".")))
        answers = b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 0, 4) + address
    head = struct.pack(">HHHHH", 0x8180 | code, 1, bool(answers), 0, 0)
    return query[:2] + head + question + answers


# --- the far side ---------------------------------------------------------------------------


class FarSide:
    """A receiver in a process of its own (``far``), and orders to it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process, self.port = process, port
        self._telling = asyncio.Lock()  # One order at a time: responses have no number.

    async def tell(self, do: str, **more: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._telling:
            self._process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
            line = await self._process.stdout.readline()
        assert line, "the receiver is gone"
        return json.loads(line)


@contextlib.asynccontextmanager
async def far_side(
    host: str = "127.0.0.1", port: int = 0, *, before: tuple[str, ...] = ()
) -> AsyncIterator[tuple[FarSide, int]]:
    """Start the receiver; returns it with its process id."""
    process = await asyncio.create_subprocess_exec(
        *before,
        sys.executable,
        "-m",
        "security.far",
        host,
        str(port),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield FarSide(process, int(await process.stdout.readline())), process.pid
    finally:
        process.stdin.close()
        await process.wait()


# --- the island -----------------------------------------------------------------------------


class Island:
    """Names, the cable, and the receiver at its other end."""

    def __init__(self, names: Names, far: FarSide) -> None:
        self.names, self.far = names, far

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def route(self, *, there: bool) -> None:
        """Connect all receivers, or cut all off."""
        self.ip("route", "add" if there else "del", NETWORK, "via", FAR)


@contextlib.asynccontextmanager
async def island(folder: Path) -> AsyncIterator[Island]:
    """To be called in namespaces of one's own (``way_in``)."""
    resolv, switch = folder / "resolv.conf", folder / "nsswitch.conf"
    resolv.write_text(f"nameserver {RESOLVER}\n")
    switch.write_text("hosts: files dns\n")
    for mine, theirs in ((resolv, "/etc/resolv.conf"), (switch, "/etc/nsswitch.conf")):
        subprocess.run(["mount", "--bind", str(mine), theirs], check=True)
    loop = asyncio.get_running_loop()
    async with far_side("0.0.0.0", 80, before=("unshare", "--net")) as (far, pid):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        _, names = await loop.create_datagram_endpoint(Names, local_addr=(RESOLVER, 53))
        here = Island(names, far)
        here.ip("link", "add", "near", "type", "veth", "peer", "name", "far")
        here.ip("link", "set", "far", "netns", str(pid))
        here.ip("addr", "add", f"{NEAR}/24", "dev", "near")
        here.ip("link", "set", "near", "up")
        await far.tell("link", network=NETWORK, here=FAR)
        here.route(there=True)
        yield here
