"""Sender outages as seen from outside: when failures may be sender errors, and when they must be.

It is lenient where only the engine can know (whether an outage was found is not seen), and strict
where everybody can: in an outage that the simulation made itself, with enough endpoints healthy
before it and most of them tried in it, nothing may count for a receiver (S10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from homing.policy.outage import OutageRules, canaries
from simulation.health_model import EndpointModel
from simulation.reference import Flight, Memory, Reference

HOST_ALONE_MS = 600_000
LONG_AGO_MS = 3 * 3_600_000
SLACK_MS = 60_000
# No host causes those.
NEVER_HOSTS = frozenset({"sender_limits", "sender_certificate", "sender_proxy"})
UNREACHED = frozenset({"connect_timeout", "refused", "unreachable", "dns"})


def host_of(url: str) -> str:
    return url.split("/")[2]


@dataclass
class Cut:
    """A sender outage: nothing gets through while it lasts."""

    life: int
    healthy: set[int]  # endpoints just before it
    need: int  # so many of them failing are most of all that the engine may call healthy
    need_tenants: int  # and so many tenants
    first_at: int | None = None  # a healthy one failed
    failing: set[int] = field(default_factory=set)
    waiting: list[Flight] = field(default_factory=list)  # failed since then
    proven_at: int | None = None  # most of the healthy ones have failed, in time
    disturbed: bool = False  # something was answered before that
    over: bool = False


@dataclass
class _Trouble:
    """A host with failures that are called sender errors."""

    since: int
    others: bool = False  # something was answered elsewhere meanwhile


class OutageChecks:
    """Hears of every response; marks flights that may, or must, be called sender errors."""

    def __init__(self, reference: Reference, fire: Callable[[str], None]) -> None:
        self._reference, self._fire = reference, fire
        self._memory: Memory
        self._rules: OutageRules = reference.mix.options.outage
        self._suspects: dict[int, tuple[str, int]] = {}
        self._noted: set[int] = set()  # of those: the engine surely calls them fallen
        self._down: set[int] = set()  # they fell, something got through, and no success since
        self._maybe_down: set[int] = set()  # the same, as far as the engine may see it
        self._failed: list[Flight] = []  # without a response, a short time ago
        self._evidence_at: int | None = None
        self._fades_at: int | None = None
        self._hosts: dict[str, _Trouble] = {}
        self._responded_at = 0
        self._succeeded_at: dict[int, int] = {}  # by endpoint, in this life
        self._opened_at = 0  # an outage may have ended then
        self._canaries = 0
        self.cut: Cut | None = None

    # --- outages that we make ----------------------------------------------------------------

    def begin(self, round_at: int, life: int) -> None:
        """Nothing gets through from now on; who succeeded since the round is healthy."""
        reference, now = self._reference, self._reference.clock()
        known = reference.endpoints.values()
        recent = self._recent(now)
        healthy = {
            it.id
            for it in known
            if it.state == self._memory.known[it.id].state == "enabled"
            # One in the future is from before this life, when the clock was ahead.
            and round_at <= (it.last_success_at or 0) <= now
            and it.hold_until <= now
        }
        hosts = {host_of(reference.endpoints[it].url) for it in healthy}
        rules = self._rules
        enough = (
            rules.detects and len(healthy) >= rules.endpoints_min and len(hosts) >= rules.hosts_min
        )
        self.cut, self._canaries = None, 0
        if enough and self._memory.life == life and not self._suspects:
            tenants = {it.tenant for it in recent}
            self.cut = Cut(life, healthy, len(recent) // 2 + 1, len(tenants) // 2 + 1)

    def _recent(self, now: int) -> list[EndpointModel]:
        """All that the engine may call healthy, with whatever time it has been paused."""
        known = self._reference.endpoints.values()
        return [
            it
            for it in known
            # A success counts when it has come, and not only when it is settled.
            if max(it.last_success_at or 0, self._succeeded_at.get(it.id, 0)) >= now - LONG_AGO_MS
        ]

    def end(self) -> None:
        if self.cut is not None:
            self.cut.over = True

    def begin_life(self, memory: Memory) -> None:
        """Memory is gone, and with it what waited for a verdict."""
        self._memory = memory
        self._suspects.clear()
        self._noted.clear()
        self._down.clear()
        self._maybe_down.clear()
        self._failed.clear()
        self._hosts.clear()
        self._succeeded_at.clear()
        self._evidence_at = self._fades_at = self.cut = None
        self._canaries = self._opened_at = 0

    @property
    def surely_closed(self) -> bool:
        """A sender outage was proven, and no request that began after it got a response."""
        cut = self.cut
        if cut is None or cut.proven_at is None or cut.life != self._memory.life:
            return False
        return self._reference.clock() >= cut.proven_at + 3 * self._rules.quiet_ms

    @property
    def maybe_closed(self) -> bool:
        return self._evidence_at is not None

    # --- what is seen ------------------------------------------------------------------------

    def sent(self, *, probe: bool) -> None:
        """During an outage a few canaries are sent, and nothing else."""
        if not self.surely_closed:
            return
        reference, rules = self._reference, self._rules
        assert self.cut is not None
        assert self.cut.proven_at is not None
        self._canaries += 1
        closed_ms = reference.clock() - self.cut.proven_at
        hosts = {(it.tenant, host_of(it.url)) for it in reference.endpoints.values()}
        most = canaries(len(hosts), rules) * (1 + closed_ms // rules.canary_every_ms)
        reference.must(not probe, "S10", lambda: "a probe in a sender outage")
        reference.must(
            self._canaries <= most,
            "S10",
            lambda: f"{self._canaries} attempts in {closed_ms} ms of a sender outage",
        )

    def responded(self, flight: Flight, host: str, *, dialled: bool) -> None:
        """An attempt has its code, or has failed without one."""
        now = self._reference.clock()
        self._fade(now)
        if flight.code is not None:
            self._code(flight, host, now, dialled=dialled)
            return
        failure = flight.failure or ""
        if failure.startswith("sender_"):
            self._hosts.setdefault(host, _Trouble(now))
            alone = self._hosts[host]
            long = alone.others and now - alone.since >= HOST_ALONE_MS
            flight.maybe_theirs = long and failure not in NEVER_HOSTS
        if flight.endpoint_id not in self._down:
            self._suspects[flight.endpoint_id] = (host, now)
            if failure in UNREACHED and flight.at > self._opened_at:
                self._noted.add(flight.endpoint_id)
        self._failed.append(flight)
        self._look(now)
        if self._evidence_at is not None or flight.at <= self._opened_at:
            flight.maybe_sender_error = flight.maybe_closed = True
        if not flight.maybe_sender_error and self._crowded(flight, now):
            flight.maybe_sender_error = True
        self._in_cut(flight, now)

    def _crowded(self, flight: Flight, now: int) -> bool:
        """So many may wait for the verdict in this lane that one more is a sender error at once."""
        options = self._reference.mix.options
        slots = options.fresh_slots if flight.lane == "fresh" else options.retry_slots
        wait = sum(it.lane == flight.lane for it in self._failed) - 1
        return (
            self._rules.detects
            and wait >= slots // 2
            and len(self._recent(now)) >= self._rules.endpoints_min
        )

    def _code(self, flight: Flight, host: str, now: int, *, dialled: bool) -> None:
        before, self._responded_at = self._responded_at, now
        if 200 <= (flight.code or 0) <= 299:
            self._succeeded_at[flight.endpoint_id] = now
            self._down.discard(flight.endpoint_id)
            self._maybe_down.discard(flight.endpoint_id)
        self._noted.discard(flight.endpoint_id)  # It lives: when it fails again, it falls anew.
        self._hosts.pop(host, None)
        for trouble in self._hosts.values():
            trouble.others = True
        evidence = self._evidence_at
        self._opened_at = now if evidence is not None else self._opened_at
        if evidence is None or dialled:
            if dialled:  # It speaks for what failed before it began, not for what came after.
                left = {it: seen for it, seen in self._suspects.items() if seen[1] > flight.at}
                cleared = set(self._suspects) - set(left)
                self._down |= cleared & self._noted
                self._maybe_down |= cleared - {flight.endpoint_id}
                self._noted &= set(left)
                self._suspects = left
            if evidence is not None and flight.at >= evidence:
                self._evidence_at = min((at for _, at in self._suspects.values()), default=None)
                if self._closed_since(before, flight):
                    self._evidence_at = evidence
                    self._fades_at = now + self._rules.stay_ms + 2 * self._rules.quiet_ms
        elif (
            flight.at >= evidence
        ):  # It lives; failures to connect may yet be sender errors for a while.
            self._fades_at = now + self._rules.stay_ms + 2 * self._rules.quiet_ms
        self._responded_in_cut(flight, now)

    def _responded_in_cut(self, flight: Flight, now: int) -> None:
        cut = self.cut
        if cut is None or cut.life != flight.life:
            return
        if cut.proven_at is None:
            cut.disturbed = cut.disturbed or cut.first_at is not None
        elif self.surely_closed and flight.at >= cut.proven_at + 3 * self._rules.quiet_ms:
            self._opens(now)
        elif flight.at >= cut.proven_at:  # It may have been a canary, or sent before it closed.
            self.cut = None

    def _closed_since(self, responded_at: int, flight: Flight) -> bool:
        """Whether an outage may have begun while it was in flight, as nothing else got through."""
        quiet_ms, now = self._rules.quiet_ms, self._reference.clock()
        return flight.at < responded_at + 2 * quiet_ms and now >= responded_at + quiet_ms

    def _opens(self, now: int) -> None:
        """A canary got through: all resumes, with slow start."""
        self._fire("outage_ended")
        self._memory.paused_until = now
        self._memory.slots.clear()
        self._reference.say("the outage ends")
        self.cut, self._canaries = None, 0

    def _fade(self, now: int) -> None:
        if self._fades_at is not None and now >= self._fades_at:
            responded_at = self._fades_at - self._rules.stay_ms - 2 * self._rules.quiet_ms
            self._evidence_at = self._fades_at = None
            left = {it: seen for it, seen in self._suspects.items() if seen[1] > responded_at}
            self._maybe_down |= set(self._suspects) - set(left)
            self._suspects = left  # They fell after the response that speaks for the others.
        if self._evidence_at is not None:
            self._memory.maybe_paused_at = now

    def _look(self, now: int) -> None:
        """So many without a response in so short a time that it may be us."""
        rules = self._rules
        if self._evidence_at is None:
            since = now - rules.judge_max_ms - rules.judge_ms  # They may wait so long.
            self._failed = [it for it in self._failed if (it.finished_at or 0) >= since]
            since = now - rules.healthy_ms  # They are remembered, until something gets through.
            self._suspects = {it: at for it, at in self._suspects.items() if at[1] >= since}
        hosts = {host for host, _ in self._suspects.values()}
        need = rules.endpoints_min // 2 + 1
        enough = (
            rules.detects
            and len(self._suspects) >= need
            and len(hosts) >= min(rules.hosts_min // 2 + 1, need)
        )
        if enough and self._enough_tenants(now):
            if self._evidence_at is None:
                self._evidence_at = now
                for flight in self._failed:  # They have waited for it.
                    flight.maybe_sender_error = True
            self._fades_at = None
            self._memory.maybe_paused_at = now

    def _enough_tenants(self, now: int) -> bool:
        """Where several tenants surely have healthy endpoints, one alone proves nothing."""
        reference = self._reference
        since = max(now - self._rules.healthy_ms + SLACK_MS, self._memory.started_at)
        healthy = {
            it.tenant
            for it in reference.endpoints.values()
            # One in the future is from before this life, when the clock was ahead.
            if since <= (it.last_success_at or 0) <= now and it.id not in self._maybe_down
        }
        return len({reference.endpoints[it].tenant for it in self._suspects}) >= min(
            len(healthy), 2
        )

    def _in_cut(self, flight: Flight, now: int) -> None:
        cut = self.cut
        if cut is None or cut.over or cut.disturbed or cut.life != flight.life:
            return
        if flight.endpoint_id in cut.healthy:
            cut.first_at = cut.first_at or now
            cut.failing.add(flight.endpoint_id)
        if cut.first_at is None:
            return
        if cut.proven_at is not None:
            flight.surely_sender_error = True
            return
        cut.waiting.append(flight)
        failing = [self._reference.endpoints[it] for it in cut.failing]
        hosts, tenants = {host_of(it.url) for it in failing}, {it.tenant for it in failing}
        most = len(failing) >= cut.need and len(tenants) >= cut.need_tenants
        if now - cut.first_at >= self._rules.judge_ms:
            cut.disturbed = True
        elif most and len(hosts) >= self._rules.hosts_min:
            cut.proven_at = now
            self._fire("outage_began")
            self._reference.say("the sender outage is proven")
            for one in cut.waiting:
                one.surely_sender_error = True
