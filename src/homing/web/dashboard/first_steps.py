"""The first steps of an empty installation: a receiver, a test event, and the request it got.

They are shown on the overview until the tenant has a subscription of its own. The built-in receiver
keeps nothing: the request is shown from the log of attempts, and the receiver's response says how
many bytes it got, and their hash.
"""

from __future__ import annotations

import hashlib
import shlex

from msgspec import Struct

from homing.app.access import ADMINS
from homing.errors import Gone, NotFound
from homing.model import Attempt, Subscription, show_id
from homing.policy.sent_request import SentRequest
from homing.ports import DeliveryFilter
from homing.web.dashboard.request import PageRequest, is_secure
from homing.web.show import DELIVERY

FEW = 50  # deliveries: a tenant with more has taken its first steps
EVENT_TYPE = "test.hello"


class Received(Struct, frozen=True):
    """The latest request to the built-in receiver."""

    delivery: str  # its id
    attempt: Attempt
    sent: SentRequest | None
    is_same: bool  # the receiver got exactly the bytes that were sent


class Steps(Struct, frozen=True):
    """How far the first steps have come."""

    tenant: str
    subscription: Subscription | None  # to the built-in receiver
    waits: bool  # a test event is on its way
    received: Received | None
    flags: str  # of commands that are pasted on the machine of the server


async def first_steps(request: PageRequest, accepted: int) -> Steps | None:
    """The first steps of the caller's tenant; None if they are over, or cannot be taken."""
    app, caller = request.app, request.caller
    if accepted > FEW or not app.built_in_receiver.available:
        return None
    tenant = caller.tenant_or_default(request.query.tenant())
    try:
        found = await app.built_in_receiver.only_subscription(caller, tenant=tenant)
    except NotFound:
        return None
    if found is None:
        return Steps(tenant, None, waits=False, received=None, flags=command_flags(request))
    rows, _ = await app.deliveries.page(
        caller,
        DeliveryFilter(tenant=tenant, subscription_id=found.id),
        before_id=None,
        limit=1,
    )
    received = await _received(request, rows[0].delivery.id) if rows else None
    return Steps(
        tenant,
        found,
        waits=bool(rows) and received is None,
        received=received,
        flags=command_flags(request),
    )


async def _received(request: PageRequest, delivery_id: int) -> Received | None:
    described = await request.app.deliveries.get(request.caller, delivery_id)
    if not described.attempts:
        return None
    attempt = described.attempts[-1]
    try:
        sent = await request.app.deliveries.sent_request(
            request.caller, delivery_id, attempt.number
        )
    except (Gone, NotFound):
        return Received(show_id(DELIVERY, delivery_id), attempt, None, is_same=False)
    digest = hashlib.sha256(sent.body).hexdigest().encode()
    is_same = b"received-sha256: " + digest in attempt.response_headers.lower()
    return Received(show_id(DELIVERY, delivery_id), attempt, sent, is_same)


def command_flags(request: PageRequest) -> str:
    """``--server`` and, for the operator, ``--key`` with the file that has the admin key."""
    host = request.headers.get(b"host", b"").decode("latin-1")
    scheme = "https" if is_secure(request.headers) else "http"
    flags = f"--server {shlex.quote(f'{scheme}://{host}')}"
    if request.caller.may(ADMINS) and request.app.key_file:
        flags += f' --key "$(cat {shlex.quote(request.app.key_file)})"'
    return flags
