"""Event types: describe, list, change and delete them, and export them as OpenAPI webhooks."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.json import encode

from homing.app.event_types import EventTypes
from homing.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StoreUnavailable,
    TooLarge,
)
from homing.policy.event_check_rules import Check
from homing.policy.event_types import EventType, TypePlace, TypeSummary
from homing.web.event_openapi import event_openapi
from homing.web.operation import PAGE, TENANT, TENANT_ONE, Call, Operation
from homing.web.query import show_place
from homing.web.response import Response, json_response
from homing.web.schemas import Cursor, Time
from homing.web.show import time_text

_NAME = Meta(description="The type of the events: of A-Z a-z 0-9 . _ -, 1 to 256 characters.")
_DESCRIPTION = Meta(description="When the event happens; at most 2,000 characters.")
_SCHEMA = Meta(
    description="A JSON Schema of the data (draft 2020-12, 2019-09 or 7), at most 64 KiB, whose"
    " references stay within it; null: none."
)
_SAMPLE = Meta(description="The data of such an event, at most 64 KiB; null: none.")
_CHECK = Meta(
    description="What happens to an event whose data does not match the schema; null: as the"
    " setting event_check says."
)


class EventTypeIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A type to describe."""

    name: Annotated[str, _NAME]
    description: Annotated[str, _DESCRIPTION] = ""
    schema: Annotated[Raw | UnsetType, _SCHEMA] = UNSET
    sample: Annotated[Raw | UnsetType, _SAMPLE] = UNSET
    check: Annotated[Check | None, _CHECK] = None
    tenant: Annotated[
        str | None, Meta(description="Its tenant; default: the key's tenant, or `default`.")
    ] = None


class EventTypePatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields to change."""

    description: Annotated[str | UnsetType, _DESCRIPTION] = UNSET
    schema: Annotated[Raw | UnsetType, _SCHEMA] = UNSET
    sample: Annotated[Raw | UnsetType, _SAMPLE] = UNSET
    check: Annotated[Check | UnsetType | None, _CHECK] = UNSET


class EventTypeView(Struct, frozen=True, kw_only=True):
    """A type with its schema and sample, as they were given."""

    name: str
    tenant: str
    description: str
    schema: Raw
    sample: Raw
    check: Annotated[Check | None, _CHECK]
    created_at: Time
    updated_at: Time


class EventTypeItem(Struct, frozen=True, kw_only=True):
    """A type without its schema and sample."""

    name: str
    tenant: str
    description: str
    has_schema: bool
    has_sample: bool
    check: Annotated[Check | None, _CHECK]
    updated_at: Time


class EventTypePage(Struct, frozen=True):
    """By tenant and name."""

    items: list[EventTypeItem]
    next_cursor: Cursor


class EventTypesDocument(Struct, frozen=True):
    """The types as an OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, Any]
    webhooks: dict[str, Any]
    components: dict[str, Any] | UnsetType = UNSET


def type_view(it: EventType) -> EventTypeView:
    return EventTypeView(
        name=it.name,
        tenant=it.tenant,
        description=it.description,
        schema=_raw(it.schema),
        sample=_raw(it.sample),
        check=it.check,
        created_at=time_text(it.created_at),
        updated_at=time_text(it.updated_at),
    )


def _raw(text: str) -> Raw:
    return Raw(text.encode() or b"null")


def type_item(it: TypeSummary) -> EventTypeItem:
    return EventTypeItem(
        name=it.name,
        tenant=it.tenant,
        description=it.description,
        has_schema=it.has_schema,
        has_sample=it.has_sample,
        check=it.check,
        updated_at=time_text(it.updated_at),
    )


def _text(value: Raw | UnsetType) -> str:
    """The JSON as it was given; empty for null."""
    text = "" if value is UNSET else bytes(value).decode().strip()
    return "" if text == "null" else text


async def create(call: Call) -> Response:
    given = call.content(EventTypeIn)
    draft = EventType(
        tenant="",
        name=given.name,
        description=given.description,
        schema=_text(given.schema),
        sample=_text(given.sample),
        check=given.check,
    )
    made = await call.app.event_types.create(call.caller, draft, tenant=given.tenant)
    return json_response(type_view(made), status=201)


async def list_types(call: Call) -> Response:
    query = call.query
    found, after = await call.app.event_types.page(
        call.caller, tenant=query.tenant(), after=query.place(TypePlace), limit=query.limit()
    )
    return json_response(EventTypePage([type_item(it) for it in found], show_place(after)))


async def get(call: Call) -> Response:
    found = await call.app.event_types.get(call.caller, call.key(), tenant=call.query.tenant())
    return json_response(type_view(found))


async def change(call: Call) -> Response:
    given = call.content(EventTypePatch)
    changes: dict[str, Any] = {}
    if given.description is not UNSET:
        changes["description"] = given.description
    if given.schema is not UNSET:
        changes["schema"] = _text(given.schema)
    if given.sample is not UNSET:
        changes["sample"] = _text(given.sample)
    if given.check is not UNSET:
        changes["check"] = given.check
    changed = await call.app.event_types.change(
        call.caller, call.key(), changes, tenant=call.query.tenant()
    )
    return json_response(type_view(changed))


async def delete(call: Call) -> Response:
    await call.app.event_types.delete(call.caller, call.key(), tenant=call.query.tenant())
    return Response(204)


async def openapi(call: Call) -> Response:
    tenant, types = await call.app.event_types.of_tenant(call.caller, tenant=call.query.tenant())
    return Response(200, encode(await event_openapi(tenant, types)))


_ALL = "/v1/event-types"
_ONE = "/v1/event-types/{id}"

OPERATIONS = (
    Operation(
        method="POST",
        path=_ALL,
        id="createEventType",
        use_case=EventTypes.create,
        summary="Describe a type of events: a description, a JSON Schema of its data, a sample.",
        handler=create,
        status=201,
        request=EventTypeIn,
        response=EventTypeView,
        errors=(BadRequest, Conflict, Forbidden, Invalid, TooLarge, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path=_ALL,
        id="listEventTypes",
        use_case=EventTypes.page,
        summary="Event types by tenant and name, without their schemas and samples.",
        handler=list_types,
        response=EventTypePage,
        params=(TENANT, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path=f"{_ALL}/openapi.json",
        id="exportEventTypes",
        use_case=EventTypes.of_tenant,
        summary="All event types of a tenant as an OpenAPI 3.1 document, each as a webhook.",
        handler=openapi,
        response=EventTypesDocument,
        params=(TENANT_ONE,),
        errors=(Invalid, NotFound),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getEventType",
        use_case=EventTypes.get,
        summary="An event type with its schema and sample.",
        handler=get,
        response=EventTypeView,
        params=(TENANT_ONE,),
        errors=(NotFound, Invalid),
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        id="changeEventType",
        use_case=EventTypes.change,
        summary="Change the description, schema, sample or check of an event type.",
        handler=change,
        request=EventTypePatch,
        response=EventTypeView,
        params=(TENANT_ONE,),
        errors=(BadRequest, Conflict, Invalid, NotFound, TooLarge, StoreUnavailable),
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        id="deleteEventType",
        use_case=EventTypes.delete,
        summary="Delete an event type; events that were accepted stay as they are.",
        handler=delete,
        status=204,
        params=(TENANT_ONE,),
        errors=(NotFound, Invalid, StoreUnavailable),
    ),
)
