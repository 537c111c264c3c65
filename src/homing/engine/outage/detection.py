"""Detects outages of the sender: every outcome passes here on its way to be settled.

An attempt with a response costs a check of one flag and one look-up in a dict (``witnesses``). A
failure without a response may have to wait here for the verdict (``policy/outage``). It keeps its
slot meanwhile. Waiting failures hold at most half of a lane's slots; a failure beyond that counts
as sender-side at once. During an outage the dispatcher starts nothing by itself, probes wait in
their queue, and this module sends the canaries (``canaries``). Each process has its own detector,
which judges only the network of that process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.engine.attempt import CompletedAttempt, as_sender_error, rested
from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.outage.canaries import SLICE, Canaries
from homing.engine.outage.witnesses import Fall, Witness, Witnesses
from homing.engine.queue import EndpointQueue
from homing.languages.sentences import say
from homing.model import Failure, Lane, Outcome, State
from homing.policy import outage as policy
from homing.policy.notices import NoticeKind, text_facts
from homing.policy.outage import HostFailures, Needed, OutageState, Sign, Verdict, host_again

log = structlog.get_logger("homing.outage")

HOSTS_MAX = 4_096  # hosts with sender-side failures that are remembered

_DELIVERED = Outcome.DELIVERED  # Python 3.11 looks up a member of an enum slowly.


class OutageView(Struct, frozen=True):
    """The state of sender-outage detection, as people see it."""

    state: OutageState = OutageState.NONE
    since: int | None = None  # of this state; None: no outage since the start of the process
    why: str = ""
    waiting: int = 0  # failures that wait for the verdict
    canaries: int = 0  # sent since the start of the process
    outages: int = 0  # outages since the start of the process


class Suspicion:
    """The failures that wait for a verdict; each keeps its slot, so each lane has a limit."""

    __slots__ = ("_lanes", "fell_at", "held", "seen_at", "sender_side", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.fell_at = since  # when a healthy endpoint last became a fallen one
        self.seen_at = since  # the last failure of any fallen endpoint
        self.held: list[CompletedAttempt] = []
        self._lanes: Counter[Lane] = Counter()
        self.sender_side = False  # the verdict: the sender has failed

    def hold(self, attempt: CompletedAttempt, *, slots: dict[Lane, int]) -> bool:
        """Let a failure wait; False if half of its lane's slots are held already."""
        if attempt.lane in slots and self._lanes[attempt.lane] >= slots[attempt.lane] // 2:
            return False
        self.held.append(attempt)
        self._lanes[attempt.lane] += 1
        return True

    def take(self, endpoint_ids: set[int]) -> list[CompletedAttempt]:
        """Take the failures of these endpoints out of the wait."""
        taken = [one for one in self.held if one.endpoint_id in endpoint_ids]
        self.held = [one for one in self.held if one.endpoint_id not in endpoint_ids]
        self._lanes.subtract([one.lane for one in taken])
        return taken


class FailingHosts:
    """The hosts whose failures count as sender-side."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostFailures] = {}

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def again(self, host: str, *, now: int, through_at: int) -> bool:
        """Note another failure of a host; True if the host itself has failed."""
        failures, theirs = host_again(self._hosts.pop(host, None), now=now, through_at=through_at)
        if len(self._hosts) >= HOSTS_MAX:
            self._hosts.pop(next(iter(self._hosts)))
        self._hosts[host] = failures
        return theirs

    def responded(self, host: str) -> None:
        """Forget the failures of a host: it responded."""
        self._hosts.pop(host, None)


class OutageDetector:
    """No outage, a suspected one, or a confirmed one."""

    def __init__(self, core: Core, dispatcher: Dispatcher) -> None:
        self._clock, self._dispatcher, self._rules = core.clock, dispatcher, core.options.outage
        self._suspicion: Suspicion | None = None
        self._hosts = FailingHosts()
        self._witnesses = Witnesses()
        self._alert = False  # a suspicion, a fallen endpoint, an outage or a failing host
        self._through_at = 0  # when the last response arrived
        self._through_proxy_at = 0  # and the last one through the proxy
        self._paused_ms = 0  # the length of recent outages, which extends the healthy time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._task: asyncio.Task[None] | None = None  # sends canaries, or resumes sending
        self._canaries = Canaries(
            self._rules, dispatcher, core.clock, standing=self._witnesses.standing
        )
        self.began_at: int | None = None
        self.ended_at: int | None = None
        off = not self._rules.detects
        self._view = OutageView(state=OutageState.OFF if off else OutageState.NONE)
        self._count = 0
        dispatcher.on_added, dispatcher.on_gone = self._add_healthy, self._witnesses.forget
        # Set by the engine.
        self.settle: Callable[[CompletedAttempt], None]
        self.on_end: Callable[[], None]
        self.on_change: Callable[[NoticeKind, dict[str, Any]], None] = lambda _kind, _facts: None

    @property
    def active(self) -> bool:
        return self.began_at is not None

    def view(self) -> OutageView:
        held = len(self._suspicion.held) if self._suspicion is not None else 0
        return replace(self._view, waiting=held, canaries=self._canaries.count, outages=self._count)

    # --- outcomes ----------------------------------------------------------------------------

    def completed(self, attempt: CompletedAttempt) -> None:
        """Settle a completed attempt, now or after the verdict."""
        if attempt.response.code is None:
            self._no_response(attempt)
            return
        self._through_at = attempt.finished_at
        if attempt.response.proxied:
            self._through_proxy_at = attempt.finished_at
        if self._alert:
            self._responded(attempt)
        if attempt.outcome is _DELIVERED and not self._witnesses.again(
            attempt.endpoint_id, attempt.finished_at
        ):
            self._add_succeeded(attempt)
        if attempt.response.remembered:
            self._witnesses.abstain(attempt.endpoint_id, attempt.finished_at)
        self.settle(attempt)

    def _add_succeeded(self, attempt: CompletedAttempt) -> None:
        """Add an endpoint that has succeeded: it is healthy."""
        queue = self._dispatcher.queues.get(attempt.endpoint_id)
        if queue is not None:
            witness = Witness(queue.endpoint.tenant, queue.host, attempt.finished_at)
            self._witnesses.add(attempt.endpoint_id, witness)
            self._witnesses.expire(self._healthy_since(attempt.finished_at))

    def _add_healthy(self, queue: EndpointQueue) -> None:
        """Add an endpoint that was read from the store, if its stored health says it is healthy."""
        endpoint, now = queue.endpoint, self._clock.now()
        health = endpoint.health
        if health.state is not State.ENABLED or health.consecutive_failures:
            return
        if health.last_success_at is not None:
            # One in the future was written when a clock was ahead; as such it would never expire.
            at = min(health.last_success_at, now)
            if at >= self._healthy_since(now):
                witness = Witness(endpoint.tenant, queue.host, at)
                self._witnesses.add(endpoint.id, witness, read=True)

    def _responded(self, attempt: CompletedAttempt) -> None:
        queue = self._dispatcher.queues.get(attempt.endpoint_id)
        if queue is not None:
            self._hosts.responded(queue.host)
        witnesses = self._witnesses
        if self.began_at is not None:
            witnesses.rise(attempt.endpoint_id)
            if attempt.started_at >= self.began_at and not attempt.response.remembered:
                self._end_outage(attempt.finished_at)
        elif witnesses.fallen.members:
            since = attempt.started_at >= witnesses.fallen_since
            dialled = since and attempt.response.phases.connect_us is not None
            dialled = dialled and not attempt.response.remembered  # No proof that look-ups work.
            if policy.sign(attempt.response.code, None, dialled=dialled) is Sign.THROUGH:
                self._disprove(attempt.endpoint_id)
            else:
                self._lives(attempt.endpoint_id)
        self._calm()

    def _disprove(self, endpoint_id: int) -> None:
        """End the suspicion: this sender can connect, so the receivers have failed."""
        self._witnesses.rise(endpoint_id)
        self._witnesses.disprove()
        if self._suspicion is not None:
            self._end_suspicion(sender_error=False)

    def _lives(self, endpoint_id: int) -> None:
        """Note a response on a kept connection: fallen endpoints that only lost one are cleared."""
        suspicion, witnesses = self._suspicion, self._witnesses
        if suspicion is not None and suspicion.sender_side:
            return
        risen = witnesses.rise_silent()
        if endpoint_id in witnesses.fallen.members:
            witnesses.rise(endpoint_id)
            risen.add(endpoint_id)
        if suspicion is None or not risen:
            return
        if not witnesses.fallen.members:
            self._end_suspicion(sender_error=False)
            return
        self._release(suspicion.take(risen), sender_error=False)

    def _no_response(self, attempt: CompletedAttempt) -> None:
        late = self.began_at is None and attempt.started_at <= (self.ended_at or 0)
        fall = Fall.NONE if late else self._fall(attempt)
        if late or self.began_at is not None:
            # Sent during an outage: canaries have their own pace, and when the outage ends,
            # waiting deliveries should be sent soon.
            self.settle(as_sender_error(rested(attempt)))
            return
        queue = self._dispatcher.queues.get(attempt.endpoint_id)
        if (
            fall is Fall.NEW
            and self._suspicion is None
            and self._need(attempt.finished_at) is not None
        ):
            self._begin_suspicion(attempt.finished_at)
        suspicion = self._suspicion
        if attempt.outcome is Outcome.SENDER_ERROR:
            surely = suspicion is not None and suspicion.sender_side
            surely |= not policy.could_be_hosts(attempt.response.failure)
            self.settle(attempt if queue is None or surely else self._at_host(attempt, queue.host))
        elif suspicion is None:
            self.settle(attempt)
        elif suspicion.sender_side or not suspicion.hold(
            attempt, slots=self._dispatcher.capacity.slots
        ):
            self.settle(as_sender_error(attempt))
        if suspicion is not None and fall is not Fall.NONE:
            suspicion.seen_at = attempt.finished_at
            if fall is Fall.NEW:
                suspicion.fell_at = attempt.finished_at
            self._judge(suspicion, attempt.finished_at)

    def _fall(self, attempt: CompletedAttempt) -> Fall:
        """Whether this failure makes a healthy endpoint a fallen one."""
        dialled = attempt.response.phases.connect_us is not None
        sign = policy.sign(None, attempt.response.failure, dialled=dialled)
        if sign not in {Sign.UNREACHED, Sign.SILENT}:
            return Fall.NONE
        now, silent = attempt.finished_at, sign is Sign.SILENT
        since = self._healthy_since(now)
        fall = self._witnesses.fall(attempt.endpoint_id, now=now, since=since, silent=silent)
        self._alert = self._alert or fall is not Fall.NONE
        return fall

    def _at_host(self, attempt: CompletedAttempt, host: str) -> CompletedAttempt:
        """The attempt, as ``failed`` if its sender-side failure counts against the host by now."""
        now, self._alert = attempt.finished_at, True
        tunnel = attempt.response.failure is Failure.SENDER_TUNNEL
        through_at = self._through_proxy_at if tunnel else self._through_at
        theirs = self._hosts.again(host, now=now, through_at=through_at)
        return replace(attempt, outcome=Outcome.FAILED) if theirs else attempt

    # --- judging -----------------------------------------------------------------------------

    def _healthy_since(self, now: int) -> int:
        """The time since which an endpoint must have succeeded to be healthy.

        Time in an outage does not count, because no endpoint can succeed then.
        """
        since = now - self._rules.healthy_ms
        if self.began_at is not None:
            return since - self._pause(self.began_at) - (now - self.began_at)
        return since - self._pause(now)

    def _pause(self, now: int) -> int:
        if self.ended_at is None or now >= self.ended_at + self._rules.healthy_ms:
            return 0
        return self._paused_ms

    def _need(self, now: int) -> Needed | None:
        """How many endpoints must have fallen; None if too few were healthy for a verdict."""
        self._witnesses.expire(self._healthy_since(now))
        healthy = self._witnesses.healthy
        silent = self._witnesses.abstained(since=now - self._rules.judge_ms)
        return policy.needed(
            healthy=healthy.endpoints - silent,
            hosts=healthy.hosts,
            tenants=healthy.tenants,
            rules=self._rules,
        )

    def _begin_suspicion(self, now: int) -> None:
        self._suspicion, self._alert = Suspicion(now), True
        why = say("an endpoint that was healthy cannot be reached")
        self._view = OutageView(state=OutageState.SUSPECTED, since=now, why=why)
        self._set_timer(self._rules.judge_ms)

    def _judge(self, suspicion: Suspicion, now: int) -> None:
        fallen = self._witnesses.fallen
        verdict = policy.verdict(
            failing=fallen.endpoints,
            hosts=fallen.hosts,
            tenants=fallen.tenants,
            need=self._need(now),
            lives=now - self._through_at < self._rules.quiet_ms,
            waited_ms=now - suspicion.since,
            alone_ms=now - suspicion.fell_at,
            rules=self._rules,
        )
        match verdict:
            case Verdict.WAIT:
                return
            case Verdict.FAILED:
                if not suspicion.sender_side:  # The endpoints stay fallen until a response arrives.
                    self._end_suspicion(sender_error=False)
            case Verdict.SENDER_ERROR:
                self._blame_sender(suspicion)
            case Verdict.OUTAGE:
                self._begin_outage(suspicion, now)

    def _blame_sender(self, suspicion: Suspicion) -> None:
        """Count failures as sender-side while earlier connections work; judging continues."""
        if not suspicion.sender_side:
            suspicion.sender_side = True
            failing = self._witnesses.fallen.endpoints
            why = say(
                "{failing} endpoints that were healthy fail to connect, "
                "but connections made earlier still work",
                failing=failing,
            )
            log.warning("failures count as sender-side; sending continues", why=str(why))
            self._view = OutageView(state=OutageState.SUSPECTED, since=suspicion.since, why=why)
            held, suspicion.held = suspicion.held, []
            self._release(held, sender_error=True)
            self._set_timer(self._rules.quiet_ms)

    def _end_suspicion(self, *, sender_error: bool) -> None:
        suspicion, self._suspicion = self._suspicion, None
        assert suspicion is not None
        self._cancel_timer()
        self._view = OutageView(state=OutageState.NONE, since=self._clock.now())
        if sender_error:
            self._witnesses.rise_all()
        self._release(suspicion.held, sender_error=sender_error)
        self._calm()

    def _release(self, held: list[CompletedAttempt], *, sender_error: bool) -> None:
        for attempt in held:
            self.settle(as_sender_error(attempt) if sender_error else attempt)

    def _calm(self) -> None:
        fallen = self._witnesses.fallen.members
        self._alert = bool(self._suspicion is not None or self.active or self._hosts or fallen)

    # --- an outage ------------------------------------------------------------------------------

    def _begin_outage(self, suspicion: Suspicion, now: int) -> None:
        fallen, healthy = self._witnesses.fallen, self._witnesses.healthy
        why = say(
            "{failing} of {healthy} endpoints on {hosts} hosts that were healthy fail to connect "
            "(tenants: {failing_tenants} of {tenants}), and nothing gets through",
            failing=fallen.endpoints,
            healthy=healthy.endpoints,
            hosts=fallen.hosts,
            failing_tenants=fallen.tenants,
            tenants=healthy.tenants,
        )
        log.error("sender outage: nothing is sent but canaries", why=str(why))
        self._suspicion, self.began_at, self._alert = None, now, True
        self._count += 1
        self._view = OutageView(state=OutageState.CONFIRMED, since=now, why=why)
        self.on_change(NoticeKind.OUTAGE, text_facts("why", why))
        self._dispatcher.capacity.begin_outage()
        self._release(suspicion.held, sender_error=True)
        self._canaries.begin()
        self._set_timer(self._rules.canary_every_ms)

    def _end_outage(self, now: int) -> None:
        assert self.began_at is not None
        pause_ms = now - self.began_at
        log.warning(
            "the sender outage is over: a canary got through, sending resumes", outage_ms=pause_ms
        )
        self._cancel_timer()
        self._paused_ms = self._pause(self.began_at) + pause_ms
        self.ended_at, self.began_at = now, None
        self._witnesses.disprove()  # An endpoint that still fails has itself failed.
        self._view = OutageView(state=OutageState.NONE, since=now)
        self.on_change(NoticeKind.OUTAGE_OVER, {"outage_ms": pause_ms})
        self._begin(self._resume())

    async def _resume(self) -> None:
        """Let all endpoints begin with one slot, in slices, and resume sending."""
        for number, queue in enumerate(list(self._dispatcher.queues.values()), 1):
            queue.slow_start()
            # A canary in flight may hold the only slot of the endpoint.
            self._dispatcher.reschedule(queue)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        self._dispatcher.capacity.end_outage()
        self.on_end()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(work)

    # --- time --------------------------------------------------------------------------------

    def _set_timer(self, wait_ms: int) -> None:
        self._cancel_timer()
        self._timer_at = self._clock.now() + wait_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1000, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self.active:
            self._set_timer(self._rules.canary_every_ms)
            self._begin(self._canaries.send(lambda: self.active))
        elif self._suspicion is not None:
            self._judge_again(self._suspicion, max(self._clock.now(), self._timer_at))

    def _judge_again(self, suspicion: Suspicion, now: int) -> None:
        rules = self._rules
        if suspicion.sender_side and now - suspicion.seen_at >= rules.stay_ms:
            self._end_suspicion(sender_error=True)
            return
        self._judge(suspicion, now)
        if self._suspicion is not suspicion:
            return
        wait_ms = rules.quiet_ms
        if not suspicion.sender_side:
            at = min(suspicion.fell_at + rules.judge_ms, suspicion.since + rules.judge_max_ms)
            wait_ms = max(at - now, 1)
        self._set_timer(wait_ms)

    def stop(self) -> None:
        """Stop; failures that wait for a verdict count as sender-side and use no retry."""
        if self._suspicion is not None:
            self._end_suspicion(sender_error=True)
        if self._task is not None:
            self._task.cancel()
        self._cancel_timer()

    def quiet_since(self, now: int) -> int:
        """The end of the last outage; ``now`` during one."""
        return now if self.active else self.ended_at or 0
