"""Every operation of the API without I/O: a call is a request and the way to read its answer.

Both clients take their calls from here; what they add is a connection and, in one of them, an
``await``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from homing.client.effort import Again
from homing.client.errors import BadAnswer, NotFound, Problem, refusal
from homing.client.filters import Tried
from homing.client.http1 import Answer
from homing.client.keys import Key, NewKey, RotatedSubscription
from homing.client.replays import ReplayCount, ReplayJob
from homing.client.status import ServerStatus
from homing.client.values import (
    Attempt,
    AttemptPage,
    Delivery,
    DeliveryDetail,
    Endpoint,
    EndpointDetail,
    Event,
    EventDetail,
    EventSummary,
    Ledger,
    NewSubscription,
    Page,
    Receipt,
    Subscription,
)

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
BATCH_EVENTS_MAX = 1_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
PAGE_ITEMS = 200


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """One operation: what to send, how to read the answer, and when it may be sent again."""

    method: str
    path: str
    read: Callable[[bytes], T]
    again: Again
    body: bytes = b""
    content_type: str = JSON
    gone_is_done: bool = False  # after a lost answer, 404 means that it was done


def read_answer(call: Call[T], answer: Answer, *, maybe_done: bool) -> T:
    """The value that was asked for; raises an error of the tree."""
    if 200 <= answer.status < 300:
        return call.read(answer.body)
    error = refusal(answer.status, _problem(answer), retry_after_s=_retry_after_s(answer))
    if call.gone_is_done and maybe_done and isinstance(error, NotFound):
        return call.read(b"")
    raise error


def _problem(answer: Answer) -> Problem:
    """The problem document; what somebody else answered (a proxy) leaves it empty."""
    try:
        return msgspec.json.decode(answer.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem(status=answer.status, detail="It was not Homing that answered.")


def _retry_after_s(answer: Answer) -> float | None:
    """The seconds of ``Retry-After``; its other form, a date, is left to the usual pause."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


# --- events ---------------------------------------------------------------------------------


class _Published(Struct, frozen=True):
    events: list[Receipt]


def publish(event: Event, new_id: Callable[[], str]) -> Call[Receipt]:
    """An id is always set, so that it is the same event however often it is sent."""
    body = msgspec.json.encode(_sent(event, new_id))
    return Call(method="POST", path="/v1/events", read=_read_receipt, again=Again.ALWAYS, body=body)


def publish_many(events: Iterable[Event], new_id: Callable[[], str]) -> Call[list[Receipt]]:
    """One batch: accepted whole or refused whole."""
    body = msgspec.json.encode([_sent(event, new_id) for event in events])
    return Call(
        method="POST", path="/v1/events", read=_read_receipts, again=Again.ALWAYS, body=body
    )


def publish_lines(
    events: Iterable[Event], new_id: Callable[[], str]
) -> Iterator[Call[list[Receipt]]]:
    """As many events as there are, in batches of lines; each batch is within the limits."""
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
        again=Again.ALWAYS,
        body=b"".join(lines),
        content_type=NDJSON,
    )


def _sent(event: Event, new_id: Callable[[], str]) -> dict[str, Any]:
    sent = {"type": event.type, "id": event.id or new_id(), "data": event.data}
    if event.tenant is not None:
        sent["tenant"] = event.tenant
    if event.time is not None:
        sent["time"] = event.time
    return sent


def _read_receipts(body: bytes) -> list[Receipt]:
    return _decode(body, _Published).events


def _read_receipt(body: bytes) -> Receipt:
    receipts = _read_receipts(body)
    if len(receipts) != 1:
        raise BadAnswer("It should hold one receipt.")
    return receipts[0]


def events(where: Mapping[str, Any]) -> Listing[EventSummary]:
    return Listing("/v1/events", where, Page[EventSummary])


def event(event_id: str, tenant: str | None) -> Call[EventDetail]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return _get(f"/v1/events/{_part(event_id)}{query}", EventDetail)


# --- subscriptions --------------------------------------------------------------------------


def subscribe(url: str, types: Sequence[str], options: Mapping[str, Any]) -> Call[NewSubscription]:
    body = {"url": url, "types": _types(types), **_wire(options)}
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
        again=Again.ALWAYS,
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


def test_subscription(subscription_id: str) -> Call[Attempt]:
    return _post(f"/v1/subscriptions/{_part(subscription_id)}/test", Attempt)


def try_filters(given: Mapping[str, Any], tenant: str | None) -> Call[Tried]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return _post(f"/v1/filters/try{query}", Tried, _wire(given), again=Again.ALWAYS)


def _wire(given: Mapping[str, Any]) -> dict[str, Any]:
    """Names as the API has them: this one comes from Workfront."""
    names = {"filter_connector": "filterConnector"}
    return {names.get(name, name): value for name, value in given.items()}


def _types(types: Sequence[str]) -> list[str]:
    """A text is a sequence, too: ``types="order.*"`` would be eight types of one character."""
    return [types] if isinstance(types, str) else list(types)


# --- endpoints ------------------------------------------------------------------------------


def endpoints(where: Mapping[str, Any]) -> Listing[Endpoint]:
    return Listing("/v1/endpoints", where, Page[Endpoint])


def endpoint(endpoint_id: str) -> Call[EndpointDetail]:
    return _get(f"/v1/endpoints/{_part(endpoint_id)}", EndpointDetail)


def enable_endpoint(endpoint_id: str) -> Call[EndpointDetail]:
    path = f"/v1/endpoints/{_part(endpoint_id)}/enable"
    return _post(path, EndpointDetail, again=Again.ALWAYS)


def freeze_endpoint(endpoint_id: str) -> Call[EndpointDetail]:
    path = f"/v1/endpoints/{_part(endpoint_id)}/freeze"
    return _post(path, EndpointDetail, again=Again.ALWAYS)


# --- deliveries and replays -----------------------------------------------------------------


def deliveries(where: Mapping[str, Any]) -> Listing[Delivery]:
    return Listing("/v1/deliveries", where, Page[Delivery])


def delivery(delivery_id: str) -> Call[DeliveryDetail]:
    return _get(f"/v1/deliveries/{_part(delivery_id)}", DeliveryDetail)


def attempts(where: Mapping[str, Any], cursor: str | None) -> Call[AttemptPage]:
    return _get(f"/v1/attempts?{_query(where, cursor)}", AttemptPage)


def replay_delivery(delivery_id: str) -> Call[DeliveryDetail]:
    return _post(f"/v1/deliveries/{_part(delivery_id)}/replay", DeliveryDetail)


def cancel_delivery(delivery_id: str) -> Call[DeliveryDetail]:
    return _post(f"/v1/deliveries/{_part(delivery_id)}/cancel", DeliveryDetail)


def count_replay(where: Mapping[str, Any]) -> Call[ReplayCount]:
    body = {"filter": where, "dry_run": True}
    return _post("/v1/replays", ReplayCount, body, again=Again.ALWAYS)


def start_replay(where: Mapping[str, Any]) -> Call[ReplayJob]:
    return _post("/v1/replays", ReplayJob, {"filter": where})


def replay_job(job_id: str) -> Call[ReplayJob]:
    return _get(f"/v1/replays/{_part(job_id)}", ReplayJob)


def cancel_replay(job_id: str) -> Call[ReplayJob]:
    return _post(f"/v1/replays/{_part(job_id)}/cancel", ReplayJob, again=Again.ALWAYS)


# --- keys -----------------------------------------------------------------------------------


def create_key(name: str, role: str, tenant: str | None, expires: str | None) -> Call[NewKey]:
    body = {"name": name, "role": role, "tenant": tenant, "expires": expires}
    return _post("/v1/keys", NewKey, body)


def keys(where: Mapping[str, Any]) -> Listing[Key]:
    return Listing("/v1/keys", where, Page[Key])


def revoke_key(key_id: str) -> Call[None]:
    return _delete(f"/v1/keys/{_part(key_id)}")


# --- the whole ------------------------------------------------------------------------------


def ledger(tenant: str | None) -> Call[list[Ledger]]:
    query = "" if tenant is None else "?" + urlencode({"tenant": tenant})
    return Call(
        method="GET",
        path="/v1/ledger" + query,
        read=lambda body: list(_decode(body, Page[Ledger]).items),
        again=Again.ALWAYS,
    )


def status() -> Call[ServerStatus]:
    return Call(
        method="GET",
        path="/v1/status",
        read=lambda body: _decode(body, ServerStatus),
        again=Again.ALWAYS,
    )


def healthz() -> Call[bool]:
    return Call(method="GET", path="/healthz", read=lambda _: True, again=Again.NEVER)


def readyz() -> Call[bool]:
    return Call(method="GET", path="/readyz", read=lambda _: True, again=Again.NEVER)


def metrics() -> Call[str]:
    return Call(
        method="GET",
        path="/metrics",
        read=lambda body: body.decode("utf-8", "replace"),
        again=Again.ALWAYS,
    )


# --- the forms that calls have --------------------------------------------------------------


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
    return Call(method="GET", path=path, read=lambda body: _decode(body, kind), again=Again.ALWAYS)


def _delete(path: str) -> Call[None]:
    return Call(
        method="DELETE", path=path, read=lambda _: None, again=Again.ALWAYS, gone_is_done=True
    )


def _post(
    path: str, kind: type[T], body: Mapping[str, Any] | None = None, again: Again = Again.UNSENT
) -> Call[T]:
    return Call(
        method="POST",
        path=path,
        read=lambda answered: _decode(answered, kind),
        again=again,
        body=b"" if body is None else msgspec.json.encode(body),
    )


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadAnswer(f"{error}.") from None


def _part(text: str) -> str:
    """An id as one part of a path; an empty one would ask for the list."""
    if not text:
        raise ValueError("an id must not be empty")
    return quote(text, safe="")
