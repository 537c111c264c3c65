"""Values of the model as the API shows them: times and ids as text, secrets masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import asdict

from homing.languages.language import ENGLISH
from homing.languages.sentences import At, Sentence, rfc3339
from homing.model import (
    SPEC,
    Attempt,
    Cause,
    Endpoint,
    Event,
    Field,
    Kind,
    ReceiverState,
    Signature,
    State,
    Status,
    Subscription,
    Transition,
    show_id,
)
from homing.policy.admission import MASK, mask
from homing.policy.causes import key_of, title
from homing.policy.certificates import facts_of
from homing.policy.cloudevents import context_of
from homing.policy.exact import decode
from homing.policy.explain import explain_change, explain_endpoint
from homing.policy.health import HealthRules
from homing.policy.sent_headers import logged_lines
from homing.policy.signature import PublicKey
from homing.policy.workfront_ids import show_uuid
from homing.policy.workfront_warnings import workfront_warnings
from homing.ports import DeliveryRow, EventRow, Ledger, ReplayJob
from homing.ports.erasures import Erasure
from homing.ports.views import LastFailure
from homing.web.problems import FieldReason
from homing.web.schemas import (
    AttemptView,
    CauseSummary,
    CertificateView,
    CounterView,
    DeliveryView,
    EndpointView,
    ErasureView,
    EventDetail,
    EventView,
    FailureView,
    LedgerView,
    PhasesView,
    PublicKeyView,
    ReceiverView,
    ReplayFilterView,
    ReplayJobView,
    SecretView,
    SentencePart,
    SubscriptionView,
    TransitionView,
    UnmatchedView,
    WorkfrontView,
)

CAUSE = "cau"
DELIVERY = "dlv"
ENDPOINT = "ep"
ERASURE = "era"
REPLAY = "rpl"
SUBSCRIPTION = "sub"


def time_text(at_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return rfc3339(at_ms)


def time_or_none(at_ms: int | None) -> str | None:
    return None if at_ms is None else time_text(at_ms)


def sentence_parts(sentence: Sentence) -> list[SentencePart]:
    """The same text in parts, with each time apart."""
    return [
        SentencePart(time_text(it.ms), time_text(it.ms))
        if isinstance(it, At)
        else SentencePart(it, None)
        for it in sentence.pieces(ENGLISH)
    ]


def event_view(row: EventRow) -> EventView:
    event = row.event
    return EventView(
        id=event.key,
        tenant=event.tenant,
        type=event.type,
        time=event.time,
        key=event.order_key or None,
        accepted_at=time_text(event.accepted_at),
        deliveries=row.deliveries,
    )


def event_detail(
    event: Event,
    rows: list[DeliveryRow],
    unmatched: list[UnmatchedView],
    *,
    more: bool,
    unmatched_more: bool,
) -> EventDetail:
    return EventDetail(
        id=event.key,
        tenant=event.tenant,
        type=event.type,
        time=event.time,
        key=event.order_key or None,
        accepted_at=time_text(event.accepted_at),
        context=context_of(event),
        warning=event.warning or None,
        data=Raw(event.data),
        deliveries=[delivery_view(row) for row in rows],
        deliveries_more=more,
        unmatched=unmatched,
        unmatched_more=unmatched_more,
    )


def public_key_views(keys: Sequence[PublicKey]) -> list[PublicKeyView]:
    return [PublicKeyView(it.value, it.kid, time_or_none(it.until)) for it in keys]


def subscription_view(
    subscription: Subscription,
    keys_of: Callable[[str], Sequence[PublicKey]],
    *,
    in_list: bool = False,
) -> SubscriptionView:
    """A subscription; ``keys_of`` gives the public keys of a tenant."""
    uses_keys = subscription.signature is not Signature.HMAC
    return SubscriptionView(
        id=show_id(SUBSCRIPTION, subscription.id),
        tenant=subscription.tenant,
        endpoint=show_id(ENDPOINT, subscription.endpoint_id) if subscription.url else "",
        secrets=[
            SecretView(mask(secret.value), time_or_none(secret.until))
            for secret in subscription.secrets
        ],
        public_keys=public_key_views(keys_of(subscription.tenant)) if uses_keys else [],
        workfront=_workfront_view(subscription, in_list=in_list),
        certificate=_certificate_view(subscription),
        unverified=subscription.is_unverified,
        receiver=_receiver_view(subscription.receiver),
        paused_since=time_or_none(subscription.paused_since),
        created_at=time_text(subscription.created_at),
        updated_at=time_text(subscription.updated_at),
        **{name: _field_view(field, getattr(subscription, name)) for name, field in SPEC.items()},
    )


def _field_view(field: Field, value: Any) -> Any:
    """The value of a field as JSON shows it."""
    if field.kind is Kind.PAIRS:
        return {name: mask(text) if field.secret else text for name, text in value}
    if field.kind is Kind.FILTERS:
        return decode(value)
    if field.secret and value is not None:
        return MASK if field.masked_whole or field.kind is Kind.PEM else mask(value)
    return value


def _certificate_view(subscription: Subscription) -> CertificateView | None:
    facts = facts_of(subscription)
    if facts is None:
        return None
    expires_at = time_text(facts.expires_at)
    return CertificateView(facts.subject, facts.issuer, facts.fingerprint, expires_at)


def warnings_of(subscription: Subscription) -> list[FieldReason]:
    """What Adobe would refuse, ignore or never match of a Workfront subscription."""
    found = workfront_warnings(subscription, subscription.workfront)
    return [FieldReason(field, reason) for field, reason in found]


def _workfront_view(subscription: Subscription, *, in_list: bool) -> WorkfrontView | None:
    own = subscription.workfront
    if own is None:
        return None
    twin_of = None if own.twin_of is None else show_id(SUBSCRIPTION, own.twin_of)
    shown = show_uuid(own.twin_of or subscription.id)
    warnings = UNSET if in_list else warnings_of(subscription)
    return WorkfrontView(shown, own.version, own.base64, own.object_id, twin_of, warnings)


def _receiver_view(state: ReceiverState | None) -> ReceiverView | None:
    if state is None:
        return None
    return ReceiverView(
        time_or_none(state.gone_at),
        time_or_none(state.verified_at),
        time_or_none(state.asked_at),
        state.problem,
        state.per_minute_max,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        lane=attempt.lane,
        outcome=attempt.outcome,
        code=attempt.code,
        failure=attempt.failure,
        detail=attempt.detail,
        started_at=time_text(attempt.started_at),
        finished_at=time_text(attempt.finished_at),
        endpoint=show_id(ENDPOINT, attempt.endpoint_id),
        address=attempt.address,
        phases=PhasesView(**asdict(attempt.phases)),
        request_headers=_lines(logged_lines(attempt)),
        response_headers=_lines(attempt.response_headers),
        excerpt=attempt.excerpt.decode("utf-8", "replace"),
        decided=attempt.decided,
        retry=attempt.retry or None,
        due_at=time_or_none(attempt.due_at),
    )


def delivery_view(row: DeliveryRow) -> DeliveryView:
    delivery = row.delivery
    pending = row.status is Status.PENDING
    return DeliveryView(
        id=show_id(DELIVERY, delivery.id),
        tenant=delivery.tenant,
        status=row.status,
        reason=row.reason,
        event=row.event_key,
        type=row.event_type,
        key=row.order_key or None,
        subscription=show_id(SUBSCRIPTION, delivery.subscription_id),
        endpoint=show_id(ENDPOINT, delivery.endpoint_id),
        url=row.url,
        webhook_id=show_id(DELIVERY, delivery.root_id),
        replay=delivery.replay,
        attempts_made=delivery.attempts,
        last_failure=None if row.last_failure is None else _failure_view(row.last_failure),
        accepted_at=time_text(delivery.accepted_at),
        due_at=time_text(delivery.due_at) if pending else None,
        expires_at=time_text(delivery.expires_at) if pending else None,
        finished_at=time_or_none(row.finished_at),
        arrived=row.arrived,
    )


def _failure_view(last: LastFailure) -> FailureView:
    key = key_of(last.failure, last.detail, last.code)
    return FailureView(key.failure, key.reason, key.code, str(title(key)))


def cause_summary(cause: Cause) -> CauseSummary:
    return CauseSummary(
        id=show_id(CAUSE, cause.id),
        failure=cause.key.failure,
        reason=cause.key.reason,
        code=cause.key.code,
        title=str(title(cause.key)),
        open=cause.closed_at is None,
        first_seen=time_text(cause.first_seen),
        last_seen=time_text(cause.last_seen),
        closed_at=time_or_none(cause.closed_at),
        attempts=cause.attempts,
        deliveries=cause.deliveries,
    )


def endpoint_view(
    endpoint: Endpoint, rules: HealthRules, causes: Sequence[Cause], *, now: int
) -> EndpointView:
    health = endpoint.health
    disabled = health.state is State.DISABLED
    sentence = explain_endpoint(endpoint, rules, now=now, causes=causes)
    return EndpointView(
        id=show_id(ENDPOINT, endpoint.id),
        tenant=endpoint.tenant,
        url=endpoint.url,
        state=health.state,
        since=time_text(health.since),
        rule=endpoint.rule,
        sentence=str(sentence),
        sentence_parts=sentence_parts(sentence),
        counters=_counters(endpoint, rules, now=now),
        first_attempt_at=time_or_none(health.first_attempt_at),
        last_success_at=time_or_none(health.last_success_at),
        enabled_since=time_text(health.enabled_since),
        next_probe_at=time_or_none(endpoint.next_probe_at) if disabled else None,
        hold_until=time_text(endpoint.hold_until) if endpoint.hold_until > now else None,
        causes=[cause_summary(it) for it in causes],
        created_at=time_text(endpoint.created_at),
    )


def transition_view(change: Transition) -> TransitionView:
    return TransitionView(
        at=time_text(change.at),
        before=change.before,
        after=change.after,
        rule=change.rule,
        numbers=change.numbers,
        by=change.by,
        sentence=str(
            explain_change(change.before, change.after, change.rule, change.numbers, change.by)
        ),
    )


def erasure_view(it: Erasure) -> ErasureView:
    return ErasureView(
        id=show_id(ERASURE, it.id),
        tenant=it.tenant,
        kind=it.kind,
        field=it.path or None,
        state="running" if it.finished_at is None else "done",
        more=it.more,
        events=it.events,
        deliveries=it.deliveries,
        cancelled=it.cancelled,
        created_at=time_text(it.created_at),
        finished_at=time_or_none(it.finished_at),
    )


def replay_view(job: ReplayJob, *, waits: str | None = None) -> ReplayJobView:
    conditions = job.filter
    endpoint, subscription = conditions.endpoint_id, conditions.subscription_id
    return ReplayJobView(
        id=show_id(REPLAY, job.id),
        state=job.state,
        filter=ReplayFilterView(
            status=conditions.status,
            reason=conditions.reason,
            endpoint=None if endpoint is None else show_id(ENDPOINT, endpoint),
            subscription=None if subscription is None else show_id(SUBSCRIPTION, subscription),
            event=conditions.event_key,
            type=conditions.type,
            url=conditions.url,
            failure=conditions.failure,
            code=conditions.code,
            since=time_or_none(conditions.since),
            until=time_or_none(conditions.until),
            finished_since=time_or_none(conditions.finished_since),
            tenant=conditions.tenant,
            as_of=time_or_none(conditions.as_of),
            backfill=conditions.backfill,
        ),
        created_at=time_text(job.created_at),
        scanned=job.scanned,
        replayed=job.replayed,
        skipped=job.skipped,
        waits="" if waits is None else str(waits),
    )


def ledger_view(ledger: Ledger) -> LedgerView:
    parts = ledger.delivered + ledger.pending + ledger.dropped + ledger.cancelled
    parts += ledger.superseded
    return LedgerView(
        tenant=ledger.tenant,
        accepted=ledger.accepted,
        delivered=ledger.delivered,
        pending=ledger.pending,
        dropped=ledger.dropped,
        cancelled=ledger.cancelled,
        superseded=ledger.superseded,
        counted=ledger.counted,
        balanced=ledger.accepted == parts,
    )


def _lines(block: bytes) -> list[str]:
    return [line for line in block.decode("latin-1").split("\r\n") if line]


def _counters(endpoint: Endpoint, rules: HealthRules, *, now: int) -> list[CounterView]:
    health = endpoint.health
    percent = 100 * health.failures // health.attempts if health.attempts else 0
    marks = (health.last_success_at, health.first_attempt_at, health.manual_enable_at)
    alone_since = max((mark for mark in marks if mark is not None), default=now)
    row = health.consecutive_failures
    return [
        CounterView(
            "attempts",
            health.attempts,
            rules.rate_after_attempts,
            "since the endpoint was last enabled; above this limit the failure rate counts",
        ),
        CounterView("failures", health.failures, None, "since the endpoint was last enabled"),
        CounterView(
            "failure_percent",
            percent,
            rules.failure_percent,
            "of the attempts since it was last enabled; above this limit it is disabled",
        ),
        CounterView(
            "consecutive_failures",
            row,
            rules.consecutive_disable,
            "since the last success or manual enable; at this limit it is disabled",
        ),
        CounterView(
            "without_success_ms",
            max(now - alone_since, 0) if row else 0,
            rules.freeze_after_ms,
            "since the latest of last success, first attempt and manual enable; above this limit, "
            f"with more than {rules.consecutive_freeze:,} failures in a row, it is frozen",
        ),
        CounterView(
            "consecutive_failures_in_all",
            row,
            rules.consecutive_freeze_always,
            "the same failures in a row; at this limit it is frozen at once",
        ),
    ]
