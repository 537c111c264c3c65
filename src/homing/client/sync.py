"""``Homing``: the client that blocks. Any number of threads may share one.

    with Homing("https://homing.example", key) as homing:
        homing.publish("invoice.paid", {"invoice": 17})

Publishing always sets an id and is repeated until it is answered or ``timeout`` (in seconds, for
everything together) is over: the same id twice is one event. Other calls are repeated where doing
them twice is doing them once; the rest only when the request surely never left.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from homing.client import protocol
from homing.client.effort import Effort, Patience
from homing.client.errors import HomingClientError, Unavailable
from homing.client.filters import Tried, TryOn
from homing.client.http1 import Answer, read_site, write_request
from homing.client.idle import Idle
from homing.client.keys import Key, NewKey, Role, RotatedSubscription
from homing.client.pace import chance, monotonic, new_id
from homing.client.protocol import Call, Listing, read_answer
from homing.client.replays import ReplayCount, ReplayJob, ReplayWhere
from homing.client.sockets import SocketLine
from homing.client.status import ServerStatus
from homing.client.values import (
    Attempt,
    AttemptPage,
    AttemptsWhere,
    DeliveriesWhere,
    Delivery,
    DeliveryDetail,
    Endpoint,
    EndpointDetail,
    EndpointsWhere,
    Event,
    EventDetail,
    EventSummary,
    Ledger,
    NewSubscription,
    Receipt,
    Subscription,
    SubscriptionChanges,
    SubscriptionOptions,
)

T = TypeVar("T")


class Homing:
    """A Homing server, as a publisher or an operator sees it. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30.0,
        attempt_timeout: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._site = read_site(url, key)
        self._patience = Patience(timeout, attempt_timeout)
        self._context = (ssl_context or ssl.create_default_context()) if self._site.tls else None
        self._idle: Idle[SocketLine] = Idle()

    def close(self) -> None:
        """Hang up; the client cannot be used any more."""
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
        return f"{type(self).__name__}({self._site!r})"

    # --- events ------------------------------------------------------------------------------

    def publish(
        self,
        type: str,  # noqa: A002
        data: Any,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str | None = None,
        time: str | None = None,
    ) -> Receipt:
        """When it returns, the event and all its deliveries are on the server's disk."""
        event = Event(type=type, data=data, id=id, tenant=tenant, time=time)
        return self._do(protocol.publish(event, new_id))

    def publish_many(self, events: Iterable[Event]) -> list[Receipt]:
        """One batch of at most 1,000 events and 8 MiB: accepted whole or refused whole."""
        return self._do(protocol.publish_many(events, new_id))

    def publish_all(self, events: Iterable[Event]) -> Iterator[Receipt]:
        """Any number of events, batch by batch; the receipts come as the batches are accepted."""
        for call in protocol.publish_lines(events, new_id):
            yield from self._do(call)

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
        return self._do(protocol.event(id, tenant))

    # --- subscriptions -----------------------------------------------------------------------

    def subscribe(
        self, url: str, types: Sequence[str], **options: Unpack[SubscriptionOptions]
    ) -> NewSubscription:
        """Create a subscription; the answer holds its secret, which is never shown again."""
        return self._do(protocol.subscribe(url, types, options))

    def subscriptions(self, *, tenant: str | None = None) -> Iterator[Subscription]:
        """Subscriptions, newest first."""
        return self._each(protocol.subscriptions({"tenant": tenant}))

    def subscription(self, subscription_id: str) -> Subscription:
        """One subscription."""
        return self._do(protocol.subscription(subscription_id))

    def change_subscription(
        self, subscription_id: str, **changes: Unpack[SubscriptionChanges]
    ) -> Subscription:
        """Change what is given; what is pending goes by the new values."""
        return self._do(protocol.change_subscription(subscription_id, changes))

    def try_filters(
        self,
        filters: Sequence[Mapping[str, Any]],
        *,
        tenant: str | None = None,
        **on: Unpack[TryOn],
    ) -> Tried:
        """Whether filters match, and what decided: on data, an event, or the newest event."""
        return self._do(protocol.try_filters({"filters": filters, **on}, tenant))

    def delete_subscription(self, subscription_id: str) -> None:
        """No attempt starts after this returns; what is pending is cancelled."""
        self._do(protocol.delete_subscription(subscription_id))

    def rotate_secret(
        self, subscription_id: str, *, secret: str | None = None, overlap_ms: int | None = None
    ) -> RotatedSubscription:
        """Sign with a new secret, and for a while (24 h) with the old one beside it."""
        return self._do(protocol.rotate_secret(subscription_id, secret, overlap_ms))

    def test_subscription(self, subscription_id: str) -> Attempt:
        """One signed attempt now, in every state; it is logged and counts for nothing."""
        return self._do(protocol.test_subscription(subscription_id))

    # --- endpoints ---------------------------------------------------------------------------

    def endpoints(self, **where: Unpack[EndpointsWhere]) -> Iterator[Endpoint]:
        """Endpoints with their health, newest first."""
        return self._each(protocol.endpoints(where))

    def endpoint(self, endpoint_id: str) -> EndpointDetail:
        """One endpoint: since when and why it is in its state, and what waits for it."""
        return self._do(protocol.endpoint(endpoint_id))

    def enable_endpoint(self, endpoint_id: str) -> EndpointDetail:
        """Enable it from any state; its counters start again, what is overdue goes."""
        return self._do(protocol.enable_endpoint(endpoint_id))

    def freeze_endpoint(self, endpoint_id: str) -> EndpointDetail:
        """Nothing is attempted until it is enabled."""
        return self._do(protocol.freeze_endpoint(endpoint_id))

    # --- deliveries and replays --------------------------------------------------------------

    def deliveries(self, **where: Unpack[DeliveriesWhere]) -> Iterator[Delivery]:
        """Deliveries, pending and finished, newest first."""
        return self._each(protocol.deliveries(where))

    def delivery(self, delivery_id: str) -> DeliveryDetail:
        """A delivery with its attempts, the retries ahead, and why it is where it is."""
        return self._do(protocol.delivery(delivery_id))

    def attempts(self, *, cursor: str | None = None, **where: Unpack[AttemptsWhere]) -> AttemptPage:
        """The latest attempts, oldest first; with a cursor, those that came after it."""
        return self._do(protocol.attempts(where, cursor))

    def replay_delivery(self, delivery_id: str) -> DeliveryDetail:
        """Make a new delivery from a finished one; the answer says where it waits."""
        return self._do(protocol.replay_delivery(delivery_id))

    def cancel_delivery(self, delivery_id: str) -> DeliveryDetail:
        """Cancel a pending delivery."""
        return self._do(protocol.cancel_delivery(delivery_id))

    def count_replay(self, **where: Unpack[ReplayWhere]) -> ReplayCount:
        """How many finished deliveries a bulk replay would take."""
        return self._do(protocol.count_replay(where))

    def start_replay(self, **where: Unpack[ReplayWhere]) -> ReplayJob:
        """Replay all finished deliveries that fit."""
        return self._do(protocol.start_replay(where))

    def replay_job(self, job_id: str) -> ReplayJob:
        """A bulk replay and how far it is."""
        return self._do(protocol.replay_job(job_id))

    def cancel_replay(self, job_id: str) -> ReplayJob:
        """Stop a bulk replay; what it has replayed stays."""
        return self._do(protocol.cancel_replay(job_id))

    # --- keys --------------------------------------------------------------------------------

    def create_key(
        self, name: str, role: Role, *, tenant: str | None = None, expires: str | None = None
    ) -> NewKey:
        """Make a key; the answer holds it, and it is never shown again."""
        return self._do(protocol.create_key(name, role, tenant, expires))

    def keys(self, *, tenant: str | None = None) -> Iterator[Key]:
        """Keys, newest first, revoked ones included."""
        return self._each(protocol.keys({"tenant": tenant}))

    def revoke_key(self, key_id: str) -> None:
        """It opens nothing any more."""
        self._do(protocol.revoke_key(key_id))

    # --- the whole ---------------------------------------------------------------------------

    def ledger(self, *, tenant: str | None = None) -> list[Ledger]:
        """Per tenant: accepted = delivered + pending + dropped + cancelled."""
        return self._do(protocol.ledger(tenant))

    def status(self) -> ServerStatus:
        """How the process that answers is: its gate, its lanes, its store."""
        return self._do(protocol.status())

    def healthy(self) -> bool:
        """Whether what is due goes. Asked once; Unreachable if there is no answer."""
        return self._well(protocol.healthz())

    def ready(self) -> bool:
        """Whether it takes requests. Asked once; Unreachable if there is no answer."""
        return self._well(protocol.readyz())

    def metrics(self) -> str:
        """Metrics in the text format of Prometheus."""
        return self._do(protocol.metrics())

    # --- how ---------------------------------------------------------------------------------

    def _well(self, call: Call[bool]) -> bool:
        try:
            return self._do(call)
        except Unavailable:
            return False

    def _each(self, listing: Listing[T]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._do(listing.page(cursor))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _do(self, call: Call[T]) -> T:
        request = write_request(
            self._site, call.method, call.path, body=call.body, content_type=call.content_type
        )
        effort = Effort(call.again, self._patience, now=monotonic())
        while True:
            try:
                answer = self._exchange(request, until=effort.attempt_until(monotonic()))
                return read_answer(call, answer, maybe_done=effort.maybe_done)
            except HomingClientError as error:
                pause_s = effort.pause_s(error, now=monotonic(), chance=chance())
            time.sleep(pause_s)

    def _exchange(self, request: bytes, *, until: float) -> Answer:
        line = self._idle.take(monotonic())
        if line is None:
            line = SocketLine.open(self._site, self._context, until=until)
        try:
            answer = line.ask(request, until=until)
        except BaseException:
            line.close()
            raise
        if line.keep:
            self._idle.give(line, monotonic())
        else:
            line.close()
        return answer
