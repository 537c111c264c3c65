"""Part i: what it costs to write the headers of a request with each kind of signature."""

from __future__ import annotations

import time
from statistics import median

from bench import letter
from homing.engine.attempt import RequestTemplate
from homing.model import Delivery, Event, Secret, Signature, Subscription, Work
from homing.policy.signature import TenantSigner, new_private_key

_CALLS = 2_000
_REPETITIONS = 7


def _template(signature: Signature, keys: int) -> RequestTemplate:
    subscription = Subscription(
        id=1,
        tenant=letter.TENANT,
        endpoint_id=1,
        url=letter.url(1, 0),
        types=("*",),
        signature=signature,
        secrets=(Secret(letter.SECRET),),
        created_at=0,
        updated_at=0,
        version=1,
    )
    signer = TenantSigner([Secret(new_private_key(bytes([n]) * 32)) for n in range(keys)])
    return RequestTemplate(subscription, deadline_ms=5_000, signer_of=lambda _tenant: signer)


def _work() -> Work:
    event = Event(1, letter.TENANT, "e", "bench.t00", "2030-01-01T00:00:00Z", 1, letter.body())
    return Work(Delivery(2, 0, letter.TENANT, 1, 1, 1, 2, 1, 1, 9), event)


def measure() -> dict[str, float]:
    """For one secret, one key, both, and both during the rotation of a key."""
    kinds = {
        "a request signed with hmac": (Signature.HMAC, 1),
        "a request signed with ed25519": (Signature.ED25519, 1),
        "a request signed with both": (Signature.BOTH, 1),
        "a request signed with both, while a key is rotated": (Signature.BOTH, 2),
    }
    work = _work()
    costs = {}
    for name, (kind, keys) in kinds.items():
        template, times = _template(kind, keys), []
        for _ in range(_REPETITIONS):
            began = time.perf_counter()
            for _ in range(_CALLS):
                template.write(work, number=1, now=0, wall=0)
            times.append((time.perf_counter() - began) / _CALLS * 1e6)
        costs[name] = median(times)
    return costs
