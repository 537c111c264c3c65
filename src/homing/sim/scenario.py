"""A scenario: receivers with outages, traffic, and actions of a person, over a virtual time.

All times are milliseconds from 0, the start of the scenario. Spans are half open: an outage or
traffic from 2 h to 9 h includes the first of these moments and not the last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from homing.model import State
from homing.policy.health import HealthRules
from homing.policy.presets import WORKFRONT
from homing.policy.retry import Schedule

FAILS_WITH = 500  # the status code of an outage that only says how often it fails


class Do(StrEnum):
    """The actions of a person."""

    ENABLE = "enable"
    FREEZE = "freeze"
    REPLAY_DROPPED = "replay_dropped"


class Reply(Struct, frozen=True):
    """The reaction of a receiver to one request."""

    code: int | None  # None: it hangs or refuses
    hangs: bool = False
    latency_ms: int = 0
    retry_after_s: int | None = None


class Outage(Struct, frozen=True):
    """A span of time in which a receiver behaves differently."""

    from_ms: int
    to_ms: int
    responds: int | None = None
    hangs: bool = False
    refuses: bool = False
    fails: float | None = None  # the share of requests it hits; None: all
    latency_ms: int | None = None
    retry_after_s: int | None = None


class Start(Struct, frozen=True):
    """The state and the counters of an endpoint at the start; ages count back from it."""

    state: State = State.ENABLED
    attempts: int = 0
    failures: int = 0
    consecutive_failures: int = 0
    first_attempt_age_ms: int | None = None  # None: never
    last_success_age_ms: int | None = None


class Receiver(Struct, frozen=True):
    """An endpoint of the scenario: how it responds."""

    name: str
    responds: int = 200
    latency_ms: int = 0
    deadline_ms: int | None = None
    retry_after_s: int | None = None
    outages: tuple[Outage, ...] = ()
    start: Start = Start()

    def outage_at(self, at_ms: int) -> Outage | None:
        """The last listed outage that covers this moment."""
        for outage in reversed(self.outages):
            if outage.from_ms <= at_ms < outage.to_ms:
                return outage
        return None

    def reply(self, outage: Outage | None, *, random: float) -> Reply:
        """The reply to a request; ``random`` (0 to 1) decides whether a partial outage hits it."""
        if outage is None or (outage.fails is not None and random >= outage.fails):
            return Reply(
                self.responds, latency_ms=self.latency_ms, retry_after_s=self.retry_after_s
            )
        latency_ms = self.latency_ms if outage.latency_ms is None else outage.latency_ms
        if outage.hangs or outage.refuses:
            return Reply(None, hangs=outage.hangs, latency_ms=latency_ms)
        code = outage.responds
        if code is None:
            code = self.responds if outage.fails is None else FAILS_WITH
        return Reply(code, latency_ms=latency_ms, retry_after_s=outage.retry_after_s)


class Traffic(Struct, frozen=True):
    """Events to one endpoint: one every ``num / den`` milliseconds."""

    to: int  # index of the endpoint
    from_ms: int
    until_ms: int
    num: int
    den: int
    type: str

    def times(self) -> Iterator[int]:
        """The times of the events: at ``from``, then at even steps, before ``until``."""
        at, n = self.from_ms, 0
        while at < self.until_ms:
            yield at
            n += 1
            at = self.from_ms + n * self.num // self.den

    @property
    def count(self) -> int:
        span_ms = max(self.until_ms - self.from_ms, 0)
        return -(-span_ms * self.den // self.num)


class Action(Struct, frozen=True):
    """An action of a person, with its time."""

    at_ms: int
    do: Do
    endpoint: int  # its index


class Scenario(Struct, frozen=True):
    """A complete scenario; the same scenario always gives the same trace."""

    title: str
    run_for_ms: int
    receivers: tuple[Receiver, ...]
    traffic: tuple[Traffic, ...] = ()
    actions: tuple[Action, ...] = ()
    seed: int = 0
    schedule: Schedule = WORKFRONT
    rules: HealthRules = HealthRules()
    outage_detection: bool = True

    @property
    def events(self) -> int:
        return sum(one.count for one in self.traffic)


def random_fraction_of(seed: int, name: str, delivery: int, attempt: int) -> float:
    """A number from 0 up to 1 that this attempt of this delivery draws, whatever the policy."""
    text = f"{seed}\0{name}\0{delivery}\0{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest()) / (1 << 56)
