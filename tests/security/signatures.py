"""Scoreboard 25: signatures as foreign libraries judge them, many of them, and under rotation.

Requests are written by the engine's own ``RequestTemplate``, in several formats, with one to three
secrets, and half of them with signing keys. ``standardwebhooks`` and ``svix`` must accept each with
every secret, and refuse it with a byte changed, another id, another time or another secret. Some of
the Ed25519 signatures are judged by an implementation of RFC 8032 in plain integers, which is slow.
Then a real server rotates a secret again and again while events flow.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from homing.engine.attempt import RequestTemplate
from homing.model import Delivery, Event, Format, Secret, Signature, Subscription, Work
from homing.policy.signature import TenantSigner, new_private_key
from net.receiver import OK, Call
from referee import accepted_by_both, accepted_v1a
from security.part import Part, Toll
from security.receivers import House, house, listening, until

FORMATS = (Format.STANDARD, Format.RAW, Format.CLOUDEVENTS)
AT_ONCE = 2_000  # judged in one call of a worker
CHANGES = 4  # ways to forge
SLOW_EVERY = 100  # one of so many requests has its Ed25519 signatures judged


def signature_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#attempts, of signatures."""
    count = 20_000 if quick else 1_000_000
    return [
        Part(
            "signatures judged by others",
            lambda _: judged(count, seed=seed, write=RequestTemplate.write),
            lambda _: judged(AT_ONCE, seed=seed, write=stale_body),
        ),
        Part(
            "secrets rotated under load",
            lambda at: rotation(at, rotations=5 if quick else 40, events=100),
            lambda at: rotation(at, rotations=2, events=50, overlap_ms=0),
        ),
    ]


def _secret(rng: random.Random) -> str:
    return "whsec_" + base64.b64encode(rng.randbytes(rng.randrange(24, 65))).decode()


def _subscription(rng: random.Random, secrets: int) -> Subscription:
    return Subscription(
        id=1,
        tenant="default",
        endpoint_id=1,
        url="https://receiver.example/hook",
        types=("*",),
        format=rng.choice(FORMATS),
        signature=rng.choice((Signature.HMAC, Signature.BOTH)),
        secrets=tuple(Secret(_secret(rng)) for _ in range(secrets)),
        created_at=0,
        updated_at=0,
        version=1,
    )


def _work(rng: random.Random, number: int) -> Work:
    text = "".join(rng.choices("aé€😀 .", k=rng.randrange(40)))
    data = b'{"n":%d,"t":"%b"}' % (number, text.encode())
    event = Event(
        id=number, tenant="default", key=f"e{number}", type="a.b",
        time="2026-01-01T00:00:00Z", accepted_at=1, data=data,
    )  # fmt: skip
    delivery = Delivery(
        id=number + 1, bucket=0, tenant="default", endpoint_id=1, subscription_id=1,
        event_id=number, root_id=rng.choice((number + 1, number + 7)),
        accepted_at=1, due_at=1, expires_at=9,
    )  # fmt: skip
    return Work(delivery, event)


Write = Callable[..., tuple[Any, bytes]]


def stale_body(
    template: RequestTemplate, work: Work, *, number: int, now: int, wall: int
) -> tuple[Any, bytes]:
    """A deliberately broken template: it signs one text and sends another."""
    request, lines = RequestTemplate.write(template, work, number=number, now=now, wall=wall)
    return replace(request, body=request.body + b" "), lines


def _forged(
    rng: random.Random, headers: dict[str, str], body: bytes, secret: str
) -> tuple[dict[str, str], bytes, str]:
    match rng.randrange(CHANGES):
        case 0:
            return headers, body[:-1] + b"]", secret
        case 1:
            return {**headers, "webhook-id": headers["webhook-id"] + "0"}, body, secret
        case 2:
            later = str(int(headers["webhook-timestamp"]) + 1)
            return {**headers, "webhook-timestamp": later}, body, secret
        case _:
            return headers, body, _secret(rng)


def judge_some(seed: int, count: int, write: Write) -> Counter[str]:
    """Check one portion, in any process."""
    rng, found = random.Random(seed), Counter[str]()
    now = int(time.time() * 1000)
    for n in range(count):
        if n % 50 == 0:
            subscription = _subscription(rng, rng.choice((1, 1, 2, 3)))
            signer = TenantSigner(
                [Secret(new_private_key(rng.randbytes(32))) for _ in range(rng.choice((1, 2)))]
            )
            signers = {subscription.tenant: signer}
            template = RequestTemplate(subscription, deadline_ms=5_000, signer_of=signers.get)
        work = _work(rng, (seed << 20) + 10 * n)
        request, _ = write(template, work, number=1, now=now, wall=now)
        head = request.header_block.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head if line)
        for secret in subscription.secrets:
            found["signed"] += 1
            if not accepted_by_both(headers, request.body, secret.value):
                found["unverifiable"] += 1
        if n % SLOW_EVERY == 0 and subscription.signature is Signature.BOTH:
            found += _judge_v1a(rng, headers, request.body, signer)
        forged = _forged(rng, headers, request.body, subscription.secrets[0].value)
        found["forged"] += 1
        found["forgeries accepted"] += accepted_by_both(*forged)
    return found


def _judge_v1a(
    rng: random.Random, headers: dict[str, str], body: bytes, signer: TenantSigner
) -> Counter[str]:
    """Every key of the tenant verifies the request, and none of them a forgery."""
    found = Counter[str]()
    for key in signer.public_keys:
        found["signed"] += 1
        found["unverifiable"] += not accepted_v1a(headers, body, key.value)
        others, content, _ = _forged(rng, headers, body + b"]", "")
        found["forged"] += 1
        found["forgeries accepted"] += accepted_v1a(others, content, key.value)
    return found


async def judged(count: int, *, seed: int, write: Write) -> Toll:
    """Check at least so many signatures, on all cores."""
    toll, found = Toll(), Counter[str]()
    loop = asyncio.get_running_loop()
    portions = max(count // AT_ONCE, 1)
    with ProcessPoolExecutor(os.cpu_count(), initializer=partial(os.nice, 10)) as pool:
        asked = [
            loop.run_in_executor(pool, judge_some, seed * 100_000 + n, AT_ONCE, write)
            for n in range(portions)
        ]
        for one in asked:
            found += await one
            if found["signed"] >= count:
                break
        for one in asked:
            one.cancel()
    toll.fired = found["signed"]
    toll.figures = {
        "unverifiable": found["unverifiable"],
        "forged": found["forged"],
        "forgeries_accepted": found["forgeries accepted"],
    }
    for name in ("unverifiable", "forgeries accepted"):
        if found[name]:
            toll.blame(f"{found[name]} {name}")
    return toll


# --- rotation -------------------------------------------------------------------------------


async def rotation(folder: Path, *, rotations: int, events: int, overlap_ms: int = 60_000) -> Toll:
    """A receiver that learns each new secret one rotation late still verifies everything."""
    toll, got = Toll(), list[tuple[dict[str, str], bytes]]()

    async def keep(call: Call) -> None:
        while request := await call.request():
            head, _, body = request.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")[1:]
            got.append((dict(line.split(": ", 1) for line in lines), body))
            call.writer.write(OK)

    async with house(folder) as home, listening(keep) as url:
        made = await home.ask("POST", "/v1/subscriptions", {"url": url, "types": ["*"]})
        late = made.json["secret"]  # what the receiver knows
        place = f"/v1/subscriptions/{made.json['id']}/secret/rotate"
        for _ in range(rotations):
            flowing = asyncio.create_task(_flow(home, events))
            turned = await home.ask("POST", place, {"overlap_ms": overlap_ms})
            assert turned.status == 200, turned.body
            await flowing
            await until(lambda: len(got) >= events)
            for headers, body in got:
                toll.fired += 1
                if not accepted_by_both(headers, body, late):
                    toll.blame(f"{headers['webhook-id']} is not verified by the secret before")
            got.clear()
            late = turned.json["secret"]
    toll.figures = {"rotations": rotations}
    return toll


async def _flow(home: House, events: int) -> None:
    for _ in range(events // 10):
        await home.publish("a", 10)
