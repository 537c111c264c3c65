# Generated from async_client.py by tools/generate_sync_client.py: do not edit.
"""``Homing``: the blocking client. Any number of threads may share one.

    with Homing("https://homing.example", key) as homing:
        homing.publish("invoice.paid", {"invoice": 17})

Publishing always sends an event id and is repeated until the server responds or ``timeout`` (in
seconds, for all attempts together) has passed: the same id twice is one event. A call whose
repetition has no further effect is repeated in the same way, every other call only if its request
was certainly not sent. With ``retry=False`` no call is repeated. Lists are iterators
that fetch the next page when it is needed.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from homing_client import protocol
from homing_client.connections import IdleConnections, SocketConnection
from homing_client.errors import HomingClientError, Unavailable
from homing_client.http1 import Response, read_server, write_request
from homing_client.protocol import Call, Listing, read_response
from homing_client.retries import RetryOptions, RetryState
from homing_client.subscription import (
    Subscription,
    SubscriptionChanges,
    SubscriptionOptions,
)
from homing_client.time_and_random import monotonic, new_id, random_fraction
from homing_client.values import (
    Attempt,
    AttemptLine,
    AttemptPage,
    AttemptsWhere,
    AuditEntry,
    AuditVerified,
    AuditWhere,
    Cause,
    CausesWhere,
    Check,
    DeliveriesWhere,
    Delivery,
    DeliveryDetail,
    Endpoint,
    EndpointAttemptsWhere,
    EndpointDetail,
    EndpointsWhere,
    Erasure,
    Event,
    EventDetail,
    EventsRead,
    EventSummary,
    EventType,
    EventTypeChanges,
    EventTypeSummary,
    FilterInput,
    FilterResult,
    Key,
    LanguageCode,
    Ledger,
    LostCommits,
    NewKey,
    NewNoticeTarget,
    NewPortalLink,
    NewSubscription,
    Notice,
    NoticeKind,
    NoticeTarget,
    NoticeTested,
    Portal,
    PortalLink,
    PortalRole,
    PortalTheme,
    Reader,
    ReadEvent,
    Receipt,
    ReplayCount,
    ReplayJob,
    ReplayWhere,
    Role,
    RotatedSubscription,
    SearchResult,
    ServerStatus,
    SigningKeys,
    TargetKind,
)

T = TypeVar("T")

WAIT_MARGIN_S = 2.0  # A read that waits ends so long before the timeout of its attempt.


class Homing:
    """A client of the Homing API. Threads may share it."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30.0,
        attempt_timeout: float = 10.0,
        retry: bool = True,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._server = read_server(url, key)
        self._options = RetryOptions(timeout, attempt_timeout, retry)
        self._context = (ssl_context or ssl.create_default_context()) if self._server.tls else None
        self._idle: IdleConnections[SocketConnection] = IdleConnections()

    def close(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        self._idle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server!r})"

    # --- events ------------------------------------------------------------------------------

    def publish(
        self,
        type: str,  # noqa: A002
        data: Any,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str | None = None,
        time: str | None = None,
        key: str | None = None,
        traceparent: str | None = None,
    ) -> Receipt:
        """Publish one event; on return, it and all its deliveries are on the server's disk.

        ``key`` is the object that the event is about, by which subscriptions may ask for order.
        ``traceparent`` (W3C Trace Context) is the trace that the receivers are told of.
        """
        event = Event(type=type, data=data, id=id, tenant=tenant, time=time, key=key)
        return self._call(protocol.publish(event, new_id, traceparent))

    def publish_many(
        self, events: Iterable[Event], *, traceparent: str | None = None
    ) -> list[Receipt]:
        """Publish one batch of at most 1,000 events and 8 MiB: all are accepted or none is."""
        return self._call(protocol.publish_many(events, new_id, traceparent))

    def publish_all(self, events: Iterable[Event]) -> Iterator[Receipt]:
        """Publish any number of events, batch by batch; yields receipts as batches are accepted."""
        for call in protocol.publish_lines(events, new_id):
            yield from self._call(call)

    def events(
        self,
        *,
        tenant: str | None = None,
        type: str | None = None,  # noqa: A002
    ) -> Iterator[EventSummary]:
        """Events, newest first."""
        return self._each(protocol.events({"tenant": tenant, "type": type}))

    def event(
        self,
        id: str,  # noqa: A002
        *,
        tenant: str | None = None,
    ) -> EventDetail:
        """An event with its data and its deliveries."""
        return self._call(protocol.event(id, tenant))

    # --- subscriptions -----------------------------------------------------------------------

    def subscribe(
        self,
        url: str | None,
        types: Sequence[str],
        *,
        since: str | None = None,
        per_second: int | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> NewSubscription:
        """Create a subscription; the result has its secret, which is never shown again.

        Without a URL nothing is sent: its events are read with ``stream`` or ``read_events``.
        With ``since``, a time or like 7d, it starts in the past: ``backfill`` of the result is the
        job that delivers the past events, ``per_second`` (100) of them.
        """
        return self._call(protocol.subscribe(url, types, options, since, per_second))

    def subscriptions(self, *, tenant: str | None = None) -> Iterator[Subscription]:
        """Subscriptions, newest first."""
        return self._each(protocol.subscriptions({"tenant": tenant}))

    def subscription(self, subscription_id: str) -> Subscription:
        """One subscription."""
        return self._call(protocol.subscription(subscription_id))

    def change_subscription(
        self, subscription_id: str, **changes: Unpack[SubscriptionChanges]
    ) -> Subscription:
        """Change the given fields; pending deliveries use the new values.

        A URL at another origin gets no secret that is only kept: send the token, password, client
        key and headers with it, or remove them with None.
        """
        return self._call(protocol.change_subscription(subscription_id, changes))

    def try_filters(
        self,
        filters: Sequence[Mapping[str, Any]],
        *,
        tenant: str | None = None,
        **on: Unpack[FilterInput],
    ) -> FilterResult:
        """Whether filters match given data, an event or the newest event, and what decided."""
        return self._call(protocol.try_filters({"filters": filters, **on}, tenant))

    def delete_subscription(self, subscription_id: str) -> None:
        """Delete a subscription: no attempt starts after this; pending deliveries are cancelled."""
        self._call(protocol.delete_subscription(subscription_id))

    def rotate_secret(
        self, subscription_id: str, *, secret: str | None = None, overlap_ms: int | None = None
    ) -> RotatedSubscription:
        """Sign with a new secret, and for the overlap (24 h) with the old one as well."""
        return self._call(protocol.rotate_secret(subscription_id, secret, overlap_ms))

    def signing_keys(self, *, tenant: str | None = None) -> SigningKeys:
        """The public keys with which requests of a tenant are verified, newest first."""
        return self._call(protocol.signing_keys(tenant))

    def rotate_signing_keys(
        self, *, tenant: str | None = None, overlap_ms: int | None = None
    ) -> SigningKeys:
        """Sign with a new Ed25519 key, and for the overlap (24 h) with the old one as well."""
        return self._call(protocol.rotate_signing_keys(tenant, overlap_ms))

    def lost_commits(self) -> LostCommits:
        """What failovers of the database have lost and no operator has confirmed."""
        return self._call(protocol.lost_commits())

    def confirm_lost_commits(self) -> LostCommits:
        """Confirm all losses, and return them; events that were held are accepted again."""
        return self._call(protocol.confirm_lost_commits())

    def jwks(self, *, tenant: str | None = None) -> dict[str, Any]:
        """The public keys of a tenant as a JWK set, which ``verify`` takes."""
        return self._call(protocol.jwks(tenant))

    def verify_subscription(self, subscription_id: str) -> Subscription:
        """Ask the receiver now to prove that it owns the URL."""
        return self._call(protocol.verify_subscription(subscription_id))

    def pause_subscription(self, subscription_id: str) -> Subscription:
        """Let its deliveries wait until it is resumed; windows do not run meanwhile."""
        return self._call(protocol.pause_subscription(subscription_id))

    def resume_subscription(self, subscription_id: str) -> Subscription:
        """End a pause: due times and windows have moved by its length."""
        return self._call(protocol.resume_subscription(subscription_id))

    def test_subscription(self, subscription_id: str) -> Attempt:
        """Send one signed request now, whatever the state; it does not count for health."""
        return self._call(protocol.test_subscription(subscription_id))

    # --- events that are read ----------------------------------------------------------------

    def stream(
        self, subscription_id: str, *, reader: str = "default", from_now: bool = False
    ) -> Iterator[ReadEvent]:
        """The events of a subscription without a URL, in order; waits for the next ones, for ever.

        Events are acknowledged page by page; if the loop ends within a page, up to the last event
        that it has handled. After a crash those that were not acknowledged come again. Give every
        program its own ``reader``. A new reader begins with the oldest event, or, with
        ``from_now``, with the next one.
        """
        cursor: str | None = None
        while True:
            page = self.read_events(
                subscription_id,
                reader=reader,
                after=cursor,
                from_now=from_now,
                wait_s=max(self._options.attempt_timeout_s - WAIT_MARGIN_S, 0.0),
            )
            handled: str | None = None
            try:
                for event in page.events:
                    yield event
                    handled = event.cursor
            finally:  # Also when the caller stops in the middle of a page.
                if handled is not None:
                    self.acknowledge(subscription_id, handled, reader=reader)
            cursor = page.cursor

    def read_events(
        self,
        subscription_id: str,
        *,
        reader: str = "default",
        after: str | None = None,
        from_now: bool = False,
        limit: int = 100,
        wait_s: float = 0.0,
    ) -> EventsRead:
        """The events after a cursor, or those that the reader has not acknowledged.

        If there is none, the server waits for one for up to ``wait_s``, at most a minute.
        """
        return self._call(
            protocol.read_events(
                subscription_id,
                reader=reader,
                after=after,
                from_now=from_now,
                limit=limit,
                wait_s=wait_s,
            )
        )

    def acknowledge(self, subscription_id: str, cursor: str, *, reader: str = "default") -> Reader:
        """Acknowledge all events up to a cursor."""
        return self._call(protocol.acknowledge(subscription_id, cursor, reader=reader))

    def readers(self, subscription_id: str) -> list[Reader]:
        """The readers of a subscription without a URL, and how far each is."""
        return self._call(protocol.readers(subscription_id))

    def remove_reader(self, subscription_id: str, reader: str) -> None:
        """Remove a reader; read again, it begins with the oldest event."""
        self._call(protocol.remove_reader(subscription_id, reader))

    # --- endpoints ---------------------------------------------------------------------------

    def endpoints(self, **where: Unpack[EndpointsWhere]) -> Iterator[Endpoint]:
        """Endpoints with their health, newest first."""
        return self._each(protocol.endpoints(where))

    def endpoint(self, endpoint_id: str) -> EndpointDetail:
        """One endpoint: its state with the reason, and how many deliveries wait for it."""
        return self._call(protocol.endpoint(endpoint_id))

    def enable_endpoint(self, endpoint_id: str) -> EndpointDetail:
        """Enable an endpoint: its counters are reset, overdue deliveries are sent."""
        return self._call(protocol.enable_endpoint(endpoint_id))

    def freeze_endpoint(self, endpoint_id: str) -> EndpointDetail:
        """Freeze an endpoint: nothing is attempted until it is enabled."""
        return self._call(protocol.freeze_endpoint(endpoint_id))

    def endpoint_attempts(
        self, endpoint_id: str, **where: Unpack[EndpointAttemptsWhere]
    ) -> Iterator[AttemptLine]:
        """The attempts of an endpoint, newest first."""
        return self._each(protocol.endpoint_attempts(endpoint_id, where))

    def causes(self, **where: Unpack[CausesWhere]) -> Iterator[Cause]:
        """Why endpoints fail, since when, and how often; the newest cause first."""
        return self._each(protocol.causes(where))

    # --- deliveries and replays --------------------------------------------------------------

    def deliveries(self, **where: Unpack[DeliveriesWhere]) -> Iterator[Delivery]:
        """Deliveries, pending and finished, newest first."""
        return self._each(protocol.deliveries(where))

    def delivery(self, delivery_id: str) -> DeliveryDetail:
        """A delivery with its attempts, the retries ahead, and an explanation of its status."""
        return self._call(protocol.delivery(delivery_id))

    def attempts(self, *, cursor: str | None = None, **where: Unpack[AttemptsWhere]) -> AttemptPage:
        """The latest attempts, oldest first; with a cursor, those after it."""
        return self._call(protocol.attempts(where, cursor))

    def replay_delivery(self, delivery_id: str) -> DeliveryDetail:
        """Create a new delivery from a finished one; returns the new one."""
        return self._call(protocol.replay_delivery(delivery_id))

    def try_delivery(self, delivery_id: str) -> DeliveryDetail:
        """Make the next retry of a pending delivery now; its endpoint must be enabled."""
        return self._call(protocol.try_delivery(delivery_id))

    def cancel_delivery(self, delivery_id: str) -> DeliveryDetail:
        """Cancel a pending delivery."""
        return self._call(protocol.cancel_delivery(delivery_id))

    def count_replay(self, **where: Unpack[ReplayWhere]) -> ReplayCount:
        """How many finished deliveries a bulk replay would replay."""
        return self._call(protocol.count_replay(where))

    def start_replay(self, **where: Unpack[ReplayWhere]) -> ReplayJob:
        """Replay all finished deliveries that match."""
        return self._call(protocol.start_replay(where))

    def count_past(self, subscription_id: str, *, since: str) -> ReplayCount:
        """How many past events a backfill would deliver; ``since`` is a time, or like 7d."""
        return self._call(protocol.count_past(subscription_id, since))

    def backfill(
        self, subscription_id: str, *, since: str, per_second: int | None = None
    ) -> ReplayJob:
        """Deliver past events that a subscription has no delivery of, as a job like a replay."""
        return self._call(protocol.backfill(subscription_id, since, per_second))

    def replay_job(self, job_id: str) -> ReplayJob:
        """A bulk replay and its progress."""
        return self._call(protocol.replay_job(job_id))

    def cancel_replay(self, job_id: str) -> ReplayJob:
        """Stop a bulk replay; deliveries that it has made stay."""
        return self._call(protocol.cancel_replay(job_id))

    # --- erasures ----------------------------------------------------------------------------

    def erase_event(self, event_id: str, *, tenant: str | None = None) -> Erasure:
        """Erase an event: from now on nothing of it is shown or sent."""
        return self._call(protocol.erase({"event": event_id, "tenant": tenant}))

    def erase_field(self, field: str, value: str, *, tenant: str | None = None) -> Erasure:
        """Erase the events with this value at a payload field; again while it has ``more``."""
        what = {"field": field, "value": value, "tenant": tenant}
        return self._call(protocol.erase(what))

    def erase_tenant(self, tenant: str) -> Erasure:
        """Erase everything that a tenant has."""
        return self._call(protocol.erase({"everything": True, "tenant": tenant}))

    def erasure(self, erasure_id: str) -> Erasure:
        """An erasure and its progress."""
        return self._call(protocol.erasure(erasure_id))

    def erasures(self, *, tenant: str | None = None) -> Iterator[Erasure]:
        """Erasures, newest first."""
        return self._each(protocol.erasures({"tenant": tenant}))

    # --- keys --------------------------------------------------------------------------------

    def create_key(
        self, name: str, role: Role, *, tenant: str | None = None, expires: str | None = None
    ) -> NewKey:
        """Create an API key; the result has the key itself, which is never shown again."""
        return self._call(protocol.create_key(name, role, tenant, expires))

    def keys(self, *, tenant: str | None = None) -> Iterator[Key]:
        """API keys, newest first, including revoked ones."""
        return self._each(protocol.keys({"tenant": tenant}))

    def revoke_key(self, key_id: str) -> None:
        """Revoke an API key: the server refuses it from now on."""
        self._call(protocol.revoke_key(key_id))

    # --- the customer portal -------------------------------------------------------------------

    def create_portal_link(
        self,
        *,
        tenant: str | None = None,
        role: PortalRole = "viewer",
        subject: str = "",
        open_within: str | None = None,
        session: str | None = None,
    ) -> NewPortalLink:
        """A link that opens the customer portal once; its URL is returned only here."""
        given = {
            "tenant": tenant,
            "role": role,
            "subject": subject,
            "open_within": open_within,
            "session": session,
        }
        return self._call(protocol.create_portal_link(given))

    def portal_links(self, *, tenant: str | None = None) -> Iterator[PortalLink]:
        """Links to the customer portal and their sessions, newest first."""
        return self._each(protocol.portal_links({"tenant": tenant}))

    def revoke_portal_link(self, link_id: str) -> None:
        """Revoke a link: it and its session end at once."""
        self._call(protocol.revoke_portal_link(link_id))

    def portal(self, *, tenant: str | None = None) -> Portal:
        """How the customer portal of a tenant looks."""
        return self._call(protocol.portal(tenant))

    def change_portal(
        self,
        *,
        tenant: str | None = None,
        name: str | None = None,
        accent_color: str | None = None,
        header_color: str | None = None,
        theme: PortalTheme | None = None,
        frame_ancestors: Sequence[str] | None = None,
        logo: str | None = None,
    ) -> Portal:
        """Change how the portal of a tenant looks; None leaves a field, logo="" removes the logo.

        ``logo`` is a data URL.
        """
        fields: dict[str, Any] = {
            "name": name,
            "accent_color": accent_color,
            "header_color": header_color,
            "theme": theme,
            "frame_ancestors": None if frame_ancestors is None else list(frame_ancestors),
            "logo": logo,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        if logo == "":
            given["logo"] = None
        return self._call(protocol.change_portal(tenant, given))

    # --- the audit log -----------------------------------------------------------------------

    def audit(self, **where: Unpack[AuditWhere]) -> Iterator[AuditEntry]:
        """Who changed what and when, newest first."""
        return self._each(protocol.audit(where))

    def verify_audit(self, *, after: int | None = None) -> AuditVerified:
        """Verify a few segments of the audit log after this number."""
        return self._call(protocol.verify_audit(after))

    # --- event types -------------------------------------------------------------------------

    def create_event_type(
        self,
        name: str,
        *,
        description: str = "",
        schema: Any = None,
        sample: Any = None,
        check: Check | None = None,
        tenant: str | None = None,
    ) -> EventType:
        """Describe a type of events; ``schema`` is a JSON Schema of the data of its events."""
        fields = {
            "name": name,
            "description": description,
            "schema": schema,
            "sample": sample,
            "check": check,
            "tenant": tenant,
        }
        return self._call(protocol.create_event_type(fields))

    def event_types(self, *, tenant: str | None = None) -> Iterator[EventTypeSummary]:
        """Event types by tenant and name."""
        return self._each(protocol.event_types({"tenant": tenant}))

    def event_type(self, name: str, *, tenant: str | None = None) -> EventType:
        """One event type with its schema and sample."""
        return self._call(protocol.event_type(name, tenant))

    def change_event_type(
        self, name: str, *, tenant: str | None = None, **changes: Unpack[EventTypeChanges]
    ) -> EventType:
        """Change the given fields of an event type; None removes a schema or a sample."""
        return self._call(protocol.change_event_type(name, changes, tenant))

    def delete_event_type(self, name: str, *, tenant: str | None = None) -> None:
        """Delete an event type; events that were accepted stay as they are."""
        self._call(protocol.delete_event_type(name, tenant))

    def event_types_openapi(self, *, tenant: str | None = None) -> dict[str, Any]:
        """All event types of a tenant as an OpenAPI 3.1 document."""
        return self._call(protocol.event_types_openapi(tenant))

    # --- notices -----------------------------------------------------------------------------

    def create_notice_target(
        self,
        kind: TargetKind,
        address: str,
        *,
        name: str = "",
        tenant: str | None = None,
        operator: bool = False,
        notices: Sequence[NoticeKind] = (),
        quiet_hours: str = "",
        time_zone: str = "UTC",
        language: LanguageCode = "en",
    ) -> NewNoticeTarget:
        """Create a target of notices; an e-mail address of a tenant gets a link first."""
        fields = {
            "kind": kind,
            "address": address,
            "name": name,
            "tenant": tenant,
            "operator": operator,
            "notices": list(notices),
            "quiet_hours": quiet_hours,
            "time_zone": time_zone,
            "language": language,
        }
        return self._call(protocol.create_notice_target(fields))

    def notice_targets(self, *, tenant: str | None = None) -> Iterator[NoticeTarget]:
        """Targets of notices, newest first."""
        return self._each(protocol.notice_targets({"tenant": tenant}))

    def notice_target(self, target_id: str) -> NoticeTarget:
        """One target of notices, with the error of its last attempt."""
        return self._call(protocol.notice_target(target_id))

    def change_notice_target(
        self,
        target_id: str,
        *,
        name: str | None = None,
        notices: Sequence[NoticeKind] | None = None,
        quiet_hours: str | None = None,
        time_zone: str | None = None,
        language: LanguageCode | None = None,
    ) -> NoticeTarget:
        """Change the name, kinds of notices, quiet hours or language; None leaves a field."""
        fields = {
            "name": name,
            "notices": None if notices is None else list(notices),
            "quiet_hours": quiet_hours,
            "time_zone": time_zone,
            "language": language,
        }
        given = {field: value for field, value in fields.items() if value is not None}
        return self._call(protocol.change_notice_target(target_id, given))

    def rotate_notice_target_secret(self, target_id: str) -> NewNoticeTarget:
        """Sign the notices to a webhook with a new secret, which is returned only here."""
        return self._call(protocol.rotate_notice_target_secret(target_id))

    def send_notice_target_link(self, target_id: str) -> NoticeTarget:
        """Send the link that confirms an e-mail address again; at most one in five minutes."""
        return self._call(protocol.send_notice_target_link(target_id))

    def delete_notice_target(self, target_id: str) -> None:
        """Delete a target; notices that wait for it are skipped."""
        self._call(protocol.delete_notice_target(target_id))

    def test_notice_target(self, target_id: str) -> NoticeTested:
        """Send a test notice now."""
        return self._call(protocol.test_notice_target(target_id))

    def notices(self, *, tenant: str | None = None, target: str | None = None) -> Iterator[Notice]:
        """Notices to people with their status, newest first."""
        return self._each(protocol.notices({"tenant": tenant, "target": target}))

    # --- the server --------------------------------------------------------------------------

    def search(self, text: str, *, tenant: str | None = None) -> SearchResult:
        """What a text names: an id, an event id, a URL or a part of it, a type, a payload field."""
        return self._call(protocol.search(text, tenant))

    def ledger(self, *, tenant: str | None = None) -> list[Ledger]:
        """Per tenant: accepted = delivered + pending + dropped + cancelled + superseded."""
        return self._call(protocol.ledger(tenant))

    def status(self) -> ServerStatus:
        """The state of the process that responds: outage detection, lanes, store."""
        return self._call(protocol.status())

    def egress(self) -> list[str]:
        """The networks that requests to receivers come from; NotFound: the operator set none."""
        return self._call(protocol.egress())

    def healthy(self) -> bool:
        """Whether due deliveries are being sent. Not repeated; raises Unreachable."""
        return self._is_ok(protocol.healthz())

    def ready(self) -> bool:
        """Whether the server accepts requests. Not repeated; raises Unreachable."""
        return self._is_ok(protocol.readyz())

    def metrics(self) -> str:
        """Metrics in the Prometheus text format."""
        return self._call(protocol.metrics())

    # --- requests ----------------------------------------------------------------------------

    def _is_ok(self, call: Call[bool]) -> bool:
        try:
            return self._call(call)
        except Unavailable:
            return False

    def _each(self, listing: Listing[T]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._call(listing.page(cursor))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _call(self, call: Call[T]) -> T:
        request = write_request(
            self._server,
            call.method,
            call.path,
            body=call.body,
            content_type=call.content_type,
            trace=call.trace,
        )
        state = RetryState(call.retry, self._options, now=monotonic())
        while True:
            try:
                deadline = state.attempt_deadline(monotonic())
                response = self._exchange(request, deadline=deadline)
                return read_response(call, response, maybe_done=state.maybe_done)
            except HomingClientError as error:
                pause_s = state.pause_s(error, now=monotonic(), random_fraction=random_fraction())
            time.sleep(pause_s)

    def _exchange(self, request: bytes, *, deadline: float) -> Response:
        connection = self._idle.take(monotonic())
        if connection is None:
            connection = SocketConnection.open(self._server, self._context, deadline=deadline)
        try:
            response = connection.exchange(request, deadline=deadline)
        except BaseException:
            connection.close()
            raise
        if connection.reusable:
            self._idle.put(connection, monotonic())
        else:
            connection.close()
        return response
