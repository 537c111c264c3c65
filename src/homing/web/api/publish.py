"""POST /v1/events: the hot path, a plain ASGI endpoint without a framework.

A batch is decoded in one call; only if that fails are its events decoded one by one, to name each
wrong one. ``data`` is copied from the body byte for byte, never decoded and encoded again. The
decoder stops at the first event beyond the limit, so a body of millions of tiny events costs no
more than a valid batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import astuple, replace
from starlette.types import Receive, Scope, Send

from homing.app.access import PUBLISHERS, Caller
from homing.app.publishing import Publishing
from homing.errors import BadRequest, FieldProblem, Forbidden, HomingError, Invalid, TooLarge
from homing.policy.admission import (
    BATCH_EVENTS_MAX,
    DEFAULT_TENANT,
    PROBLEMS_MAX,
    EventDraft,
)
from homing.policy.nesting import LEVELS_RULE
from homing.policy.trace import read_traceparent
from homing.ports import Receipt
from homing.web.api import cloudevents
from homing.web.api.batch import TOO_MANY, batch_of, cut
from homing.web.body import PUBLISH_BYTES_MAX, check_utf8, field_problem, read_body
from homing.web.body_budget import SMALL_BYTES
from homing.web.connections import client_address, mark_verified
from homing.web.options import WebParts
from homing.web.query import Query
from homing.web.response import JSON
from homing.web.schemas import EventIn, EventReceipt, Published
from homing.web.texts import json_problems

NDJSON = "application/x-ndjson"

_NDJSON_TYPES = frozenset((NDJSON.encode(), b"application/ndjson", b"application/jsonl"))
_one = Decoder(EventIn)
_few = Decoder(list[EventIn])
_encode = Encoder().encode
_FEW_BYTES = 20 * BATCH_EVENTS_MAX  # too small for more events than a batch may have
_LINES_MAX = 10 * BATCH_EVENTS_MAX  # of one body, including empty lines


_many = batch_of(EventIn)


class Plain(NamedTuple):
    """The headers of a plain request, which may take the fast publish path."""

    authorization: bytes | None
    lines: bool  # the body has one event per line
    trace: str = ""  # the traceparent

    @classmethod
    def of(cls, headers: Sequence[tuple[bytes, bytes]]) -> Plain | None:
        """None if a header requires the normal path: an encoding, or a CloudEvent."""
        authorization, kind, trace = None, b"", ""
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == b"content-type":
                kind = value
            elif name == b"traceparent":
                trace = read_traceparent(value.decode("latin-1"))
            elif name in {b"content-encoding", cloudevents.MARK}:
                return None
        if cloudevents.is_cloudevents(kind):
            return None
        return cls(authorization, _is_lines(kind), trace)


class Publish:
    """The ASGI endpoint for publishing."""

    def __init__(self, parts: WebParts) -> None:
        self._publishing, self._budget = parts.app.publishing, parts.body_budget
        self._authenticator = parts.app.authenticator
        self._refusals = parts.app.audit.counted
        self.publish_then = parts.app.publishing.publish_then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Responds with 202 when all events are on disk; raises HomingError otherwise."""
        authorization: bytes | None = None
        declared: bytes | None = None
        kind, trace, marked = b"", "", False
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"content-length":
                declared = value
            elif name == b"content-type":
                kind = value
            elif name == b"traceparent":
                trace = read_traceparent(value.decode("latin-1"))
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise BadRequest("A content-encoding is not supported: send the body without one.")
            elif name == cloudevents.MARK:
                marked = True
        mode = cloudevents.mode_of(kind) or (cloudevents.Mode.BINARY if marked else None)
        authenticator = self._authenticator
        caller = authenticator.known(authorization) or await authenticator.caller_of(
            authorization, client_address(scope.get("client"))
        )
        mark_verified(scope)
        try:
            response = await self._published(
                caller,
                scope,
                receive,
                declared=declared,
                lines=_is_lines(kind),
                trace=trace,
                mode=mode,
            )
        except Forbidden as error:
            address = client_address(scope.get("client"))
            refused = replace(caller, address=address)
            self._refusals.refused(refused, Publishing.publish, error.detail)
            raise
        await send(
            {
                "type": "http.response.start",
                "status": 202,
                "headers": [
                    (b"content-type", JSON),
                    (b"x-content-type-options", b"nosniff"),
                    (b"content-length", b"%d" % len(response)),
                ],
            }
        )
        await send({"type": "http.response.body", "body": response})

    async def _published(
        self,
        caller: Caller,
        scope: Scope,
        receive: Receive,
        *,
        declared: bytes | None,
        lines: bool,
        trace: str,
        mode: cloudevents.Mode | None,
    ) -> bytes:
        """The body of the response."""
        caller.must_be(PUBLISHERS)
        if scope["query_string"]:
            Query(scope["query_string"], ())
        share = self._budget.of(caller.tenant)
        body = await read_body(
            receive, declared=declared, bytes_max=PUBLISH_BYTES_MAX, share=share, caller=caller
        )
        try:
            tenant = caller.tenant or DEFAULT_TENANT
            if mode is None:
                drafts = read_drafts(body, tenant, lines=lines, trace=trace)
            else:
                drafts = cloudevents.read_drafts(
                    body, tenant, mode=mode, headers=scope["headers"], trace=trace
                )
            return published(await self._publishing.publish(caller, drafts))
        finally:
            share.release(body)

    def plain_drafts(self, plain: Plain, body: bytes) -> list[EventDraft] | None:
        """The events of a plain request; None if it must take the normal path."""
        if len(body) > SMALL_BYTES or self._publishing.is_limited:
            return None
        caller = self._authenticator.known(plain.authorization)
        if caller is None:
            return None
        try:
            tenant = caller.tenant or DEFAULT_TENANT
            drafts = read_drafts(body, tenant, lines=plain.lines, trace=plain.trace)
            self._publishing.check(caller, drafts)
        except HomingError:
            return None
        return drafts if self._publishing.matches_types(drafts) else None


def published(receipts: Sequence[Receipt]) -> bytes:
    """The body of the response to a publish."""
    return _encode(
        Published(
            [
                EventReceipt(it.key, it.deliveries, not it.new, it.warning or UNSET)
                for it in receipts
            ]
        )
    )


def read_drafts(body: bytes, tenant: str, *, lines: bool, trace: str = "") -> list[EventDraft]:
    """The events of a body, by default for this tenant; raises BadRequest, TooLarge or Invalid."""
    check_utf8(body)
    if lines and body.count(b"\n") > _LINES_MAX:
        raise TooLarge(TOO_MANY)
    try:
        if lines:
            events = _one.decode_lines(body)
        elif body.lstrip()[:1] == b"[":
            events = _few.decode(body) if len(body) <= _FEW_BYTES else _given(_many.decode(body))
        else:
            events = [_one.decode(body)]
    except (msgspec.DecodeError, RecursionError):
        events = _walk(body, lines=lines)
    if not events:
        raise Invalid(problems=(FieldProblem("events", "must contain at least one event"),))
    return [
        EventDraft(
            tenant if event.tenant is UNSET else event.tenant,
            event.type,
            bytes(event.data),
            event.id,
            event.time,
            trace,
            "",
            event.key,
        )
        for event in events
    ]


def _is_lines(kind: bytes) -> bool:
    return kind.partition(b";")[0].strip().lower() in _NDJSON_TYPES


def _walk(body: bytes, *, lines: bool) -> list[EventIn]:
    """Decodes each event on its own; raises with all problems if there are any."""
    if lines:
        items = [line for line in body.split(b"\n") if line.strip()]
    elif body.lstrip()[:1] == b"[":
        items = [bytes(item) for item in cut(body)]
    else:
        items = [body]
    if len(items) > BATCH_EVENTS_MAX:
        raise TooLarge(TOO_MANY)
    events: list[EventIn] = []
    problems: list[FieldProblem] = []
    readable = True
    for index, item in enumerate(items):
        where = f"events[{index}]"
        try:
            events.append(_one.decode(item))
        except msgspec.ValidationError as error:
            problems.append(field_problem(error, where))
        except msgspec.DecodeError as error:
            texts = json_problems(item, EventIn, where)  # Half a surrogate pair is not valid text.
            readable = readable and bool(texts)
            problems += texts or [FieldProblem(where, f"is not JSON: {error}")]
        except RecursionError:  # No other field may have levels.
            problems.append(FieldProblem(f"{where}.data", LEVELS_RULE))
    if problems:
        kept = tuple(problems[:PROBLEMS_MAX])
        raise Invalid(problems=kept) if readable else BadRequest(problems=kept)
    return events


def _given(batch: Struct) -> list[EventIn]:
    return [event for event in astuple(batch) if event is not None]
