"""Keys, chains, schemas, samples, text and streams at their limits: what they cost the server.

A tenant gives all that is dear to check, to compile or to show, and reads nothing of what it asked
for. A real server records each turn of its loop that took long (``stalls``), and the size of its
memory. Each kind has a broken build of its own, without its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric import rsa

from acceptance.running import KEY, Line, Reply, Server
from net.certificates import a_client_certificate
from net.heavy_chains import HeavyChain
from policy.test_certificates import self_signed
from policy.test_private_keys import DEAR
from security.no_limits import GONE
from security.part import Part, Toll, undisturbed
from security.stalls import WATCHED, judge, signed_in
from security.watched_loop import FILE

NO_LIMITS = ("-m", "security.no_limits")
TEXT_BYTES = 64 * 1024
STREAMS = 90
STREAM_EVENTS = 24
PAGE_BYTES_MAX = 1_000_000
GROWN_MAX_MIB = 160  # 90 streams that nobody reads; without their share it is 400 and more


@dataclass
class Tenant:
    """A tenant of a server, with its key, and what it has sent."""

    port: int
    cookie: bytes
    fired: list[tuple[float, str, int]] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    largest: int = 0  # page

    async def ask(self, kind: str, method: str, path: str, document: Any = None) -> Reply:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.fired.append((time.monotonic(), kind, len(body)))
        line = Line(self.port)
        try:
            got = await line.ask(method, path, body if document is not None else None)
        finally:
            line.close()
        self.statuses[f"{kind} {got.status}"] = self.statuses.get(f"{kind} {got.status}", 0) + 1
        return got

    async def pages(self, kind: str, path: str) -> None:
        """Look at a page of the dashboard a few times."""
        for _ in range(5):
            self.largest = max(self.largest, await self._page(kind, path))

    async def _page(self, kind: str, path: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        sent = head.encode() + b"cookie: " + self.cookie + b"\r\n\r\n"
        self.fired.append((time.monotonic(), kind, len(sent)))
        try:
            writer.write(sent)
            return len(await reader.read(-1))
        finally:
            writer.close()


Kind = Callable[[Tenant], Awaitable[None]]


async def keys(tenant: Tenant) -> None:
    """Keys that are dear to check, at the door; one at the limit is used by a template."""
    certificate, _ = a_client_certificate()
    for key in DEAR.values():
        own = {"client_certificate": certificate, "client_key": key}
        given = {"url": "https://localhost:1/", "types": ["none"], **own}
        got = await tenant.ask("keys", "POST", "/v1/subscriptions", given)
        assert got.status == 422, got.body
    certificate, key = self_signed(rsa.generate_private_key(65537, 4096))
    chain = HeavyChain.of(intermediates=1, constraints=0, names=1, host="localhost")
    async with _https(chain) as (port, seen):
        given = {
            "url": f"https://localhost:{port}/",
            "types": ["keys.used"],
            "client_certificate": certificate,
            "client_key": key,
            "ca_certificates": chain.root,
        }
        got = await tenant.ask("keys", "POST", "/v1/subscriptions", given)
        assert got.status == 201, got.body
        path = f"/v1/subscriptions/{got.json['id']}"
        for number in range(5):  # Each change needs a new template.
            await tenant.ask("keys", "PATCH", path, {"description": str(number)})
            await tenant.ask("keys", "POST", "/v1/events", {"type": "keys.used", "data": 1})
            await asyncio.sleep(0.1)
        assert seen, "the receiver was not reached"


async def chains(tenant: Tenant) -> None:
    """Receivers below authorities of the tenant: heavy ones, and one that is within the limits."""
    heavy = ((16, 500, 2_000), (4, 400, 2_000), (3, 100, 300))
    for number, (intermediates, constraints, names) in enumerate(heavy):
        chain = HeavyChain.of(
            intermediates=intermediates, constraints=constraints, names=names, host="localhost"
        )
        async with _https(chain) as (port, seen):
            kind = f"chains.{number}"
            given = {
                "url": f"https://localhost:{port}/",
                "types": [kind],
                "ca_certificates": chain.root,
            }
            got = await tenant.ask("chains", "POST", "/v1/subscriptions", given)
            assert got.status == 201, got.body
            for _ in range(3):
                await tenant.ask("chains", "POST", "/v1/events", {"type": kind, "data": 1})
                await asyncio.sleep(0.3)
            assert seen, "the receiver was not reached"
    many = HeavyChain.of(intermediates=8, constraints=500, names=1)
    own = "".join((many.root, *many.intermediates))
    given = {"url": "https://localhost:1/", "types": ["none"], "ca_certificates": own}
    got = await tenant.ask("chains", "POST", "/v1/subscriptions", given)
    assert got.status in {201, 422}, got.body


@contextlib.asynccontextmanager
async def _https(chain: HeavyChain) -> AsyncIterator[tuple[int, list[int]]]:
    """The port of a receiver that presents the chain, and a number for each of its connections."""
    seen: list[int] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    def accept() -> asyncio.StreamReaderProtocol:
        seen.append(len(seen))
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), respond)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # Handshakes are broken off.
    server = await loop.create_server(accept, "127.0.0.1", 0, ssl=chain.server())
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()


def _patterns(make: Callable[[int], str], count: int) -> dict[str, Any]:
    return {"properties": {f"p{number}": {"pattern": make(number)} for number in range(count)}}


async def _describe(tenant: Tenant, kind: str, name: str, **given: Any) -> int:
    return (await tenant.ask(kind, "POST", "/v1/event-types", {"name": name, **given})).status


async def schemas(tenant: Tenant) -> None:
    """Schemas that take long to compile; and many at the limit, stored and used at once."""
    dear = (
        _patterns(lambda number: f"(a|b{number})", 1_800),
        _patterns(lambda number: r"\s{0}" * 38 + str(number), 300),
        _patterns(lambda number: r"(?i)" + r"\p{Any}{0}" * 17 + str(number), 4),
    )
    for number, schema in enumerate(dear):
        await _describe(tenant, "schemas", f"dear.{number}", schema=schema)
    usual = _patterns(lambda number: rf"^[0-9a-f]{{{number + 1}}}-\w+@example\.com$", 55)
    names = [f"usual.{number}" for number in range(30)]
    made = await asyncio.gather(*(_describe(tenant, "schemas", it, schema=usual) for it in names))
    assert made == [201] * 30, made
    batch = [{"type": it, "data": {"p0": "a"}} for it in names for _ in range(10)]
    got = await tenant.ask("schemas", "POST", "/v1/events", batch)
    assert got.status == 202, got.body


async def patterns(tenant: Tenant) -> None:
    """A pattern that can be read in many ways."""
    schema = {"pattern": "^" + "[^a]" * 23 + "("}
    assert await _describe(tenant, "patterns", "a.b", schema=schema) == 422


async def samples(tenant: Tenant) -> None:
    """A nested sample, and its page."""
    levels = 99
    data = "[" * levels + ",".join(["0"] * ((TEXT_BYTES - 2 * levels) // 2)) + "]" * levels
    body = b'{"name":"a.sample","sample":%b}' % data.encode()
    got = await tenant.ask("samples", "POST", "/v1/event-types", body)
    assert got.status == 201, got.body
    await tenant.pages("samples", "/event-types/default/a.sample")


async def text(tenant: Tenant) -> None:
    """Data of hidden characters, and its page."""
    data = "\xad" * (TEXT_BYTES // 2 - 10)
    body = json.dumps({"type": "a.b", "id": "hidden", "data": data}, ensure_ascii=False).encode()
    got = await tenant.ask("text", "POST", "/v1/events", body)
    assert got.status == 202, got.body
    await tenant.pages("text", f"/events/default/{quote('hidden')}")


ONCE = (schemas, samples, text)  # What they make is there in the second round.
KINDS: dict[str, Kind] = {
    it.__name__: it for it in (keys, chains, schemas, patterns, samples, text)
}


def at_limit_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#hostile-input, of what tenants give and show."""
    del seed
    rounds = 1 if quick else 5
    return [
        Part(
            "stalls at the limits",
            lambda at: stalls(at, rounds=rounds),
            every_broken_build,
        ),
        Part(
            "streams that nobody reads",
            unread,
            lambda at: unread(at, argv=NO_LIMITS, gone="streams"),
        ),
    ]


async def stalls(
    folder: Path, *, rounds: int = 1, argv: tuple[str, ...] = WATCHED, gone: str = ""
) -> Toll:
    """All kinds one after the other, or only the one whose limit is gone."""
    toll, file = Toll(), folder / "stalls"
    file.touch()
    environ = {FILE: str(file), GONE: gone, "HOMING_PUBLISH_PER_SECOND": "0"}
    with undisturbed(toll):
        server = Server(folder / "data", argv=argv, environ=environ)
        await server.start()
        tenant = Tenant(server.port, (await signed_in(server.port))[0])
        try:
            for number in range(rounds):
                for name, kind in KINDS.items():
                    if gone in {"", name} and (number == 0 or kind not in ONCE):
                        await kind(tenant)
            await asyncio.sleep(0.1)
        finally:
            await server.terminate()
    toll.fired = len(tenant.fired)
    judge(toll, file, tenant.fired)
    if tenant.largest > PAGE_BYTES_MAX:
        toll.blame(f"a page of {tenant.largest:,} bytes for {TEXT_BYTES:,} bytes of text")
    toll.figures |= {"largest_page_kb": tenant.largest // 1000, "status": tenant.statuses}
    return toll


async def every_broken_build(folder: Path) -> Toll:
    """Each limit is gone once; all of them must be found."""
    toll, found = Toll(), []
    for gone in KINDS:
        (at := folder / gone).mkdir()
        broken = await stalls(at, argv=NO_LIMITS, gone=gone)
        toll.fired += broken.fired
        found += [gone] if broken.bad else []
        toll.figures[gone] = f"{broken.figures['longest_stall_ms']} ms"
    toll.figures["found"] = f"{len(found)} of {len(KINDS)}"
    if len(found) == len(KINDS):
        toll.blame("each was found")
    return toll


async def unread(folder: Path, *, argv: tuple[str, ...] = WATCHED, gone: str = "") -> Toll:
    """How much the server grows while streams of one tenant are not read; another one reads."""
    toll, file = Toll(), folder / "stalls"
    file.touch()
    server = Server(folder / "data", argv=argv, environ={FILE: str(file), GONE: gone})
    await server.start()
    open_streams: list[asyncio.StreamWriter] = []
    try:
        line, ids = server.line(), {}
        for name in ("greedy", "other"):
            made = await line.ask("POST", "/v1/subscriptions", {"tenant": name, "types": ["*"]})
            ids[name] = made.json["id"]
            for _ in range(STREAM_EVENTS if name == "greedy" else 1):
                event = {"tenant": name, "type": "a.b", "data": "x" * 1_000_000}
                assert (await line.ask("POST", "/v1/events", event)).status == 202
        before = _resident_mib(server)
        for _ in range(STREAMS):
            open_streams.append(await _open_stream(server.port, ids["greedy"]))
            await asyncio.sleep(0.02)
        most = 0
        for _ in range(30):
            most = max(most, _resident_mib(server) - before)
            await asyncio.sleep(0.1)
        got = await line.ask("GET", f"/v1/subscriptions/{ids['other']}/events")
        toll.fired = STREAMS
        toll.figures |= {"streams": STREAMS, "grown_mib": most, "other": got.status}
        if most > GROWN_MAX_MIB:
            toll.blame(f"{STREAMS} streams that nobody reads hold {most} MiB")
        if got.status != 200 or len(got.json["events"]) != 1:
            toll.blame(f"the other tenant got {got.status}")
    finally:
        for writer in open_streams:
            writer.transport.abort()
        server.kill()
        await server.gone()
    return toll


async def _open_stream(port: int, subscription: str) -> asyncio.StreamWriter:
    """A stream of which nothing is read."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    head = (
        f"GET /v1/subscriptions/{subscription}/stream HTTP/1.1\r\nhost: localhost\r\n"
        f"authorization: Bearer {KEY}\r\n\r\n"
    )
    writer.write(head.encode())
    return writer


def _resident_mib(server: Server) -> int:
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
