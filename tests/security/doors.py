"""The long tests of all entrances: addresses, rebinding, JSON, framing, schemas, certificates."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Any

from homing.errors import HomingError
from homing.model import Failure
from homing.net import dial
from homing.net.resolver import Address, Resolver
from homing.net.sender import HttpSender, SenderOptions
from homing.net.tls import BoundedContext, client_context
from homing.net.trouble import Trouble
from homing.policy.reach import Reach
from homing.testing import KEY, running_server
from homing.web.api.publish import read_drafts
from net.receiver import Call, a_request, a_target, ask, ask_all, names, receiver, say_ok
from net.zoo import BAD, GOOD, Zoo
from policy.test_reach import hiding_places, target
from security.framing import ATTACKS, HEAD, Attack, smuggled
from security.framing import GOOD as GOOD_BODY
from security.fuzzing import fuzz
from security.part import Part, Toll
from security.served import served
from security.test_json import KEPT, REFUSED

BLOCKS = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "203.0.113.0/24",
    "224.0.0.0/3",
)
PUBLIC = "93.184.216.34"
OPEN = Reach(loopback=True, metadata=True, networks=(ip_network("0.0.0.0/0"), ip_network("::/0")))


def door_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#hostile-input, of addresses, JSON, framing and TLS."""
    less = 10 if quick else 1
    return [
        Part(
            "forbidden addresses",
            lambda _: addresses(Reach(), count=200_000 // less, seed=seed),
            lambda _: addresses(OPEN, count=1_000, seed=seed),
        ),
        Part(
            "DNS rebinding",
            lambda _: rebinding(Reach(), count=20_000 // less, seed=seed),
            lambda _: rebinding(OPEN, count=200, seed=seed),
        ),
        Part(
            "hostile JSON",
            lambda _: texts(_read, count=100_000 // less, seed=seed),
            lambda _: texts(_lenient, count=1_000, seed=seed),
        ),
        Part(
            "framing attacks",
            lambda _: framing(ATTACKS, rounds=10 // less or 1, seed=seed),
            lambda _: framing([_plain()], rounds=1, seed=seed),
        ),
        Part(
            "schemathesis",
            lambda _: schemas(examples=100 // less, seed=seed),
            None,
            "a response is judged by what is written down",
        ),
        Part(
            "bad certificates",
            lambda at: certificates(at, trusting=False),
            lambda at: certificates(at, trusting=True),
        ),
    ]


async def addresses(reach: Reach, *, count: int, seed: int) -> Toll:
    """Forbidden addresses in every form, at creation and before a connection."""
    toll, rng = Toll(), random.Random(seed)
    blocks = [ip_network(text) for text in BLOCKS]
    for _ in range(count):
        block = rng.choice(blocks)
        inner = IPv4Address(int(block[0]) + rng.randrange(block.num_addresses))
        found = rng.choice([inner, *hiding_places(inner)])
        toll.fired += 1
        if not reach.forbids(target("a.example"), [PUBLIC, str(found)]):
            toll.blame(f"{found} for {inner} would be dialled")
        if not reach.refuses(target(str(found))):
            toll.blame(f"{found} for {inner} gets through the door")
    return toll


async def rebinding(reach: Reach, *, count: int, seed: int) -> Toll:
    """Names whose addresses change; a hook instead of ``connect`` counts and refuses."""
    toll, rng = Toll(), random.Random(seed)
    looked_up, dialled = 0, []

    def getaddrinfo(_host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        nonlocal looked_up
        looked_up += 1
        inner = rng.choice([PUBLIC, "127.0.0.1", "10.0.0.1", "169.254.169.254"])
        return [(socket.AF_INET, 1, 6, "", (inner, port))]

    async def connect(
        address: Address, share_s: float | None, sources: Mapping[int, str]
    ) -> socket.socket | Trouble:
        dialled.append(address.ip)
        return Trouble(Failure.REFUSED, "connection refused")

    real = dial._connect_to
    dial._connect_to = connect
    try:
        sender = HttpSender(SenderOptions(reach=reach), resolver=Resolver(getaddrinfo=getaddrinfo))
        for begin in range(0, count, 100):
            requests = [a_request(a_target(443, host=f"n{begin + n}.example")) for n in range(100)]
            toll.fired += len(await ask_all(sender, requests))
        await sender.close()
    finally:
        dial._connect_to = real
    toll.figures = {"look_ups": looked_up, "public_connects": dialled.count(PUBLIC)}
    for ip in dialled:
        if ip != PUBLIC:
            toll.blame(f"{ip} was dialled")
    if looked_up != toll.fired:
        toll.blame(f"{looked_up} look-ups for {toll.fired} connections")
    return toll


# --- what we read ---------------------------------------------------------------------------


def _read(text: bytes) -> bytes:
    (draft,) = read_drafts(b'{"type":"a","data":' + text + b"}", "default", lines=False)
    return draft.data


def _lenient(text: bytes) -> bytes:
    return json.dumps(json.loads(text)).encode()


def _is_json(text: bytes) -> bool:
    """An independent judge: the standard library, made strict after RFC 8259."""

    def refuse(_: str) -> None:
        raise ValueError

    try:
        value = json.loads(text.decode(), parse_constant=refuse, parse_int=len, parse_float=len)
        json.dumps(value, ensure_ascii=False).encode()  # Half a surrogate pair cannot be written.
    except (ValueError, RecursionError):
        return False
    return True


async def texts(read: Callable[[bytes], bytes], *, count: int, seed: int) -> Toll:
    """Good and bad texts, and the same with some bytes changed."""
    toll, rng = Toll(), random.Random(seed)
    small = [text for text in (*KEPT, *REFUSED) if len(text) < 200]
    taken = 0
    for _ in range(count):
        text = bytearray(rng.choice(small))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(text) + 1)
            text[at : at + rng.randrange(2)] = rng.choice(
                (b"", b'"', b"\\", b",", b"[", b"}", b"0", b"e", b"\x00", b"\xff", b"\xed\xa0\x80")
            )
        whole = bytes(text)
        toll.fired += 1
        try:
            out = read(whole)
        except (HomingError, ValueError, RecursionError):
            continue
        taken += 1
        if not _is_json(whole):
            if b'"data":' not in whole and not _closes(whole):
                toll.blame(f"taken, and it is not JSON: {whole!r}")
        elif out.strip(b" \t\r\n") != whole.strip(b" \t\r\n"):
            toll.blame(f"changed: {whole!r} to {out!r}")
    toll.figures = {"taken": taken}
    return toll


def _closes(text: bytes) -> bool:
    """It ends the envelope by itself (``1,"data":2``): the whole is JSON, the part is not."""
    return _is_json(b'{"type":"a","data":' + text + b"}")


def _plain() -> Attack:
    return Attack("plain", HEAD + b"content-length: %d\r\n\r\n" % len(GOOD_BODY) + GOOD_BODY)


async def framing(attacks: list[Attack], *, rounds: int, seed: int) -> Toll:
    """Every attack, cut into segments at random."""
    toll, rng = Toll(), random.Random(seed)
    async with served() as at:
        for turn in range(rounds):
            for attack in attacks:
                event = f"{attack.name}-{turn}"
                sent = attack.sent + smuggled(event)
                async with at.line() as (reader, writer):
                    cut = rng.randrange(1, len(attack.sent))
                    got = b""
                    try:
                        writer.write(sent[:cut])
                        await writer.drain()
                        await asyncio.sleep(0)
                        writer.write(sent[cut:])
                        async with asyncio.timeout(3):
                            while data := await reader.read(65536):
                                got += data
                    except (ConnectionError, TimeoutError):
                        pass
                toll.fired += 1
                path = f"GET /v1/events/{event} HTTP/1.1\r\nconnection: close\r\n".encode()
                codes, _, _ = await at.say(path + HEAD.partition(b"\r\n")[2] + b"\r\n")
                if codes != [404] or got.count(b"HTTP/1.1 ") > 1:
                    toll.blame(f"{event}: smuggled {codes}, {got[:80]!r}")
    return toll


async def schemas(*, examples: int, seed: int) -> Toll:
    """Call every operation with input that its schema allows and forbids."""

    def walk() -> Toll:
        with running_server() as server:
            tally = fuzz(server.url, KEY, examples=examples, number=seed)
        codes = dict(sorted(tally.codes.items()))
        figures = {"operations": len(tally.operations), "codes": codes}
        return Toll(tally.cases, len(tally.wrong), figures, tally.wrong[:5])

    return await asyncio.to_thread(walk)


# --- whom we send to ------------------------------------------------------------------------


def _trusts_all() -> BoundedContext:
    context = client_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def certificates(folder: Path, *, trusting: bool) -> Toll:
    """No byte of a request reaches a bad peer; every good one is delivered to."""
    toll, zoo, good = Toll(), Zoo(folder), 0
    sender = HttpSender(
        SenderOptions(reach=Reach(loopback=True), ca_file=str(zoo.ca_file)),
        resolver=Resolver(getaddrinfo=names(hook_test="127.0.0.1")),
        tls_context=_trusts_all if trusting else None,
    )

    async def listen(call: Call) -> None:
        await call.gone()

    for case in BAD:
        async with receiver(listen, tls=zoo.bad_peer(case)) as peer:
            url = a_target(peer.port, scheme="https", host="hook.test")
            response = await ask(
                sender, a_request(url, deadline_ms=2_000, body=b"for the right one")
            )
        toll.fired += 1
        got = sum(len(call.got) for call in peer.calls)
        if got or response.code is not None:
            toll.blame(f"{case}: {got} bytes, {response.code}")
    for case in GOOD:
        async with receiver(say_ok, tls=zoo.good_peer(case)) as peer:
            url = a_target(peer.port, scheme="https", host="hook.test")
            good += (await ask(sender, a_request(url))).code == 200
    await sender.close()
    toll.figures = {"good": f"{good}/{len(GOOD)}"}
    if good < len(GOOD):
        toll.blame("a good peer was refused")
    return toll
