"""Sender-outage detection: many receivers that fail at once mean that this sender is cut off.

One receiver that cannot be reached has failed by itself, and so have all hosts of one tenant. Ten
endpoints on five hosts that were healthy minutes ago and now mostly fail to connect, while nothing
gets through, are a failure of the sender: a cable, a firewall, a name server that denies every
name. So a failure without a response, of an endpoint that was healthy, is not believed at once. It
waits for a verdict, and so do all failures that follow it:

- something gets through on a connection made since: the sender can connect, and the failures
  count against the receivers;
- most of *all* healthy endpoints fail to connect, and endpoints of most tenants are among them
  (of two at least, where several tenants have healthy endpoints): the failures are sender-side, and
  once nothing at all has got through for five seconds an outage begins and sending pauses;
- ten seconds pass without another endpoint that fails, or a minute in all: the failures count
  against the receivers.

A fallen endpoint is remembered until something gets through, so that an outage with little traffic
is noticed, too. After that it is not healthy: its failures count against it and are no evidence of
another outage until it has succeeded again.

A response on a kept connection proves that the network works, but not that new connections can be
made: with dead name servers old connections work for a while. Such a response prevents an outage,
and clears only the failures of other kept connections.

A failure to get an access token (OAuth) is no evidence, not even a failed connect to the token
endpoint. One token endpoint serves endpoints on many hosts: when it dies, they all fail at once,
and that would look like an outage of the sender. In a real outage, the endpoints with a valid
token, or without OAuth, are the evidence; failures to get a token wait for the verdict like all
others.

During an outage canaries are sent, and the first that gets through ends it. There are so many that
every host of every tenant with something to send is tried within a minute.

A second rule works the other way round. If the attempts to one host alone fail on the sender's side
for ten minutes, while those to other hosts get through, the failures count against that host. Four
kinds of failures never do, because no host causes them: a limit of this process (descriptors,
memory, its queue of look-ups), an address that the settings of this installation forbid, a client
certificate that cannot be used, and a proxy that is away or refuses this installation. A proxy that
is there and does not reach the target is another matter: after ten minutes in which other hosts got
through the same proxy, the target is down.

An installation can switch detection off: then no failure waits for a verdict and sending never
pauses. Failures that are the sender's by their kind, and the second rule, stay as they are.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from homing.model import Failure
from homing.policy.retry import SENDER_ERROR_FIRST_MS, SENDER_ERROR_MAX_MS

HOST_AFTER_MS = 600_000
HOST_STEP_MS = 120_000  # a longer gap between failures counts only as this much
_NEVER_HOSTS = frozenset(
    {
        Failure.SENDER_LIMITS,
        Failure.FORBIDDEN_ADDRESS,
        Failure.SENDER_CERTIFICATE,
        Failure.SENDER_PROXY,
    }
)


class OutageState(StrEnum):
    """Whether there is an outage of the sender."""

    OFF = "off"  # the installation has switched detection off
    NONE = "none"
    SUSPECTED = "suspected"  # healthy endpoints fail, and their failures wait for the verdict
    CONFIRMED = "confirmed"  # sending is paused, only canaries are sent


class OutageRules(Struct, frozen=True):
    """Whether there is sender-outage detection, and its numbers."""

    detects: bool = True
    healthy_ms: int = 600_000  # an endpoint with a success in this time is healthy
    endpoints_min: int = 10
    hosts_min: int = 5
    judge_ms: int = 10_000  # how long failures wait for a verdict while no other endpoint falls
    judge_max_ms: int = 60_000  # how long failures wait at most
    quiet_ms: int = 5_000  # without any response, before an outage begins
    stay_ms: int = 120_000  # without a new failure, until sender-side failures are over
    canaries: int = 3  # in one round, at least
    canary_every_ms: int = 5_000  # the time between rounds
    canary_turn_ms: int = 50_000  # in which every waiting host gets its canary


class Sign(StrEnum):
    """What the end of an attempt says about the sender's own network."""

    THROUGH = "through"  # a response on a connection made since
    LIVES = "lives"  # a response on a connection from before
    UNREACHED = "unreached"  # no connection could be made
    SILENT = "silent"  # a connection from before fell silent or broke
    NOTHING = "nothing"


class Needed(Struct, frozen=True):
    """How many endpoints must fail to connect, on how many hosts, of how many tenants."""

    endpoints: int
    hosts: int
    tenants: int = 1


class Verdict(StrEnum):
    """The verdict on the failures that wait."""

    WAIT = "wait"
    FAILED = "failed"  # they count against the receivers
    SENDER_ERROR = "sender_error"  # but some attempts still get through: sending continues
    OUTAGE = "outage"  # they are sender-side, and nothing gets through


def sign(code: int | None, failure: Failure | None, *, dialled: bool) -> Sign:
    """The sign of an attempt; ``dialled``: a connection was made, or tried, for it."""
    if code is not None:
        return Sign.THROUGH if dialled else Sign.LIVES
    assert failure is not None, "a response is a status code or a failure"
    match failure:
        case (
            Failure.CONNECT_TIMEOUT
            | Failure.REFUSED
            | Failure.UNREACHABLE
            | Failure.DNS
            | Failure.SENDER_DNS
            | Failure.SENDER_NETWORK
            | Failure.SENDER_LIMITS
            | Failure.SENDER_PROXY
            | Failure.SENDER_TUNNEL
        ):
            return Sign.UNREACHED
        case Failure.TIMEOUT | Failure.RESET | Failure.CLOSED:
            return Sign.NOTHING if dialled else Sign.SILENT
        case (
            Failure.TLS
            | Failure.BAD_RESPONSE
            | Failure.RESPONSE_TOO_LARGE
            | Failure.FORBIDDEN_ADDRESS
            | Failure.SENDER_TLS
            | Failure.SENDER_FAULT
            | Failure.TOKEN
            | Failure.SENDER_TOKEN
            | Failure.SENDER_CERTIFICATE
        ):
            return Sign.NOTHING
        case _ as never:
            assert_never(never)


def needed(*, healthy: int, hosts: int, tenants: int, rules: OutageRules) -> Needed | None:
    """How many of the healthy must fail; None if too few for a verdict, or detection is off.

    Endpoints and tenants both vote. A tenant with a thousand dead endpoints is one tenant: it
    does not outvote twenty others. Twenty tenants with one dead endpoint each do not outvote a
    thousand endpoints that are not known to fail.
    """
    if not rules.detects or healthy < rules.endpoints_min or hosts < rules.hosts_min:
        return None
    endpoints = healthy // 2 + 1
    return Needed(
        endpoints,
        hosts=min(rules.hosts_min // 2 + 1, endpoints),
        tenants=tenants // 2 + 1,
    )


def verdict(
    *,
    failing: int,
    hosts: int,
    tenants: int,
    need: Needed | None,
    lives: bool,
    waited_ms: int,
    alone_ms: int,
    rules: OutageRules,
) -> Verdict:
    """The verdict so far; nothing has got through on a new connection meanwhile.

    ``alone_ms`` is how long no other healthy endpoint has fallen.
    """
    many = need is not None and failing >= need.endpoints
    if need is not None and many and hosts >= need.hosts and tenants >= need.tenants:
        return Verdict.SENDER_ERROR if lives else Verdict.OUTAGE
    over = alone_ms >= rules.judge_ms or waited_ms >= rules.judge_max_ms
    return Verdict.FAILED if over else Verdict.WAIT


def canaries(waiting: int, rules: OutageRules) -> int:
    """How many canaries a round has, when this many hosts have something to send."""
    rounds = rules.canary_turn_ms // rules.canary_every_ms
    return max(rules.canaries, -(-waiting // rounds))


def canary_wait_ms(tries: int, *, hosts: int, rules: OutageRules) -> int:
    """How long a host waits for its next canary, after this many failed ones.

    The wait is 5 s, doubling; together with the turn among all hosts it is at most a minute.
    """
    turn_ms = -(-hosts // canaries(hosts, rules)) * rules.canary_every_ms
    wait_max_ms = max(SENDER_ERROR_MAX_MS - turn_ms, SENDER_ERROR_FIRST_MS)
    return min(SENDER_ERROR_FIRST_MS << min(tries - 1, 8), wait_max_ms)


def could_be_hosts(failure: Failure | None) -> bool:
    """Whether a failure that counts as sender-side may turn out to be the host's."""
    return failure not in _NEVER_HOSTS


class HostFailures(Struct, frozen=True):
    """A host with sender-side failures: for how long, while others got through."""

    seen_at: int  # when others were last seen to get through, or its failures began
    alone_ms: int = 0


def host_again(
    failures: HostFailures | None, *, now: int, through_at: int
) -> tuple[HostFailures, bool]:
    """Another sender-side failure at one host; True: it is the host's after all.

    ``through_at`` is when something last got through anywhere: elsewhere, since a success at the
    host itself ends its failures. Only the time in which others got through counts.
    """
    if failures is None:
        return HostFailures(now), False
    if through_at < failures.seen_at:
        recent = now - failures.seen_at < HOST_STEP_MS
        return failures, recent and failures.alone_ms >= HOST_AFTER_MS
    alone_ms = failures.alone_ms + min(now - failures.seen_at, HOST_STEP_MS)
    return HostFailures(now, alone_ms), alone_ms >= HOST_AFTER_MS
