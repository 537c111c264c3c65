"""Why an endpoint fails: the cause of a failed attempt, and when a cause opens, closes and returns.

Every failed attempt belongs to one cause of its endpoint: a failure class, a sub-reason and a
status code. A cause is open until the endpoint's next success. A cause that returns within an hour
of that success continues, with its first-seen time and its counts; after that hour, the same
failure is a new cause. An endpoint has at most CAUSES_MAX causes that are open or may return;
failures beyond them belong to ``other``. Sender-side failures belong to no cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from homing.languages.sentences import Sentence, say
from homing.model import Cause, CauseKey, Failure, Outcome
from homing.policy.failure_text import failure_text

HTTP_STATUS = "http_status"  # the failure class of a response that is not 2xx
CLASSES = (HTTP_STATUS, *(it.value for it in Failure))  # all failure classes
CODES = range(100, 600)
OTHER = CauseKey("other")
RETURN_MS = 3_600_000  # a cause that returns within this time continues
CAUSES_MAX = 32  # of one endpoint, open or closed within RETURN_MS; further failures are OTHER

# A part of the detail, and the sub-reason. The first entry that matches counts.
_REASONS: dict[Failure, tuple[tuple[str, str], ...]] = {
    Failure.TLS: (
        ("alert certificate required", "no_client_certificate"),
        ("alert bad certificate", "client_certificate"),
        ("alert unknown ca", "client_certificate"),
        ("alert certificate", "client_certificate"),
        ("alert unsupported certificate", "client_certificate"),
        ("alert access denied", "client_certificate"),
        ("self-signed certificate", "self_signed"),
        ("self signed certificate", "self_signed"),
        ("certificate has expired", "expired"),
        ("certificate is not yet valid", "not_yet_valid"),
        ("certificate revoked", "revoked"),
        ("mismatch, certificate is not valid for", "name_mismatch"),
        ("it does not fit the name", "name_mismatch"),
        ("issuer certificate", "unknown_authority"),
        ("verify the first certificate", "unknown_authority"),
        ("too weak", "weak"),
        ("wrong version number", "not_tls"),
        ("http request", "not_tls"),
        ("record layer failure", "not_tls"),
        ("unsupported protocol", "old_protocol"),
        ("protocol version", "old_protocol"),
        ("closed by the peer", "closed"),
        ("alert", "refused_by_peer"),
    ),
    Failure.TIMEOUT: (("TLS handshake", "handshake"),),
    Failure.DNS: (
        ("has no address", "no_address"),
        ("unknown host", "unknown_host"),
        ("can be looked up", "bad_name"),
    ),
    Failure.TOKEN: (
        (" invalid_client", "invalid_client"),
        (" unauthorized_client", "unauthorized_client"),
        (" invalid_scope", "invalid_scope"),
        (" invalid_target", "invalid_audience"),
        (" invalid_request", "invalid_request"),
        (" invalid_grant", "invalid_grant"),
        (" unsupported_grant_type", "unsupported"),
        (" responded 2", "bad_response"),
        (" responded 3", "redirect"),
        (" responded 4", "refused"),
        (" responded 5", "server_error"),
        (" sent ", "bad_response"),
        (" failed: no response in time", "timeout"),
        (" failed: TLS", "tls"),
        (" failed: DNS", "dns"),
        (" failed: ", "unreachable"),
    ),
}
_REASON_TEXTS = {
    (Failure.TLS, "no_client_certificate"): say("client certificate required"),
    (Failure.TLS, "client_certificate"): say("client certificate refused"),
    (Failure.TLS, "self_signed"): say("self-signed certificate"),
    (Failure.TLS, "expired"): say("certificate expired"),
    (Failure.TLS, "not_yet_valid"): say("certificate not yet valid"),
    (Failure.TLS, "revoked"): say("certificate revoked"),
    (Failure.TLS, "name_mismatch"): say("certificate for another name"),
    (Failure.TLS, "unknown_authority"): say("certificate of an unknown authority"),
    (Failure.TLS, "weak"): say("certificate too weak"),
    (Failure.TLS, "not_tls"): say("the server does not speak TLS"),
    (Failure.TLS, "old_protocol"): say("TLS version not supported"),
    (Failure.TLS, "closed"): say("connection closed in the handshake"),
    (Failure.TLS, "refused_by_peer"): say("handshake refused by the server"),
    (Failure.TIMEOUT, "handshake"): say("TLS handshake not finished in time"),
    (Failure.DNS, "no_address"): say("name without an address"),
    (Failure.DNS, "unknown_host"): say("unknown host"),
    (Failure.DNS, "bad_name"): say("not a host name"),
    (Failure.TOKEN, "invalid_client"): say("client refused (invalid_client)"),
    (Failure.TOKEN, "unauthorized_client"): say("client not authorized"),
    (Failure.TOKEN, "invalid_scope"): say("scope refused (invalid_scope)"),
    (Failure.TOKEN, "invalid_audience"): say("audience refused (invalid_target)"),
    (Failure.TOKEN, "invalid_request"): say("request refused (invalid_request)"),
    (Failure.TOKEN, "invalid_grant"): say("grant refused (invalid_grant)"),
    (Failure.TOKEN, "unsupported"): say("client credentials not supported"),
    (Failure.TOKEN, "bad_response"): say("response without a usable token"),
    (Failure.TOKEN, "redirect"): say("response is a redirect, which is not followed"),
    (Failure.TOKEN, "refused"): say("request refused"),
    (Failure.TOKEN, "server_error"): say("server error"),
    (Failure.TOKEN, "timeout"): say("no response in time"),
    (Failure.TOKEN, "tls"): say("TLS handshake failed"),
    (Failure.TOKEN, "dns"): say("unknown host"),
    (Failure.TOKEN, "unreachable"): say("no connection"),
}


def class_of(failure: Failure | None, code: int | None) -> str:
    """One of CLASSES. A status that arrived counts, whatever happened after it."""
    if code is not None:
        return HTTP_STATUS
    assert failure is not None, "a failed attempt has a status code or a failure"
    return failure.value


def key_of(failure: Failure | None, detail: str, code: int | None) -> CauseKey:
    """The cause of a failed attempt."""
    found = class_of(failure, code)
    if code is not None or failure is None:
        return CauseKey(found, "", code)
    for part, reason in _REASONS.get(failure, ()):
        if part in detail:
            return CauseKey(found, reason)
    return CauseKey(found)


def title(key: CauseKey) -> str:
    """A cause in a few words: ``503 Service Unavailable``, ``TLS: self-signed certificate``.

    A Sentence, unless the title is a status.
    """
    if key == OTHER:
        return say("various failures")
    if key.code is not None:
        return failure_text(key.code, None)
    failure, reason = Failure(key.failure), reason_text(key)
    if reason is None:
        return failure_text(None, failure)
    match failure:
        case Failure.TLS:
            return say("TLS: {reason}", reason=reason)
        case Failure.DNS:
            return say("DNS: {reason}", reason=reason)
        case Failure.TIMEOUT:
            return say("timeout: {reason}", reason=reason)
        case _:  # Failure.TOKEN: no other failure has sub-reasons.
            return say("token endpoint: {reason}", reason=reason)


def reason_text(key: CauseKey) -> Sentence | None:
    """The sub-reason of a cause: ``self-signed certificate``; None if it has none."""
    if not key.reason:
        return None
    return _REASON_TEXTS.get((Failure(key.failure), key.reason))


def is_of_class(wanted: str, outcome: str, code: int | None, failure: str | None) -> bool:
    """Whether an attempt with this outcome, code and failure failed with this failure class."""
    if wanted == HTTP_STATUS:
        return code is not None and outcome == Outcome.FAILED
    return code is None and failure == wanted


def failure_problem(value: str) -> str | None:
    """The reason why this is not a failure class; None if it is one."""
    return None if value in CLASSES else say("must be one of {names}", names=", ".join(CLASSES))


def code_problem(value: int) -> str | None:
    """The reason why this is not a status code; None if it is one."""
    if value in CODES:
        return None
    return say(
        "must be a status code from {min} to {max}, like 503", min=CODES.start, max=CODES.stop - 1
    )


# --- open, close, return --------------------------------------------------------------------------


class Failures(Struct, gc=False, array_like=True):
    """The failed attempts of one endpoint and key in a batch; ``add`` is called in their order."""

    id: int  # of the cause, if it is a new one
    tenant: str
    endpoint_id: int
    key: CauseKey
    first_seen: int
    last_seen: int = 0
    example_id: int = 0
    example_number: int = 0
    deliveries: list[tuple[int, int]] = []  # each with the cause of its previous failed attempt
    closed_at: int | None = None  # the first success after ``last_seen`` in the same batch

    def add(self, at: int, delivery_id: int, number: int, cause_before: int) -> None:
        """Count an attempt that failed at this time."""
        self.last_seen, self.closed_at = at, None
        self.example_id, self.example_number = delivery_id, number
        self.deliveries.append((delivery_id, cause_before))

    def close(self, at: int) -> None:
        """Note a success of the endpoint."""
        if self.closed_at is None:
            self.closed_at = at


class EndpointCauses:
    """The causes of one endpoint while a batch is settled.

    ``known`` are its causes that are open, or were closed within RETURN_MS.
    """

    def __init__(self, known: Iterable[Cause]) -> None:
        self._now: dict[CauseKey, Cause] = {}
        for cause in sorted(known, key=lambda it: it.id):  # The newest of a key counts.
            self._now[cause.key] = cause
        self.changed: dict[int, Cause] = {}
        self.opened: list[Cause] = []  # those now open that were new or closed before
        self.cause_of: dict[int, int] = {}  # by delivery

    def recover(self, at: int) -> None:
        """Close the open causes: the endpoint was failing, and this is its first success."""
        for cause in list(self._now.values()):
            if cause.closed_at is None:
                self._put(replace(cause, closed_at=max(at, cause.last_seen)))

    def add(self, failures: Iterable[Failures]) -> None:
        """Add the failed attempts of the batch; those beyond CAUSES_MAX go to OTHER."""
        beyond: list[Failures] = []
        for seen in failures:
            if seen.key in self._now or len(self._now) < CAUSES_MAX:
                self._add(seen, seen.key)
            else:
                beyond.append(seen)
        if beyond:
            self._add(_together(beyond), OTHER)

    def _add(self, seen: Failures, key: CauseKey) -> None:
        found = self._now.get(key)
        if found is not None and not continues(found, at=seen.first_seen):
            found = None
        cause = _grown(found, seen, key)
        if cause.closed_at is None and (found is None or found.closed_at is not None):
            self.opened.append(cause)
        self._put(cause)
        self.cause_of.update((delivery_id, cause.id) for delivery_id, _ in seen.deliveries)

    def _put(self, cause: Cause) -> None:
        self._now[cause.key] = self.changed[cause.id] = cause


def continues(cause: Cause, *, at: int) -> bool:
    """Whether a failure at this time belongs to this cause: it is open, or closed not long ago."""
    return cause.closed_at is None or at <= cause.closed_at + RETURN_MS


def _grown(cause: Cause | None, seen: Failures, key: CauseKey) -> Cause:
    """The cause with the attempts of a batch added, or a new cause."""
    number = seen.id if cause is None else cause.id
    last_seen = seen.last_seen if cause is None else max(cause.last_seen, seen.last_seen)
    came = sum(1 for _, cause_before in seen.deliveries if cause_before != number)
    return Cause(
        id=number,
        tenant=seen.tenant,
        endpoint_id=seen.endpoint_id,
        key=key,
        first_seen=seen.first_seen if cause is None else cause.first_seen,
        last_seen=last_seen,
        attempts=len(seen.deliveries) + (0 if cause is None else cause.attempts),
        deliveries=came + (0 if cause is None else cause.deliveries),
        example_id=seen.example_id,
        example_number=seen.example_number,
        closed_at=None if seen.closed_at is None else max(seen.closed_at, last_seen),
    )


def _together(failures: list[Failures]) -> Failures:
    """The failures of several keys as those of one key; closed if the latest ones are closed."""
    latest = max(failures, key=lambda it: it.last_seen)
    return replace(
        latest,
        first_seen=min(it.first_seen for it in failures),
        deliveries=[one for it in failures for one in it.deliveries],
    )
