"""Rows of the tables and values of the model, each made from the other.

Only this module knows the order of columns. Text enums are written as they are, because they are
texts (reading ``value`` costs half a microsecond each). Text that a database cannot hold (NUL, half
a surrogate pair) is cleaned if it may come from a receiver or from an old version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import EnumType
from typing import Any

import msgspec

from homing.model import (
    PART_BLOCKED,
    PART_FAIR,
    PART_FIRST,
    SPEC,
    Attempt,
    Cause,
    CauseKey,
    Decided,
    Delivery,
    Endpoint,
    Event,
    Failure,
    Field,
    Finished,
    Health,
    Kind,
    Lane,
    Order,
    Outcome,
    Pauses,
    Phases,
    Reason,
    ReceiverState,
    Secret,
    SigningKeys,
    State,
    Status,
    Subscription,
    Transition,
    Work,
    Workfront,
)
from homing.policy.event_check_rules import Check
from homing.policy.event_types import EventType, TypeSummary
from homing.policy.text import storable
from homing.ports import CleanupJob, NewEvent, ReplayFilter, ReplayJob
from homing.ports.erasures import Erasure, ErasureKind
from homing.ports.pull import PullReader
from homing.ports.views import LastFailure
from homing.store.tx import Row


def _columns(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DELIVERY = "id bucket tenant endpoint_id subscription_id event_id root_id accepted_at"
_SCHEDULE = "due_at expires_at t0 retry attempts sender_errors replay"

_ROLLUP = (
    "at endpoint_id tenant node delivered failed sender_errors dropped"
    " b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11"
)
COLUMNS: dict[str, tuple[str, ...]] = {
    "subscription": _columns(
        "id tenant endpoint_id url types format secrets token headers policy deadline_ms active"
        " description created_at updated_at deleted_at version filters filter_connector workfront"
        " rate_per_second settings"
    ),
    "signing_keys": _columns("tenant keys version"),
    "event_type": _columns(
        "tenant name description schema sample checks bytes created_at updated_at version"
    ),
    "endpoint": _columns(
        "id bucket tenant url created_at generation state since enabled_since attempts failures"
        " consecutive_failures first_attempt_at last_success_at manual_enable_at warned"
        " next_probe_at probe_after_id hold_until dropped_unreported dropped_reported_at rule"
        " failing guard_passed guard_refused_at"
    ),
    "event_key": _columns("tenant key event_id content_hash"),
    "event_field": _columns("event_id place hash tenant"),
    "event": _columns(
        "id tenant key type time accepted_at data trace context order_key warning deliveries"
        " last_id"
    ),
    "pending": _columns(
        f"{_DELIVERY} part {_SCHEDULE} cause_id paused_ms order_key order_seq unblocked_at position"
    ),
    "history": _columns(
        f"{_DELIVERY} {_SCHEDULE} status reason finished_at arrived cause_id superseded_by"
    ),
    "attempt": _columns(
        "delivery_id number endpoint_id subscription_id lane started_at finished_at outcome code"
        " failure detail address dns_us connect_us tls_us first_byte_us total_us request_headers"
        " response_headers response_excerpt decided due_at retry"
    ),
    "cause": _columns(
        "id tenant endpoint_id failure reason code first_seen last_seen attempts deliveries"
        " example_id example_number closed_at"
    ),
    "transition": _columns("id endpoint_id at before after rule numbers by"),
    "key_release": _columns("delivery_id bucket endpoint_id subscription_id order_key"),
    "replay_link": _columns("event_id delivery_id"),
    "replay_job": _columns(
        "id filter created_at state upto_id after_id scanned replayed skipped after_position"
        " upto_position made_at"
    ),
    "cleanup_job": _columns("id kind subscription_id endpoint_id after_id"),
    "ledger": _columns("tenant node accepted delivered dropped cancelled superseded"),
    "api_key": _columns(
        "id prefix hash name role tenant created_at expires_at last_used_at revoked_at"
    ),
    "key_session": _columns("id holder since"),
    "portal_link": _columns(
        "id tenant role subject hash made_by key_id created_at opens_until session_ms opened_at"
        " session_hash session_until revoked_at ends_at"
    ),
    "portal_settings": _columns(
        "tenant name accent_color header_color theme frame_ancestors logo_type logo_digest"
        " logo_bytes updated_at"
    ),
    "process": _columns("id node name role delivers started_at expires_at"),
    "notice_target": _columns(
        "id tenant kind name address address_hash secret secret_hash kinds quiet_hours time_zone"
        " created_at confirmed_at deleted_at message_id due_at attempts error sent_at language"
    ),
    "notice": _columns(
        "target_id id owner kind at tenant endpoint_id url facts status reason message_id sent_at"
    ),
    "erasure": _columns(
        "id tenant kind path subject created_at upto_id version more events deliveries cancelled"
        " finished_at upto_position"
    ),
    "audit_entry": _columns(
        "id at tenant key_id who who_tenant address person action object before after refused count"
        " digest segment"
    ),
    "audit_segment": _columns("number entries first_at last_at hash"),
    "pull_stream": _columns("subscription_id tenant position removed"),
    "pull_entry": _columns("subscription_id position event_id"),
    "pull_reader": _columns("subscription_id name position created_at acked_at"),
    "rollup": _columns(_ROLLUP),
    "rollup_hour": _columns(_ROLLUP),
}
# As above, with columns that only inserts name, because lists do not read them.
INSERTED = COLUMNS | {
    "event": (*COLUMNS["event"], "position"),
    "history": (*COLUMNS["history"], "first_attempt"),
}
EVENT_WIDTH = len(COLUMNS["event"])
PENDING_WIDTH = len(COLUMNS["pending"])
HISTORY_WIDTH = len(COLUMNS["history"])
ENDPOINT_WIDTH = len(COLUMNS["endpoint"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# --- subscriptions and endpoints ------------------------------------------------------------


# Fields that people set are in columns of their own, or in the JSON of ``settings``: a new field
# needs no migration, and a release that does not know it keeps it (``Subscription.newer``).
_OWN = frozenset(COLUMNS["subscription"]) & SPEC.keys()
_IN_SETTINGS = SPEC.keys() - _OWN
_AS_JSON = frozenset((Kind.WORDS, Kind.PAIRS))


def subscription_row(sub: Subscription) -> Row:
    values: dict[str, Any] = {name: _column(SPEC[name], getattr(sub, name)) for name in _OWN}
    values["secrets"] = _json(sub.secrets)
    values["workfront"] = None if sub.workfront is None else _json(sub.workfront)
    settings = sub.newer | {name: getattr(sub, name) for name in _IN_SETTINGS}
    if sub.receiver is not None:
        settings["receiver"] = sub.receiver
    if sub.pauses is not None:
        settings["pauses"] = sub.pauses
    values["settings"] = _json(settings)
    return tuple(
        values[name] if name in values else getattr(sub, name) for name in COLUMNS["subscription"]
    )


def _column(field: Field, value: Any) -> Any:
    if field.kind in _AS_JSON:
        return _json(value)
    if field.kind is Kind.FLAG:
        return int(value)
    return storable(value) if field.kind is Kind.TEXT and value is not None else value


def subscription(row: Row) -> Subscription:
    values = dict(zip(COLUMNS["subscription"], row, strict=True))
    for name, read in _READ:
        values[name] = read(values[name])
    settings: dict[str, Any] = msgspec.json.decode(values.pop("settings"))
    for name in _IN_SETTINGS & settings.keys():
        values[name] = msgspec.convert(settings.pop(name), SPEC[name].type)
    if "receiver" in settings:
        values["receiver"] = msgspec.convert(settings.pop("receiver"), ReceiverState)
    if "pauses" in settings:
        values["pauses"] = msgspec.convert(settings.pop("pauses"), Pauses)
    return Subscription(**values, newer=settings)


def order_of(settings: str) -> Order:
    """The order of the subscription with these settings."""
    return msgspec.json.decode(settings, type=_Ordering).order


class _Ordering(msgspec.Struct):
    order: Order = Order.NONE


def _reader(kind: Any) -> Callable[[str], Any]:
    return msgspec.json.Decoder(kind).decode


_workfront = _reader(Workfront)
_secrets = _reader(tuple[Secret, ...])
_READ: list[tuple[str, Callable[[Any], Any]]] = [
    ("secrets", _secrets),
    ("workfront", lambda text: text and _workfront(text)),
    *((name, _reader(SPEC[name].type)) for name in _OWN if SPEC[name].kind in _AS_JSON),
    *((name, bool) for name in _OWN if SPEC[name].kind is Kind.FLAG),
    *((name, SPEC[name].type) for name in _OWN if isinstance(SPEC[name].type, EnumType)),
]


def signing_keys_row(it: SigningKeys) -> Row:
    return it.tenant, _json(it.keys), it.version


def signing_keys(row: Row) -> SigningKeys:
    tenant, keys, version = row
    return SigningKeys(tenant, _secrets(keys), version)


def event_type_row(it: EventType) -> Row:
    return (
        it.tenant,
        it.name,
        it.description,
        it.schema,
        it.sample,
        it.check or "",
        it.bytes,
        it.created_at,
        it.updated_at,
        it.version,
    )


def event_type(row: Row) -> EventType:
    tenant, name, description, schema, sample, check, _, created_at, updated_at, version = row
    return EventType(
        tenant=tenant,
        name=name,
        description=description,
        schema=schema,
        sample=sample,
        check=Check(check) if check else None,
        created_at=created_at,
        updated_at=updated_at,
        version=version,
    )


def type_summary(row: Row) -> TypeSummary:
    tenant, name, description, check, schema, sample, updated_at, version = row
    return TypeSummary(
        tenant,
        name,
        description,
        Check(check) if check else None,
        bool(schema),
        bool(sample),
        updated_at,
        version,
    )


def endpoint_row(endpoint: Endpoint) -> Row:
    health = endpoint.health
    return (
        endpoint.id,
        endpoint.bucket,
        endpoint.tenant,
        endpoint.url,
        endpoint.created_at,
        endpoint.generation,
        health.state,
        health.since,
        health.enabled_since,
        health.attempts,
        health.failures,
        health.consecutive_failures,
        health.first_attempt_at,
        health.last_success_at,
        health.manual_enable_at,
        health.warned,
        endpoint.next_probe_at,
        endpoint.probe_after_id,
        endpoint.hold_until,
        endpoint.dropped_unreported,
        endpoint.dropped_reported_at,
        endpoint.rule,
        int(endpoint.failing),
        endpoint.guard_passed,
        endpoint.guard_refused_at,
    )


def endpoint(row: Row) -> Endpoint:
    health = Health(State(row[6]), *row[7:16])
    return Endpoint(*(*row[:6], health, *row[16:22], row[22] != 0, *row[23:25]))


# --- events and deliveries ------------------------------------------------------------------


def event_row(new: NewEvent, position: int = 0) -> Row:
    event, deliveries = new.event, new.deliveries
    return (
        event.id,
        event.tenant,
        event.key,
        event.type,
        event.time,
        event.accepted_at,
        event.data,
        event.trace,
        event.context,
        event.order_key,
        event.warning,
        len(deliveries),
        deliveries[-1].id if deliveries else event.id,
        position,
    )


def event(row: Row) -> Event:
    """An event from the columns of ``event``, without the last two (deliveries, last_id)."""
    return Event(*row[:11])


def event_key_row(new: NewEvent) -> Row:
    return (new.event.tenant, new.event.key, new.event.id, new.content_hash())


def pending_row(it: Delivery, position: int = 0) -> Row:
    return (
        it.id,
        it.bucket,
        it.tenant,
        it.endpoint_id,
        it.subscription_id,
        it.event_id,
        it.root_id,
        it.accepted_at,
        it.part,
        it.due_at,
        it.expires_at,
        it.t0,
        it.retry,
        it.attempts,
        it.sender_errors,
        int(it.replay),
        it.cause_id,
        it.paused_ms,
        it.order_key or None,
        it.order_seq,
        it.unblocked_at,
        position or it.position,
    )


def pending(row: Row) -> Delivery:
    part = row[8]
    fair_part = part if part >= PART_FAIR else PART_FIRST
    if row[18] is None:
        ordered = (row[17], "", *row[19:22])
        return Delivery(*(*row[:8], *row[9:15], row[15] != 0, row[16], fair_part, *ordered))
    if part < 0:
        fair_part = PART_BLOCKED - part
    ordered = row[17:22]
    return Delivery(*(*row[:8], *row[9:15], row[15] != 0, row[16], fair_part, *ordered))


def work(row: Row) -> Work:
    """A delivery with its event, from the columns of both."""
    return Work(pending(row), event(row[PENDING_WIDTH:]))


def works(found: Iterable[Row]) -> dict[int, Work]:
    """Deliveries with their events, by id; those of one event share it."""
    events: dict[int, Event] = {}
    by_id: dict[int, Work] = {}
    for row in found:
        of = events.get(row[PENDING_WIDTH])
        if of is None:
            of = events[row[PENDING_WIDTH]] = event(row[PENDING_WIDTH:])
        by_id[row[0]] = Work(pending(row), of)
    return by_id


def history_row(finished: Finished, first_attempt: bytes | None = None) -> Row:
    """The inserted row; ``first_attempt`` if it succeeded at once (``first_attempt_column``)."""
    it = finished.delivery
    return (
        it.id,
        it.bucket,
        it.tenant,
        it.endpoint_id,
        it.subscription_id,
        it.event_id,
        it.root_id,
        it.accepted_at,
        it.due_at,
        it.expires_at,
        it.t0,
        it.retry,
        it.attempts,
        it.sender_errors,
        int(it.replay),
        finished.status,
        finished.reason,
        finished.finished_at,
        int(finished.arrived),
        it.cause_id,
        finished.superseded_by or None,
        first_attempt,
    )


def history_delivery(row: Row) -> Delivery:
    """The delivery from the columns of ``history``; a pending one has ``paused_ms`` in one."""
    moved_ms = row[18] if row[15] == "pending" else 0
    return Delivery(*(*row[:14], row[14] != 0, row[19], PART_FIRST, moved_ms))


def history(row: Row) -> Finished:
    delivery = history_delivery(row)
    reason = None if row[16] is None else Reason(row[16])
    return Finished(delivery, Status(row[15]), reason, row[17], row[18] != 0, row[20] or 0)


# --- attempts, causes and transitions -------------------------------------------------------


# Attempts written before these values were renamed keep their old text. They are not rewritten: the
# table can be large, retention removes them, and no statement compares these columns.
_OLD_OUTCOMES = {"ours": Outcome.SENDER_ERROR}
_OLD_FAILURES = {
    "our_dns": Failure.SENDER_DNS,
    "our_network": Failure.SENDER_NETWORK,
    "our_limits": Failure.SENDER_LIMITS,
    "our_tls": Failure.SENDER_TLS,
    "our_fault": Failure.SENDER_FAULT,
    "bad_answer": Failure.BAD_RESPONSE,
    "answer_too_large": Failure.RESPONSE_TOO_LARGE,
}


def _stored_outcome(text: str) -> Outcome:
    return _OLD_OUTCOMES.get(text) or Outcome(text)


def _stored_failure(text: str) -> Failure:
    return _OLD_FAILURES.get(text) or Failure(text)


def attempt_row(attempt: Attempt) -> Row:
    phases = attempt.phases
    return (
        attempt.delivery_id,
        attempt.number,
        attempt.endpoint_id,
        attempt.subscription_id,
        attempt.lane,
        attempt.started_at,
        attempt.finished_at,
        attempt.outcome,
        attempt.code,
        attempt.failure,
        storable(attempt.detail),
        attempt.address,
        phases.dns_us,
        phases.connect_us,
        phases.tls_us,
        phases.first_byte_us,
        phases.total_us,
        attempt.request_headers,
        attempt.response_headers,
        attempt.excerpt,
        attempt.decided,
        attempt.due_at,
        attempt.retry,
    )


def attempt(row: Row) -> Attempt:
    return Attempt(
        delivery_id=row[0],
        number=row[1],
        endpoint_id=row[2],
        subscription_id=row[3],
        lane=Lane(row[4]),
        started_at=row[5],
        finished_at=row[6],
        outcome=_stored_outcome(row[7]),
        code=row[8],
        failure=None if row[9] is None else _stored_failure(row[9]),
        detail=row[10],
        address=row[11],
        phases=Phases(*row[12:17]),
        request_headers=row[17],
        response_headers=row[18],
        excerpt=row[19],
        decided=Decided(row[20]),
        due_at=row[21],
        retry=row[22],
    )


class _FirstAttempt(msgspec.Struct, array_like=True, gc=False):
    """The values of a successful first attempt that the row of its delivery has not."""

    started_at: int
    code: int | None
    detail: str
    address: str | None
    phases: Phases
    request_headers: bytes
    response_headers: bytes


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_FirstAttempt).decode


# Python 3.11 looks up a member of an enum slowly.
_ARRIVED, _FRESH, _DONE = Outcome.DELIVERED, Lane.FRESH, Decided.DELIVERED


def succeeded_at_once(attempt: Attempt, done: Finished) -> bool:
    """Whether an attempt needs no row of its own: it is kept in its delivery's row of history."""
    delivery = done.delivery
    return (
        attempt.number == 1
        and attempt.outcome is _ARRIVED
        and attempt.lane is _FRESH
        and attempt.decided is _DONE
        and attempt.finished_at == done.finished_at
        and attempt.endpoint_id == delivery.endpoint_id
        and attempt.subscription_id == delivery.subscription_id
        and attempt.retry == delivery.retry
    )


def first_attempt_column(it: Attempt) -> bytes:
    detail, phases = storable(it.detail), it.phases
    headers = it.request_headers, it.response_headers
    return _pack((it.started_at, it.code, detail, it.address, phases, *headers))


def first_attempt(row: Row) -> Attempt:
    """From history: id, endpoint_id, subscription_id, finished_at, retry, first_attempt."""
    number, endpoint_id, subscription_id, finished_at, retry, packed = row
    it = _unpack(packed)
    return Attempt(
        delivery_id=number,
        number=1,
        endpoint_id=endpoint_id,
        subscription_id=subscription_id,
        lane=Lane.FRESH,
        started_at=it.started_at,
        finished_at=finished_at,
        outcome=Outcome.DELIVERED,
        code=it.code,
        failure=None,
        detail=it.detail,
        address=it.address,
        phases=it.phases,
        request_headers=it.request_headers,
        response_headers=it.response_headers,
        excerpt=b"",
        decided=Decided.DELIVERED,
        retry=retry,
    )


def first_attempt_start(packed: bytes) -> tuple[int, int | None]:
    """When a packed first attempt started, and the code of its response."""
    it = _unpack(packed)
    return it.started_at, it.code


def last_failure(row: Row) -> LastFailure:
    code, failure, detail = row
    return LastFailure(code, None if failure is None else _stored_failure(failure), detail)


def cause_row(cause: Cause) -> Row:
    key = cause.key
    return (
        cause.id,
        cause.tenant,
        cause.endpoint_id,
        key.failure,
        key.reason,
        key.code,
        cause.first_seen,
        cause.last_seen,
        cause.attempts,
        cause.deliveries,
        cause.example_id,
        cause.example_number,
        cause.closed_at,
    )


def cause(row: Row) -> Cause:
    return Cause(*(*row[:3], CauseKey(*row[3:6]), *row[6:13]))


def transition_row(change: Transition) -> Row:
    return (
        change.id,
        change.endpoint_id,
        change.at,
        change.before,
        change.after,
        change.rule,
        _json(change.numbers),
        storable(change.by),
    )


def transition(row: Row) -> Transition:
    return Transition(
        row[0],
        row[1],
        row[2],
        State(row[3]),
        State(row[4]),
        row[5],
        msgspec.json.decode(row[6], type=dict[str, int]),
        row[7],
    )


# --- cleanup jobs and replay jobs -----------------------------------------------------------------


def cleanup_job_row(cleanup_job: CleanupJob) -> Row:
    return (
        cleanup_job.id,
        cleanup_job.kind,
        cleanup_job.subscription_id,
        cleanup_job.endpoint_id,
        cleanup_job.after_id,
    )


def cleanup_job(row: Row) -> CleanupJob:
    return CleanupJob(*row)


def replay_job_row(job: ReplayJob) -> Row:
    return (
        job.id,
        _json(job.filter),
        job.created_at,
        job.state,
        job.upto_id,
        job.after_id,
        job.scanned,
        job.replayed,
        job.skipped,
        job.after_position,
        job.upto_position,
        job.made_at,
    )


def replay_job(row: Row) -> ReplayJob:
    return ReplayJob(row[0], msgspec.json.decode(row[1], type=ReplayFilter), *row[2:])


def erasure_row(it: Erasure) -> Row:
    return (
        it.id,
        it.tenant,
        it.kind,
        it.path,
        it.subject,
        it.created_at,
        it.event_id,
        it.version,
        int(it.more),
        it.events,
        it.deliveries,
        it.cancelled,
        it.finished_at,
        it.upto_position,
    )


def erasure(row: Row) -> Erasure:
    number, tenant, kind, path, subject, created_at, event_id, version, more, *counts = row
    return Erasure(
        number,
        tenant,
        ErasureKind(kind),
        path,
        bytes(subject),
        created_at,
        event_id,
        version,
        bool(more),
        *counts,
    )


# --- streams of subscriptions without a URL -------------------------------------------------


def pull_reader(row: Row) -> PullReader:
    return PullReader(*row[1:])


def pull_reader_row(subscription_id: int, reader: PullReader) -> Row:
    return subscription_id, reader.name, reader.position, reader.created_at, reader.acked_at
