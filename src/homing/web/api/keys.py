"""API keys: create, list and revoke."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from homing.app.keys import Keys
from homing.errors import BadRequest, Conflict, Invalid, NotFound, StoreUnavailable
from homing.model import show_id
from homing.policy.keys import ApiKey, Role
from homing.web.operation import PAGE, TENANT, Call, Operation
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import Cursor, Time, silent
from homing.web.show import time_or_none, time_text

KEY = "key"


class KeyIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to create."""

    name: Annotated[str, Meta(description="What the key is for: 1 to 100 printable characters.")]
    role: Role
    tenant: Annotated[
        str | None, Meta(description="Its tenant; default: `default`. An admin key has none.")
    ] = None
    expires: Annotated[
        str | None, Meta(description="RFC 3339, or a duration from now like 90d; default: never.")
    ] = None


class KeyView(Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: str
    name: str
    role: Role
    tenant: str | None
    prefix: Annotated[str, Meta(description="The key begins with hk_ and this text.")]
    created_at: Time
    expires_at: Time | None
    last_used_at: Annotated[Time | None, Meta(description="To the minute.")]
    revoked_at: Time | None


class KeyCreated(KeyView, frozen=True, kw_only=True):
    """A new key with its secret, which is never shown again."""

    key: str
    __repr__ = silent


class KeyPage(Struct, frozen=True):
    """Newest first, including revoked keys."""

    items: list[KeyView]
    next_cursor: Cursor


async def create(call: Call) -> Response:
    given = call.content(KeyIn)
    key, text = await call.app.keys.create(
        call.caller, given.name, given.role, tenant=given.tenant, expires=given.expires
    )
    return json_response(KeyCreated(**asdict(_view(key)), key=text), status=201)


async def list_keys(call: Call) -> Response:
    query = call.query
    found, after = await call.app.keys.page(
        call.caller, tenant=query.tenant(), before_id=query.cursor(), limit=query.limit()
    )
    return json_response(KeyPage([_view(key) for key in found], show_cursor(after)))


async def revoke(call: Call) -> Response:
    await call.app.keys.revoke(call.caller, call.number(KEY))
    return Response(204)


def _view(key: ApiKey) -> KeyView:
    return KeyView(
        id=show_id(KEY, key.id),
        name=key.name,
        role=key.role,
        tenant=key.tenant,
        prefix=key.prefix,
        created_at=time_text(key.created_at),
        expires_at=time_or_none(key.expires_at),
        last_used_at=time_or_none(key.last_used_at),
        revoked_at=time_or_none(key.revoked_at),
    )


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/keys",
        id="createKey",
        use_case=Keys.create,
        summary="Create a key; it is shown in this response and never again.",
        handler=create,
        status=201,
        request=KeyIn,
        response=KeyCreated,
        errors=(BadRequest, Conflict, Invalid, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/keys",
        id="listKeys",
        use_case=Keys.page,
        summary="Keys without their secrets, newest first, including revoked keys.",
        handler=list_keys,
        response=KeyPage,
        params=(TENANT, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="DELETE",
        path="/v1/keys/{id}",
        id="revokeKey",
        use_case=Keys.revoke,
        summary="Revoke a key: it stops working at once, on other processes within a second.",
        handler=revoke,
        status=204,
        errors=(NotFound, StoreUnavailable),
    ),
)
