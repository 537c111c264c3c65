"""One attempt: its request, written from the subscription as it is now, and its outcome.

Everything that does not change from one attempt to the next (address, header lines, HMAC states)
is prepared once per version of a subscription. The log gets a short form of the header lines, with
the secrets masked (``policy.sent_headers``).
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from homing import __version__
from homing.model import (
    Endpoint,
    Event,
    Format,
    Lane,
    Outcome,
    Signature,
    Subscription,
    Target,
    Work,
    show_id,
)
from homing.policy.authentication import authorization_lines
from homing.policy.certificates import identity_of
from homing.policy.cloudevents import binary_headers, key_line
from homing.policy.formats import body_writer
from homing.policy.oauth import credentials_of
from homing.policy.reach import REFUSED_SINCE, settings_changed
from homing.policy.sent_headers import prepared, short_form, signatures
from homing.policy.signature import Signer, TenantSigner
from homing.policy.trace import header_line
from homing.policy.url import parse_url
from homing.policy.workfront import frame_of
from homing.ports import Request, Response

_MASKED = b"****"


class CompletedAttempt(Struct, frozen=True, gc=False):
    """An attempt that has its response, or failed, and waits to be settled."""

    work: Work
    endpoint_id: int  # where it was sent; the subscription may have another by now
    lane: Lane
    number: int
    started_at: int
    finished_at: int
    header_lines: bytes  # their short form, for the log
    response: Response
    outcome: Outcome
    epoch: int = 1  # of the lease under which it was sent
    rank: int = 0  # of its endpoint when the attempt took its slot
    wall_ahead_ms: int = 0  # of steady time; read only with a Retry-After
    version: int = 0  # of its subscription when it was sent


def rested(attempt: CompletedAttempt) -> CompletedAttempt:
    """The attempt without its delivery's earlier sender-side failures, so that it waits only 5 s.

    The delivery of a probe keeps them, because its due time was counted from them.
    """
    if attempt.lane is Lane.PROBE or not attempt.work.delivery.sender_errors:
        return attempt
    work = replace(attempt.work, delivery=replace(attempt.work.delivery, sender_errors=0))
    return replace(attempt, work=work)


def as_sender_error(attempt: CompletedAttempt) -> CompletedAttempt:
    """The attempt with the outcome of a sender-side failure."""
    if attempt.outcome is not Outcome.FAILED:
        return attempt
    detail = f"seen in a sender outage: {attempt.response.detail}".rstrip(": ")
    response = replace(attempt.response, detail=detail)
    return replace(attempt, outcome=Outcome.SENDER_ERROR, response=response)


def refused(response: Response, endpoint: Endpoint, guard: int) -> tuple[Outcome, Response]:
    """The outcome of an attempt that the guard refused, and its response for the log.

    If the settings of this installation changed since the endpoint last passed the guard, the
    operator refuses it, and the receiver is not to blame.
    """
    if not settings_changed(endpoint.guard_passed, guard):
        return Outcome.FAILED, response
    return Outcome.SENDER_ERROR, replace(response, detail=str(REFUSED_SINCE))


class LastBody:
    """The last body that was written: the deliveries of one event usually start together."""

    __slots__ = ("_content", "_event", "_write")

    def __init__(self) -> None:
        self._event: Event | None = None
        self._write: Callable[[Event], bytes] | None = None
        self._content = b""

    def of(self, event: Event, write: Callable[[Event], bytes]) -> bytes:
        """The body of an event, written unless it is the last one."""
        if event is not self._event or write is not self._write:
            self._content = write(event)
            self._event, self._write = event, write
        return self._content


class RequestTemplate:
    """Writes the requests of one subscription."""

    __slots__ = (
        "_credentials",
        "_deadline_ms",
        "_form",
        "_in_headers",
        "_last_body",
        "_lines",
        "_masked",
        "_own",
        "_signer",
        "_signer_of",
        "_signers",
        "_target",
        "_tenant",
        "_tenant_signs",
        "_tls",
        "_trace_share",
        "_write_body",
        "version",
    )

    def __init__(
        self,
        subscription: Subscription,
        *,
        deadline_ms: int,
        signer_of: Callable[[str], TenantSigner | None] = lambda _tenant: None,
        trace_share: float | None = None,
        last_body: LastBody | None = None,
    ) -> None:
        self.version = subscription.version
        self._deadline_ms, self._trace_share = deadline_ms, trace_share
        self._tls = identity_of(subscription)
        self._target: Target = parse_url(subscription.url)[1]
        self._tenant = subscription.tenant
        own_bodies = subscription.format is Format.WORKFRONT
        frame = frame_of(subscription) if own_bodies else None
        self._write_body, content_type = body_writer(subscription.format, frame)
        self._form, self._lines = prepared(content_type)
        self._in_headers = subscription.format is Format.CLOUDEVENTS_BINARY
        self._last_body = last_body or LastBody()
        kind, self._signer_of = subscription.signature, signer_of
        secrets = subscription.secrets if kind is not Signature.ED25519 else ()
        self._signers = [(Signer(secret.value), secret.until) for secret in secrets]
        self._tenant_signs = kind is not Signature.HMAC
        only: tuple[Signer | None, int | None] = (None, None)
        if len(self._signers) == 1 and not self._tenant_signs:
            only = self._signers[0]
        self._signer = only[0] if only[1] is None else None  # Outside of a rotation there is one.
        self._credentials = credentials_of(subscription.tenant, subscription, self._tls)
        self._own, self._masked = authorization_lines(subscription)
        for name, value in subscription.headers:
            self._own += name.encode() + b": " + value.encode() + b"\r\n"
            self._masked += name.encode() + b": " + _MASKED + b"\r\n"

    def write(self, work: Work, *, number: int, now: int, wall: int) -> tuple[Request, bytes]:
        """The request of attempt ``number``, and the short form of its header lines for the log.

        ``wall`` is the wall clock, which receivers compare with theirs; the overlap of a rotation
        is a duration and goes by ``now``, steady time.
        """
        delivery, event = work.delivery, work.event
        content = self._last_body.of(event, self._write_body)
        delivery_id = webhook_id = show_id("dlv", delivery.id).encode()
        root_id = 0
        if delivery.root_id != delivery.id:
            root_id = delivery.root_id
            webhook_id = show_id("dlv", delivery.root_id).encode()
        seconds = wall // 1000
        timestamp = b"%d" % seconds
        if self._signer is not None:
            digests = self._signer.digest(webhook_id, timestamp, content)
            asymmetric = b""
            signed = b"v1," + b2a_base64(digests, newline=False)
        else:
            digests, asymmetric = self._digests(webhook_id, timestamp, content, now)
            signed = signatures(digests, asymmetric)
        kind = event.type
        block = self._lines % (webhook_id, timestamp, signed, kind.encode(), delivery_id, number)
        others = self._masked
        if self._in_headers:
            attributes = binary_headers(event)
            block, others = block + attributes, attributes + others
        if event.order_key:
            line = key_line(event)
            block, others = block + line, line + others
        if event.trace or self._trace_share is not None:
            trace = header_line(event, delivery.id, number, share=self._trace_share)
            block, others = block + trace, trace + others
        block, deadline_ms = block + self._own, self._deadline_ms
        request = Request(self._tenant, self._target, block, content, deadline_ms, self._tls)
        if self._credentials is not None:
            request = replace(request, credentials=self._credentials)
        logged = (self._form, __version__, seconds, digests, kind, others, root_id)
        if asymmetric:
            return request, short_form((*logged, asymmetric))
        return request, short_form(logged if others or root_id else logged[:5])

    def _digests(
        self, webhook_id: bytes, timestamp: bytes, content: bytes, now: int
    ) -> tuple[bytes, bytes]:
        """The signatures of the secrets, and of the tenant's keys, that sign at this time."""
        digests = b"".join(
            signer.digest(webhook_id, timestamp, content)
            for signer, until in self._signers
            if until is None or now < until
        )
        if not self._tenant_signs:
            return digests, b""
        # Asked each time: a rotation of the tenant's keys does not change its subscriptions.
        signer = self._signer_of(self._tenant)
        assert signer is not None, "a tenant with such a subscription has a signing key"
        return digests, b"".join(signer.digests(webhook_id, timestamp, content, now=now))


class RequestTemplates:
    """The templates in use; a changed subscription gets a new one."""

    def __init__(
        self,
        *,
        deadline_of: Callable[[Subscription], int],
        signer_of: Callable[[str], TenantSigner | None],
        trace_share: float | None = None,
        count_max: int = 10_000,
    ) -> None:
        self._templates: dict[int, RequestTemplate] = {}
        self._last_body = LastBody()
        self._deadline_of, self._count_max = deadline_of, count_max
        self._signer_of = signer_of
        self._trace_share = trace_share

    def of(self, subscription: Subscription) -> RequestTemplate:
        template = self._templates.get(subscription.id)
        if template is None or template.version != subscription.version:
            if len(self._templates) >= self._count_max:
                self._templates.clear()
            template = RequestTemplate(
                subscription,
                deadline_ms=self._deadline_of(subscription),
                signer_of=self._signer_of,
                trace_share=self._trace_share,
                last_body=self._last_body,
            )
            self._templates[subscription.id] = template
        return template
