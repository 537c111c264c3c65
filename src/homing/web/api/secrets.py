"""Rotates the signing secret of a subscription."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from homing.app.subscriptions import Subscriptions
from homing.errors import BadRequest, Conflict, Invalid, NotFound, StoreUnavailable
from homing.policy.rotation import OVERLAP_MS, OVERLAP_MS_MAX
from homing.web.operation import Call, Operation
from homing.web.response import Response, json_response
from homing.web.schemas import SubscriptionView, silent
from homing.web.show import SUBSCRIPTION, subscription_view


class RotateIn(Struct, frozen=True, forbid_unknown_fields=True):
    """How to rotate; every field is optional."""

    secret: Annotated[
        str | None, Meta(description="whsec_ and base64 of 24 to 64 bytes; default: a new one.")
    ] = None
    overlap_ms: Annotated[
        int, Meta(description=f"How long the old secrets still sign, in ms: 0 to {OVERLAP_MS_MAX}.")
    ] = OVERLAP_MS
    __repr__ = silent


class SecretRotated(SubscriptionView, frozen=True, kw_only=True):
    """The subscription with its new secret, which is never shown again."""

    secret: str
    __repr__ = silent


async def rotate(call: Call) -> Response:
    given = call.content(RotateIn, empty=b"{}")
    after = await call.app.subscriptions.rotate(
        call.caller, call.number(SUBSCRIPTION), given.secret, overlap_ms=given.overlap_ms
    )
    view = subscription_view(after, call.app.signing_keys.published)
    return json_response(SecretRotated(**asdict(view), secret=after.secrets[0].value))


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/subscriptions/{id}/secret/rotate",
        id="rotateSecret",
        use_case=Subscriptions.rotate,
        summary="Sign with a new secret, and for a while with the old one as well.",
        handler=rotate,
        request=RotateIn,
        response=SecretRotated,
        errors=(BadRequest, Conflict, NotFound, Invalid, StoreUnavailable),
    ),
)
