"""Causes: which one a failed attempt belongs to, and when they open, close and return."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.model import Cause, CauseKey, Failure
from homing.policy.causes import (
    CAUSES_MAX,
    CLASSES,
    OTHER,
    RETURN_MS,
    EndpointCauses,
    Failures,
    key_of,
    title,
)

NOW = 1_800_000_000_000
HOUR = 3_600_000
UNAVAILABLE = CauseKey("http_status", "", 503)
REFUSED = CauseKey("refused")


@pytest.mark.parametrize(
    ("failure", "detail", "code", "key", "words"),
    [
        (None, "", 503, UNAVAILABLE, "503 Service Unavailable"),
        (None, "", 599, CauseKey("http_status", "", 599), "599"),
        (None, "", 301, CauseKey("http_status", "", 301), "301 Moved Permanently"),
        (
            Failure.CLOSED,
            "closed by the peer",
            500,
            CauseKey("http_status", "", 500),
            "500 Internal Server Error",
        ),
        (Failure.REFUSED, "connection refused", None, REFUSED, "connection refused"),
        (
            Failure.TIMEOUT,
            "no response within 5 s",
            None,
            CauseKey("timeout"),
            "no response in time",
        ),
        (
            Failure.TIMEOUT,
            "the TLS handshake did not end within 5 s",
            None,
            CauseKey("timeout", "handshake"),
            "timeout: TLS handshake not finished in time",
        ),
        (
            Failure.TLS,
            "certificate refused: self-signed certificate",
            None,
            CauseKey("tls", "self_signed"),
            "TLS: self-signed certificate",
        ),
        (
            Failure.TLS,
            "certificate refused: self-signed certificate in certificate chain",
            None,
            CauseKey("tls", "self_signed"),
            "TLS: self-signed certificate",
        ),
        (
            Failure.TLS,
            "certificate refused: certificate has expired",
            None,
            CauseKey("tls", "expired"),
            "TLS: certificate expired",
        ),
        (
            Failure.TLS,
            "certificate refused: Hostname mismatch, certificate is not valid for 'a.example'.",
            None,
            CauseKey("tls", "name_mismatch"),
            "TLS: certificate for another name",
        ),
        (
            Failure.TLS,
            "certificate refused: unable to get local issuer certificate",
            None,
            CauseKey("tls", "unknown_authority"),
            "TLS: certificate of an unknown authority",
        ),
        (
            Failure.TLS,
            "TLS failed: wrong version number",
            None,
            CauseKey("tls", "not_tls"),
            "TLS: the server does not speak TLS",
        ),
        (Failure.TLS, "TLS failed: something new", None, CauseKey("tls"), "TLS: handshake failed"),
        (
            Failure.DNS,
            "unknown host: no such name",
            None,
            CauseKey("dns", "unknown_host"),
            "DNS: unknown host",
        ),
    ],
)
def test_a_failed_attempt_belongs_to_one_cause(
    failure: Failure | None, detail: str, code: int | None, key: CauseKey, words: str
) -> None:
    assert key_of(failure, detail, code) == key
    assert title(key) == words


@given(st.sampled_from(Failure), st.text())
def test_what_a_receiver_writes_makes_no_new_cause(failure: Failure, detail: str) -> None:
    key = key_of(failure, detail, None)

    assert key.failure in CLASSES
    assert key.code is None
    assert title(key)
    assert len(key.reason) < 20


# --- open, close, return --------------------------------------------------------------------------


class Endpoint:
    """The causes of an endpoint, settled batch by batch like the store settles them."""

    def __init__(self) -> None:
        self.causes: dict[int, Cause] = {}
        self._ids = iter(range(1, 10_000))
        self._last: dict[int, int] = {}  # delivery → its cause

    def settle(self, *steps: tuple[int, CauseKey | None, int]) -> None:
        """A batch: the time, the cause (None: a success), and the delivery of each attempt."""
        failures: dict[CauseKey, Failures] = {}
        recovered: int | None = None
        for at, key, delivery in steps:
            if key is None:
                recovered = at if recovered is None else recovered
                for it in failures.values():
                    it.close(at)
                continue
            if key not in failures:
                failures[key] = Failures(next(self._ids), "acme", 7, key, at)
            failures[key].add(at, delivery, 1, self._last.get(delivery, 0))
        first = min((it.first_seen for it in failures.values()), default=0)
        recent = [
            it
            for it in self.causes.values()
            if it.closed_at is None or it.closed_at >= first - RETURN_MS
        ]
        after = EndpointCauses(recent)
        if recovered is not None:
            after.recover(recovered)
        after.add(failures.values())
        self.causes.update(after.changed)
        self._last.update(after.cause_of)

    @property
    def open(self) -> list[Cause]:
        return [it for it in self.causes.values() if it.closed_at is None]


def test_a_cause_opens_with_the_first_failure_and_counts() -> None:
    endpoint = Endpoint()

    endpoint.settle((NOW, UNAVAILABLE, 1), (NOW + 5, UNAVAILABLE, 2))
    endpoint.settle((NOW + 9, UNAVAILABLE, 1))

    (cause,) = endpoint.open
    assert (cause.first_seen, cause.last_seen) == (NOW, NOW + 9)
    assert (cause.attempts, cause.deliveries) == (3, 2)
    assert (cause.example_id, cause.example_number) == (1, 1)


def test_a_success_closes_all_causes_of_the_endpoint() -> None:
    endpoint = Endpoint()
    endpoint.settle((NOW, UNAVAILABLE, 1), (NOW + 1, REFUSED, 2))

    endpoint.settle((NOW + 2, None, 3))

    assert [it.closed_at for it in endpoint.causes.values()] == [NOW + 2, NOW + 2]


@pytest.mark.parametrize(
    ("later", "causes", "first_seen"),
    [(1, 1, NOW), (HOUR, 1, NOW), (HOUR + 1, 2, NOW + 10 + HOUR + 1)],
)
def test_a_cause_that_returns_within_an_hour_continues(
    later: int, causes: int, first_seen: int
) -> None:
    endpoint = Endpoint()
    endpoint.settle((NOW, UNAVAILABLE, 1))
    endpoint.settle((NOW + 10, None, 9))

    endpoint.settle((NOW + 10 + later, UNAVAILABLE, 1))

    (cause,) = endpoint.open
    assert len(endpoint.causes) == causes
    assert cause.first_seen == first_seen
    assert cause.attempts == (2 if causes == 1 else 1)
    assert cause.deliveries == 1  # The delivery is new to a new cause, and known to the old one.


def test_within_a_batch_the_order_of_outcomes_counts() -> None:
    endpoint = Endpoint()

    endpoint.settle((NOW, UNAVAILABLE, 1), (NOW + 1, None, 2), (NOW + 2, REFUSED, 3))

    assert [it.key for it in endpoint.open] == [REFUSED]
    closed = next(it for it in endpoint.causes.values() if it.key == UNAVAILABLE)
    assert closed.closed_at == NOW + 1


def test_a_success_between_two_failures_of_a_batch_leaves_the_cause_open() -> None:
    endpoint = Endpoint()
    endpoint.settle((NOW, UNAVAILABLE, 1))

    endpoint.settle((NOW + 1, UNAVAILABLE, 2), (NOW + 2, None, 3), (NOW + 3, UNAVAILABLE, 4))

    (cause,) = endpoint.open
    assert (cause.first_seen, cause.attempts, cause.deliveries) == (NOW, 3, 3)


def test_an_endpoint_with_a_new_status_each_time_has_few_causes() -> None:
    endpoint = Endpoint()
    for code in range(300, 600):
        key = CauseKey("http_status", "", code)
        endpoint.settle((NOW + code, key, code), (NOW + code, None, 1), (NOW + code, key, 2))

    assert len(endpoint.causes) == CAUSES_MAX + 1
    assert sum(it.attempts for it in endpoint.causes.values()) == 600
    (other,) = (it for it in endpoint.causes.values() if it.key == OTHER)
    assert other.closed_at is None
    assert title(other.key) == "various failures"


_KEYS = (UNAVAILABLE, REFUSED, CauseKey("tls", "expired"), None, None)
_STEP = st.tuples(st.integers(0, RETURN_MS), st.sampled_from(_KEYS), st.integers(1, 4))


@given(st.lists(st.lists(_STEP, max_size=6), max_size=12))
def test_batches_give_what_one_attempt_at_a_time_gives(
    batches: list[list[tuple[int, CauseKey | None, int]]],
) -> None:
    """Within a batch no two outcomes are an hour apart."""
    whole, single = Endpoint(), Endpoint()
    at, failed = NOW, Counter[CauseKey]()
    for batch in batches:
        steps = []
        at += batch[0][0] if batch else 0
        for _, key, delivery in batch:
            at += 1
            steps.append((at, key, delivery))
            if key is not None:
                failed[key] += 1
        whole.settle(*steps)
        for step in steps:
            single.settle(step)

    assert _shown(whole) == _shown(single)
    counted = Counter[CauseKey]()
    for cause in whole.causes.values():
        counted[cause.key] += cause.attempts
        assert cause.first_seen <= cause.last_seen
        assert cause.closed_at is None or cause.closed_at >= cause.last_seen
        assert 1 <= cause.deliveries <= cause.attempts
    assert counted == failed
    assert len({it.key for it in whole.open}) == len(whole.open)


def _shown(endpoint: Endpoint) -> set[Cause]:
    """The causes without their ids and the deliveries, which count by id within a batch."""
    return {replace(it, id=0, deliveries=0) for it in endpoint.causes.values()}
