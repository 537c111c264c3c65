"""Every operation of the API without I/O: a call is a request and a reader of its response.

Both clients send the calls that are made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from homing_client.errors import BadResponse, NotFound, Problem, refusal
from homing_client.http1 import Response
from homing_client.retries import RetryRule
from homing_client.subscription import API_NAMES, Subscription
from homing_client.values import (
    Attempt,
    AttemptLine,
    AttemptPage,
    AuditEntry,
    AuditVerified,
    Cause,
    Delivery,
    DeliveryDetail,
    EgressAddresses,
    Endpoint,
    EndpointDetail,
    Erasure,
    Event,
    EventDetail,
    EventsRead,
    EventSummary,
    EventType,
    EventTypeSummary,
    FilterResult,
    Key,
    Ledger,
    LostCommits,
    NewKey,
    NewNoticeTarget,
    NewPortalLink,
    NewSubscription,
    Notice,
    NoticeTarget,
    NoticeTested,
    Page,
    Portal,
    PortalLink,
    Reader,
    Receipt,
    ReplayCount,
    ReplayJob,
    RotatedSubscription,
    SearchResult,
    ServerStatus,
    SigningKeys,
)

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
BATCH_EVENTS_MAX = 1_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
PAGE_ITEMS = 200
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """One operation: its request, how to read the response, and when it may be repeated."""

    method: str
    path: str
    read: Callable[[bytes], T]
    retry: RetryRule
    body: bytes = b""
    content_type: str = JSON
    trace: str = ""  # the traceparent
    not_found_is_success: bool = False  # a 404 after a lost response means that it was done


def read_response(call: Call[T], response: Response, *, maybe_done: bool) -> T:
    """The call's result; raises HomingClientError."""
    if 200 <= response.status < 300:
        return call.read(response.body)
    error = refusal(response.status, _problem(response), retry_after_s=_retry_after_s(response))
    if call.not_found_is_success and maybe_done and isinstance(error, NotFound):
        return call.read(b"")
    raise error


def _problem(response: Response) -> Problem:
    """The problem document; almost empty if the response is not from Homing (a proxy's page)."""
    try:
        return msgspec.json.decode(response.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem(status=response.status, detail="The response is not from Homing.")


def _retry_after_s(response: Response) -> float | None:
    """The seconds of ``Retry-After``; None for its other form, a date."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


# --- events ---------------------------------------------------------------------------------


class _Published(Struct, frozen=True):
    events: list[Receipt]


def publish(
    event: Event, new_id: Callable[[], str], traceparent: str | None = None
) -> Call[Receipt]:
    """The event always has an id, so that repeated requests make one event."""
    return Call(
        method="POST",
        path="/v1/events",
        read=_read_receipt,
        retry=RetryRule.ALWAYS,
        body=msgspec.json.encode(_sent(event, new_id)),
        trace=_trace(traceparent),
    )


def publish_many(
    events: Iterable[Event], new_id: Callable[[], str], traceparent: str | None = None
) -> Call[list[Receipt]]:
    """One batch: accepted whole or refused whole."""
    return Call(
        method="POST",
        path="/v1/events",
        read=_read_receipts,
        retry=RetryRule.ALWAYS,
        body=msgspec.json.encode([_sent(event, new_id) for event in events]),
        trace=_trace(traceparent),
    )


def _trace(traceparent: str | None) -> str:
    if traceparent and _TRACEPARENT.fullmatch(traceparent) is None:
        raise ValueError(f"{traceparent!r} is not a traceparent like 00-{'a' * 32}-{'b' * 16}-01")
    return traceparent or ""


def publish_lines(
    events: Iterable[Event], new_id: Callable[[], str]
) -> Iterator[Call[list[Receipt]]]:
    """Any number of events, in batches of lines that are within the API's limits."""
    lines: list[bytes] = []
    size = 0
    for event in events:
        line = msgspec.json.encode(_sent(event, new_id)) + b"\n"
        if lines and (len(lines) == BATCH_EVENTS_MAX or size + len(line) > BATCH_BYTES_MAX):
            yield _batch(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield _batch(lines)


def _batch(lines: list[bytes]) -> Call[list[Receipt]]:
    return Call(
        method="POST",
        path="/v1/events",
        read=_read_receipts,
        retry=RetryRule.ALWAYS,
        body=b"".join(lines),
        content_type=NDJSON,
    )


def _sent(event: Event, new_id: Callable[[], str]) -> dict[str, Any]:
    sent = {"type": event.type, "id": event.id or new_id(), "data": event.data}
    if event.tenant is not None:
        sent["tenant"] = event.tenant
    if event.time is not None:
        sent["time"] = event.time
    if event.key is not None:
        sent["key"] = event.key
    return sent


def _read_receipts(body: bytes) -> list[Receipt]:
    return _decode(body, _Published).events


def _read_receipt(body: bytes) -> Receipt:
    receipts = _read_receipts(body)
    if len(receipts) != 1:
        raise BadResponse("It does not hold exactly one receipt.")
    return receipts[0]


def events(where: Mapping[str, Any]) -> Listing[EventSummary]:
    return Listing("/v1/events", where, Page[EventSummary])


def event(event_id: str, tenant: str | None) -> Call[EventDetail]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return _get(f"/v1/events/{_part(event_id)}{query}", EventDetail)


# --- subscriptions --------------------------------------------------------------------------


def subscribe(
    url: str | None,
    types: Sequence[str],
    options: Mapping[str, Any],
    since: str | None = None,
    per_second: int | None = None,
) -> Call[NewSubscription]:
    body = {"url": url or "", "types": _types(types), **_wire(options)}
    past = {"from": since, "per_second": per_second}
    body |= {name: value for name, value in past.items() if value is not None}
    return _post("/v1/subscriptions", NewSubscription, body)


def subscriptions(where: Mapping[str, Any]) -> Listing[Subscription]:
    return Listing("/v1/subscriptions", where, Page[Subscription])


def subscription(subscription_id: str) -> Call[Subscription]:
    return _get(f"/v1/subscriptions/{_part(subscription_id)}", Subscription)


def change_subscription(subscription_id: str, changes: Mapping[str, Any]) -> Call[Subscription]:
    changes = _wire(changes)
    if "types" in changes:
        changes = {**changes, "types": _types(changes["types"])}
    return Call(
        method="PATCH",
        path=f"/v1/subscriptions/{_part(subscription_id)}",
        read=lambda body: _decode(body, Subscription),
        retry=RetryRule.ALWAYS,
        body=msgspec.json.encode(changes),
    )


def delete_subscription(subscription_id: str) -> Call[None]:
    return _delete(f"/v1/subscriptions/{_part(subscription_id)}")


def rotate_secret(
    subscription_id: str, secret: str | None, overlap_ms: int | None
) -> Call[RotatedSubscription]:
    given = {"secret": secret, "overlap_ms": overlap_ms}
    body = {name: value for name, value in given.items() if value is not None}
    return _post(
        f"/v1/subscriptions/{_part(subscription_id)}/secret/rotate", RotatedSubscription, body
    )


def signing_keys(tenant: str | None) -> Call[SigningKeys]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return _get(f"/v1/signing-keys{query}", SigningKeys)


def rotate_signing_keys(tenant: str | None, overlap_ms: int | None) -> Call[SigningKeys]:
    given = {"tenant": tenant, "overlap_ms": overlap_ms}
    body = {name: value for name, value in given.items() if value is not None}
    return _post("/v1/signing-keys/rotate", SigningKeys, body)


def lost_commits() -> Call[LostCommits]:
    return _get("/v1/lost-commits", LostCommits)


def confirm_lost_commits() -> Call[LostCommits]:
    return _post("/v1/lost-commits/confirm", LostCommits)


def jwks(tenant: str | None) -> Call[dict[str, Any]]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return _get(f"/.well-known/jwks.json{query}", dict[str, Any])


def verify_subscription(subscription_id: str) -> Call[Subscription]:
    return _post(f"/v1/subscriptions/{_part(subscription_id)}/verify", Subscription)


def pause_subscription(subscription_id: str) -> Call[Subscription]:
    return _post(f"/v1/subscriptions/{_part(subscription_id)}/pause", Subscription)


def resume_subscription(subscription_id: str) -> Call[Subscription]:
    return _post(f"/v1/subscriptions/{_part(subscription_id)}/resume", Subscription)


def test_subscription(subscription_id: str) -> Call[Attempt]:
    return _post(f"/v1/subscriptions/{_part(subscription_id)}/test", Attempt)


# A reader that repeats a request gets the same events again, or acknowledges the same ones.
def read_events(
    subscription_id: str,
    *,
    reader: str,
    after: str | None,
    from_now: bool,
    limit: int,
    wait_s: float,
) -> Call[EventsRead]:
    given = {
        "reader": reader,
        "after": after,
        "from": "now" if from_now else None,
        "limit": limit,
        "wait": f"{round(wait_s * 1000)}ms",
    }
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return _get(f"/v1/subscriptions/{_part(subscription_id)}/events?{query}", EventsRead)


def acknowledge(subscription_id: str, cursor: str, *, reader: str) -> Call[Reader]:
    path = f"/v1/subscriptions/{_part(subscription_id)}/ack"
    body = {"cursor": cursor, "reader": reader}
    return _post(path, Reader, body, retry=RetryRule.ALWAYS)


class _Readers(Struct, frozen=True):
    items: list[Reader]


def readers(subscription_id: str) -> Call[list[Reader]]:
    return Call(
        method="GET",
        path=f"/v1/subscriptions/{_part(subscription_id)}/readers",
        read=lambda body: _decode(body, _Readers).items,
        retry=RetryRule.ALWAYS,
    )


def remove_reader(subscription_id: str, reader: str) -> Call[None]:
    query = urlencode({"reader": reader})
    return _delete(f"/v1/subscriptions/{_part(subscription_id)}/readers?{query}")


def try_filters(given: Mapping[str, Any], tenant: str | None) -> Call[FilterResult]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return _post(f"/v1/filters/try{query}", FilterResult, _wire(given), retry=RetryRule.ALWAYS)


def _wire(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields under the names that the API has for them."""
    return {API_NAMES.get(name, name): value for name, value in given.items()}


def _types(types: Sequence[str]) -> list[str]:
    """A string is a sequence, too: ``types="order.*"`` would be seven types of one character."""
    return [types] if isinstance(types, str) else list(types)


# --- endpoints ------------------------------------------------------------------------------


def endpoints(where: Mapping[str, Any]) -> Listing[Endpoint]:
    return Listing("/v1/endpoints", where, Page[Endpoint])


def endpoint(endpoint_id: str) -> Call[EndpointDetail]:
    return _get(f"/v1/endpoints/{_part(endpoint_id)}", EndpointDetail)


def enable_endpoint(endpoint_id: str) -> Call[EndpointDetail]:
    path = f"/v1/endpoints/{_part(endpoint_id)}/enable"
    return _post(path, EndpointDetail, retry=RetryRule.ALWAYS)


def freeze_endpoint(endpoint_id: str) -> Call[EndpointDetail]:
    path = f"/v1/endpoints/{_part(endpoint_id)}/freeze"
    return _post(path, EndpointDetail, retry=RetryRule.ALWAYS)


def endpoint_attempts(endpoint_id: str, where: Mapping[str, Any]) -> Listing[AttemptLine]:
    return Listing(f"/v1/endpoints/{_part(endpoint_id)}/attempts", where, Page[AttemptLine])


def causes(where: Mapping[str, Any]) -> Listing[Cause]:
    given = {name: str(value).lower() if name == "open" else value for name, value in where.items()}
    return Listing("/v1/causes", given, Page[Cause])


# --- deliveries and replays -----------------------------------------------------------------


def deliveries(where: Mapping[str, Any]) -> Listing[Delivery]:
    return Listing("/v1/deliveries", where, Page[Delivery])


def delivery(delivery_id: str) -> Call[DeliveryDetail]:
    return _get(f"/v1/deliveries/{_part(delivery_id)}", DeliveryDetail)


def attempts(where: Mapping[str, Any], cursor: str | None) -> Call[AttemptPage]:
    return _get(f"/v1/attempts?{_query(where, cursor)}", AttemptPage)


def replay_delivery(delivery_id: str) -> Call[DeliveryDetail]:
    return _post(f"/v1/deliveries/{_part(delivery_id)}/replay", DeliveryDetail)


def try_delivery(delivery_id: str) -> Call[DeliveryDetail]:
    return _post(f"/v1/deliveries/{_part(delivery_id)}/try", DeliveryDetail)


def cancel_delivery(delivery_id: str) -> Call[DeliveryDetail]:
    return _post(f"/v1/deliveries/{_part(delivery_id)}/cancel", DeliveryDetail)


def count_replay(where: Mapping[str, Any]) -> Call[ReplayCount]:
    body = {"filter": where, "dry_run": True}
    return _post("/v1/replays", ReplayCount, body, retry=RetryRule.ALWAYS)


def start_replay(where: Mapping[str, Any]) -> Call[ReplayJob]:
    return _post("/v1/replays", ReplayJob, {"filter": where})


def count_past(subscription_id: str, since: str) -> Call[ReplayCount]:
    body = {"from": since, "dry_run": True}
    path = f"/v1/subscriptions/{_part(subscription_id)}/backfill"
    return _post(path, ReplayCount, body, retry=RetryRule.ALWAYS)


def backfill(subscription_id: str, since: str, per_second: int | None) -> Call[ReplayJob]:
    body: dict[str, Any] = {"from": since}
    if per_second is not None:
        body["per_second"] = per_second
    return _post(f"/v1/subscriptions/{_part(subscription_id)}/backfill", ReplayJob, body)


def replay_job(job_id: str) -> Call[ReplayJob]:
    return _get(f"/v1/replays/{_part(job_id)}", ReplayJob)


def cancel_replay(job_id: str) -> Call[ReplayJob]:
    return _post(f"/v1/replays/{_part(job_id)}/cancel", ReplayJob, retry=RetryRule.ALWAYS)


# --- erasures -------------------------------------------------------------------------------


def erase(what: Mapping[str, Any]) -> Call[Erasure]:
    # Safe to repeat: an event that is erased already has the same erasure again.
    body = {name: value for name, value in what.items() if value is not None}
    return _post("/v1/erasures", Erasure, body, retry=RetryRule.ALWAYS)


def erasure(erasure_id: str) -> Call[Erasure]:
    return _get(f"/v1/erasures/{_part(erasure_id)}", Erasure)


def erasures(where: Mapping[str, Any]) -> Listing[Erasure]:
    return Listing("/v1/erasures", where, Page[Erasure])


# --- keys -----------------------------------------------------------------------------------


def create_key(name: str, role: str, tenant: str | None, expires: str | None) -> Call[NewKey]:
    body = {"name": name, "role": role, "tenant": tenant, "expires": expires}
    return _post("/v1/keys", NewKey, body)


def keys(where: Mapping[str, Any]) -> Listing[Key]:
    return Listing("/v1/keys", where, Page[Key])


def revoke_key(key_id: str) -> Call[None]:
    return _delete(f"/v1/keys/{_part(key_id)}")


# --- the customer portal ----------------------------------------------------------------------


def create_portal_link(given: Mapping[str, Any]) -> Call[NewPortalLink]:
    body = {name: value for name, value in given.items() if value is not None}
    return _post("/v1/portal-links", NewPortalLink, body)


def portal_links(where: Mapping[str, Any]) -> Listing[PortalLink]:
    return Listing("/v1/portal-links", where, Page[PortalLink])


def revoke_portal_link(link_id: str) -> Call[None]:
    return _delete(f"/v1/portal-links/{_part(link_id)}")


def portal(tenant: str | None) -> Call[Portal]:
    return _get(_portal_path(tenant), Portal)


def _portal_path(tenant: str | None) -> str:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return f"/v1/portal{query}"


def change_portal(tenant: str | None, fields: Mapping[str, Any]) -> Call[Portal]:
    return Call(
        method="PATCH",
        path=_portal_path(tenant),
        read=lambda body: _decode(body, Portal),
        retry=RetryRule.ALWAYS,
        body=msgspec.json.encode(fields),
    )


# --- the audit log --------------------------------------------------------------------------


def audit(where: Mapping[str, Any]) -> Listing[AuditEntry]:
    return Listing("/v1/audit", where, Page[AuditEntry])


def verify_audit(after: int | None) -> Call[AuditVerified]:
    query = "" if after is None else f"?after={after}"
    return _get(f"/v1/audit/verify{query}", AuditVerified)


# --- event types ----------------------------------------------------------------------------


def create_event_type(fields: Mapping[str, Any]) -> Call[EventType]:
    return _post("/v1/event-types", EventType, dict(fields))


def event_types(where: Mapping[str, Any]) -> Listing[EventTypeSummary]:
    return Listing("/v1/event-types", where, Page[EventTypeSummary])


def event_type(name: str, tenant: str | None) -> Call[EventType]:
    return _get(_event_type_path(name, tenant), EventType)


def change_event_type(name: str, fields: Mapping[str, Any], tenant: str | None) -> Call[EventType]:
    return Call(
        method="PATCH",
        path=_event_type_path(name, tenant),
        read=lambda body: _decode(body, EventType),
        retry=RetryRule.ALWAYS,
        body=msgspec.json.encode(fields),
    )


def delete_event_type(name: str, tenant: str | None) -> Call[None]:
    return _delete(_event_type_path(name, tenant))


def event_types_openapi(tenant: str | None) -> Call[dict[str, Any]]:
    return _get(_event_type_path("openapi.json", tenant), dict[str, Any])


def _event_type_path(name: str, tenant: str | None) -> str:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return f"/v1/event-types/{_part(name)}{query}"


# --- notices --------------------------------------------------------------------------------


def create_notice_target(fields: Mapping[str, Any]) -> Call[NewNoticeTarget]:
    return _post("/v1/notice-targets", NewNoticeTarget, dict(fields))


def notice_targets(where: Mapping[str, Any]) -> Listing[NoticeTarget]:
    return Listing("/v1/notice-targets", where, Page[NoticeTarget])


def notice_target(target_id: str) -> Call[NoticeTarget]:
    return _get(f"/v1/notice-targets/{_part(target_id)}", NoticeTarget)


def change_notice_target(target_id: str, fields: Mapping[str, Any]) -> Call[NoticeTarget]:
    return Call(
        method="PATCH",
        path=f"/v1/notice-targets/{_part(target_id)}",
        read=lambda body: _decode(body, NoticeTarget),
        retry=RetryRule.ALWAYS,
        body=msgspec.json.encode(fields),
    )


def rotate_notice_target_secret(target_id: str) -> Call[NewNoticeTarget]:
    return _post(f"/v1/notice-targets/{_part(target_id)}/secret/rotate", NewNoticeTarget)


def send_notice_target_link(target_id: str) -> Call[NoticeTarget]:
    return _post(f"/v1/notice-targets/{_part(target_id)}/link", NoticeTarget)


def delete_notice_target(target_id: str) -> Call[None]:
    return _delete(f"/v1/notice-targets/{_part(target_id)}")


def test_notice_target(target_id: str) -> Call[NoticeTested]:
    return _post(f"/v1/notice-targets/{_part(target_id)}/test", NoticeTested)


def notices(where: Mapping[str, Any]) -> Listing[Notice]:
    return Listing("/v1/notices", where, Page[Notice])


# --- the server -----------------------------------------------------------------------------


def search(text: str, tenant: str | None) -> Call[SearchResult]:
    given = {"q": text} if tenant is None else {"q": text, "tenant": tenant}
    return _get("/v1/search?" + urlencode(given), SearchResult)


def ledger(tenant: str | None) -> Call[list[Ledger]]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return Call(
        method="GET",
        path="/v1/ledger" + query,
        read=lambda body: list(_decode(body, Page[Ledger]).items),
        retry=RetryRule.ALWAYS,
    )


def status() -> Call[ServerStatus]:
    return Call(
        method="GET",
        path="/v1/status",
        read=lambda body: _decode(body, ServerStatus),
        retry=RetryRule.ALWAYS,
    )


def egress() -> Call[list[str]]:
    return Call(
        method="GET",
        path="/v1/egress",
        read=lambda body: _decode(body, EgressAddresses).addresses,
        retry=RetryRule.ALWAYS,
    )


def healthz() -> Call[bool]:
    return Call(method="GET", path="/healthz", read=lambda _: True, retry=RetryRule.NEVER)


def readyz() -> Call[bool]:
    return Call(method="GET", path="/readyz", read=lambda _: True, retry=RetryRule.NEVER)


def metrics() -> Call[str]:
    return Call(
        method="GET",
        path="/metrics",
        read=lambda body: body.decode("utf-8", "replace"),
        retry=RetryRule.ALWAYS,
    )


# --- building blocks of calls ----------------------------------------------------------------


class Listing(Struct, Generic[T], frozen=True):
    """A list that comes in pages."""

    path: str
    where: Mapping[str, Any]
    kind: type[Page[T]]

    def page(self, cursor: str | None) -> Call[Page[T]]:
        return _get(f"{self.path}?{_query(self.where, cursor)}", self.kind)


def _query(where: Mapping[str, Any], cursor: str | None) -> str:
    given = {**where, "limit": PAGE_ITEMS, "cursor": cursor}
    return urlencode({name: value for name, value in given.items() if value is not None})


def _get(path: str, kind: type[T]) -> Call[T]:
    return Call(
        method="GET", path=path, read=lambda body: _decode(body, kind), retry=RetryRule.ALWAYS
    )


def _delete(path: str) -> Call[None]:
    return Call(
        method="DELETE",
        path=path,
        read=lambda _: None,
        retry=RetryRule.ALWAYS,
        not_found_is_success=True,
    )


def _post(
    path: str,
    kind: type[T],
    body: Mapping[str, Any] | None = None,
    retry: RetryRule = RetryRule.UNSENT,
) -> Call[T]:
    return Call(
        method="POST",
        path=path,
        read=lambda response: _decode(response, kind),
        retry=retry,
        body=b"" if body is None else msgspec.json.encode(body),
    )


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadResponse(f"{error}.") from None


def _part(text: str) -> str:
    """An id as one segment of a path; an empty one would address the list."""
    if not text:
        raise ValueError("an id must not be empty")
    return quote(text, safe="")
