"""The gate at work: every outcome passes here on its way to be settled.

What got through costs a look at one flag. A failure without an answer may have to wait here for
the verdict (``policy/gate``); it keeps its slot meanwhile, so what waits is bounded by the slots.
While the gate is closed the dispatcher starts nothing by itself, probes wait in their queue, and
this module sends the canaries. Each process has a gate of its own and judges its own network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.engine.attempt import Made
from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.station import LANES, Station
from homing.model import Lane, Outcome, Work
from homing.policy import gate as policy
from homing.policy.gate import GateState, HostTrouble, Needed, Sign, Verdict
from homing.policy.health import Ramp

log = structlog.get_logger("homing.gate")

HOSTS_MOST = 4_096  # hosts in trouble that are remembered
BELIEVED_MOST = 20_000  # endpoints whose failures were found to be their own
COUNT_EVERY_MS = 5_000  # the healthy are not counted more often than this


class GateView(Struct, frozen=True):
    """The gate as people see it."""

    state: GateState = GateState.OPEN
    since: int | None = None  # of this state, unless it was open all the time
    why: str = ""
    waiting: int = 0  # failures that wait for the verdict
    canaries: int = 0  # sent since the start of the process
    closings: int = 0  # since the start of the process


class _Doubt:
    """Since a healthy endpoint fell silent: who has, and the outcomes that wait."""

    __slots__ = ("held", "need", "proven", "seen_at", "silent", "since", "unreached")

    def __init__(self, since: int, need: Needed) -> None:
        self.since = self.seen_at = since  # seen: the last sign of it
        self.need = need
        self.unreached: dict[int, str] = {}  # healthy endpoints that fail to connect → their hosts
        self.silent: dict[int, str] = {}  # whose kept connections broke
        self.held: list[Made] = []
        self.proven = False  # the verdict was: ours

    @property
    def failing(self) -> dict[int, str]:
        return self.unreached | self.silent if self.silent else self.unreached


class Gate:
    """Open, judging, or closed."""

    def __init__(self, core: Core, dispatcher: Dispatcher) -> None:
        self._clock, self._dispatcher, self._rules = core.clock, dispatcher, core.options.gate
        self._doubt: _Doubt | None = None
        self._hosts: dict[str, HostTrouble] = {}  # in trouble that is called ours
        self._believed: dict[int, int] = {}  # endpoints whose failures were their own, and when
        self._uneasy = False  # there is a doubt, a closed gate or a host in trouble
        self._through_at = 0
        self._needed: Needed | None = None
        self._counted_at = -COUNT_EVERY_MS
        self._paused_ms = 0  # of the healthy time: closed, and not long ago
        self._timer: asyncio.TimerHandle | None = None
        self._canaries: dict[int, Station] = {}  # deliveries on their way
        self._wait_ms = 0  # until the next canaries
        self._after = 0  # the endpoint of the last canary
        self.closed_at: int | None = None
        self.opened_at: int | None = None
        self._view = GateView()
        self._sent = self._closings = 0
        # Set by the engine.
        self.settle: Callable[[Made], None]
        self.on_open: Callable[[], None]

    @property
    def closed(self) -> bool:
        return self.closed_at is not None

    def view(self) -> GateView:
        held = len(self._doubt.held) if self._doubt is not None else 0
        return replace(self._view, waiting=held, canaries=self._sent, closings=self._closings)

    # --- outcomes ----------------------------------------------------------------------------

    def made(self, made: Made) -> None:
        """An attempt has its answer: settle it, now or when it is judged."""
        if made.answer.code is None:
            self._no_answer(made)
            return
        self._through_at = made.finished_at
        if self._uneasy:
            self._answered(made)
        self.settle(made)

    def _answered(self, made: Made) -> None:
        station = self._dispatcher.stations.get(made.endpoint_id)
        if station is not None:
            self._hosts.pop(station.host, None)
        if self.closed_at is not None:
            if made.started_at >= self.closed_at:
                self._open(made.finished_at)
        elif self._doubt is not None:
            since = made.started_at >= self._doubt.since
            dialled = since and made.answer.phases.connect_us is not None
            if policy.sign(made.answer.code, None, dialled=dialled) is Sign.THROUGH:
                self._end_doubt(ours=False)
            else:
                self._lives(self._doubt, made.endpoint_id)
        self._ease()

    def _lives(self, doubt: _Doubt, endpoint_id: int) -> None:
        """A kept connection was answered: those that fell silent did so by themselves."""
        if doubt.proven:
            return
        cleared = {endpoint_id, *doubt.silent} - set(doubt.unreached)
        doubt.silent.clear()
        if doubt.unreached.pop(endpoint_id, None) is not None:
            cleared.add(endpoint_id)
        released = [one for one in doubt.held if one.endpoint_id in cleared]
        doubt.held = [one for one in doubt.held if one.endpoint_id not in cleared]
        self._release(released, ours=False)
        if not doubt.unreached:
            self._end_doubt(ours=False)

    def _no_answer(self, made: Made) -> None:
        if self.closed_at is not None:  # The gate paces what it lets out: no doubling.
            self.settle(_ours(replace(made, work=_rested(made.work))))
            return
        sign = policy.sign(
            None, made.answer.failure, dialled=made.answer.phases.connect_us is not None
        )
        station = self._dispatcher.stations.get(made.endpoint_id)
        evidence = (
            station is not None
            and sign in {Sign.UNREACHED, Sign.SILENT}
            and self._was_healthy(station, made.finished_at)
        )
        if evidence and self._doubt is None:
            self._begin_doubt(made.finished_at)
        doubt = self._doubt
        if made.outcome is Outcome.OURS:
            surely = doubt is not None and doubt.proven
            surely |= not policy.could_be_hosts(made.answer.failure)
            self.settle(made if station is None or surely else self._at_host(made, station.host))
        elif doubt is None:
            self.settle(made)
        elif doubt.proven:
            self.settle(_ours(made))
        else:
            doubt.held.append(made)
        if doubt is not None and evidence and station is not None:
            fell = doubt.unreached if sign is Sign.UNREACHED else doubt.silent
            fell[station.endpoint.id] = station.host
            doubt.seen_at = made.finished_at
            self._judge(doubt, made.finished_at)

    def _at_host(self, made: Made, host: str) -> Made:
        """Trouble called ours: whether it is the host's after all."""
        trouble, theirs = policy.host_again(
            self._hosts.pop(host, None), now=made.finished_at, through_at=self._through_at
        )
        if len(self._hosts) >= HOSTS_MOST:
            self._hosts.pop(next(iter(self._hosts)))
        self._hosts[host] = trouble
        self._uneasy = True
        return replace(made, outcome=Outcome.FAILED) if theirs else made

    # --- judging -----------------------------------------------------------------------------

    def _was_healthy(self, station: Station, now: int) -> bool:
        success_at = station.endpoint.health.last_success_at
        if success_at is None or success_at < now - self._rules.healthy_ms - self._pause(now):
            return False
        return success_at > self._believed.get(station.endpoint.id, -1)

    def _pause(self, now: int) -> int:
        """While closed nobody could be healthy: that time does not count."""
        if self.opened_at is None or now >= self.opened_at + self._rules.healthy_ms:
            return 0
        return self._paused_ms

    def _begin_doubt(self, now: int) -> None:
        if now - self._counted_at >= COUNT_EVERY_MS:
            self._counted_at, self._needed = now, self._count(now)
        if self._needed is None:
            return
        self._doubt, self._uneasy = _Doubt(now, self._needed), True
        self._view = GateView(state=GateState.JUDGING, since=now, why="healthy endpoints fail")
        self._ring(self._rules.judge_ms)

    def _count(self, now: int) -> Needed | None:
        """How many were healthy; no more are counted than are asked for."""
        rules, healthy, hosts = self._rules, 0, set[str]()
        for station in self._dispatcher.stations.values():
            if self._was_healthy(station, now):
                healthy += 1
                hosts.add(station.host)
                if healthy >= rules.sample_most and len(hosts) >= rules.hosts_min:
                    break
        return policy.needed(healthy=healthy, hosts=len(hosts), rules=rules)

    def _judge(self, doubt: _Doubt, now: int) -> None:
        failing = doubt.failing
        hosts = len(set(failing.values()))
        verdict = policy.verdict(
            failing=len(failing),
            hosts=hosts,
            need=doubt.need,
            lives=now - self._through_at < self._rules.quiet_ms,
            waited_ms=now - doubt.since,
            rules=self._rules,
        )
        match verdict:
            case Verdict.WAIT:
                return
            case Verdict.THEIRS:
                self._end_doubt(ours=False)
            case Verdict.OURS:
                self._stay_in_doubt(doubt)
            case Verdict.CLOSE:
                self._close(doubt, now, failing=len(failing), hosts=hosts)

    def _stay_in_doubt(self, doubt: _Doubt) -> None:
        """Ours, though something got through just now: all that waits is ours; judging goes on."""
        if not doubt.proven:
            doubt.proven = True
            why = f"{len(doubt.failing)} healthy endpoints fail to connect; old connections live"
            log.warning("our own trouble", why=why)
            self._view = GateView(state=GateState.JUDGING, since=doubt.since, why=why)
            held, doubt.held = doubt.held, []
            self._release(held, ours=True)
            self._ring(self._rules.quiet_ms)

    def _end_doubt(self, *, ours: bool) -> None:
        doubt, self._doubt = self._doubt, None
        assert doubt is not None
        self._stop_ringing()
        self._view = GateView(state=GateState.OPEN, since=self._clock.now())
        if not ours:
            self._believe(doubt)
        self._release(doubt.held, ours=ours)
        self._ease()

    def _believe(self, doubt: _Doubt) -> None:
        """Their next failures need no verdict, until they are healthy again."""
        if len(self._believed) >= BELIEVED_MOST:
            self._believed.clear()
        now = self._clock.now()
        self._believed.update(dict.fromkeys(doubt.failing, now))

    def _release(self, held: list[Made], *, ours: bool) -> None:
        for made in held:
            self.settle(_ours(made) if ours else made)

    def _ease(self) -> None:
        self._uneasy = bool(self._doubt is not None or self.closed or self._hosts)

    # --- closed ------------------------------------------------------------------------------

    def _close(self, doubt: _Doubt, now: int, *, failing: int, hosts: int) -> None:
        why = (
            f"{failing} endpoints on {hosts} hosts that were healthy fail to connect, "
            "and nothing gets through"
        )
        log.error("the gate is closed: our own outage; only canaries go out", why=why)
        self._doubt, self.closed_at, self._uneasy = None, now, True
        self._closings += 1
        self._view = GateView(state=GateState.CLOSED, since=now, why=why)
        self._dispatcher.shut = True
        self._release(doubt.held, ours=True)
        self._wait_ms = self._rules.canary_first_ms
        self._ring(self._wait_ms)

    def _open(self, now: int) -> None:
        assert self.closed_at is not None
        pause_ms = now - self.closed_at
        log.warning("the gate is open: a canary got through; all resumes", closed_ms=pause_ms)
        self._stop_ringing()
        self._paused_ms = self._pause(now) + pause_ms
        self.opened_at, self.closed_at = now, None
        self._counted_at = now - COUNT_EVERY_MS
        self._canaries.clear()
        self._view = GateView(state=GateState.OPEN, since=now)
        for station in list(self._dispatcher.stations.values()):
            station.ramp = Ramp()
            self._dispatcher.look(station)  # A canary in flight may be all that it has room for.
        self._dispatcher.shut = False
        self.on_open()

    def _send_canaries(self) -> None:
        if self._dispatcher.paused or self._dispatcher.draining:
            return
        now = self._clock.now()
        flying = {id_: at for id_, at in self._canaries.items() if id_ in at.in_flight}
        self._canaries = flying
        hosts = {station.host for station in flying.values()}
        for station, lane in self._ready(now):
            if len(flying) >= self._rules.canaries:
                return
            if station.host in hosts or not self._dispatcher.has_slot(lane):
                continue
            hosts.add(station.host)
            flying[station.queue(lane)[0].delivery.id] = station
            self._after = station.endpoint.id
            self._sent += 1
            self._dispatcher.start(station, lane, now)

    def _ready(self, now: int) -> Iterator[tuple[Station, Lane]]:
        """Those that could go, in turn: after the one that was last, and round again."""
        found = [
            (station.endpoint.id <= self._after, station.endpoint.id, station, lane)
            for station in self._dispatcher.stations.values()
            for lane in LANES
            if station.ready(lane, now)
        ]
        for _, _, station, lane in sorted(found, key=lambda one: one[:2]):
            yield station, lane

    # --- time --------------------------------------------------------------------------------

    def _ring(self, wait_ms: int) -> None:
        self._stop_ringing()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1000, self._rings)

    def _stop_ringing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rings(self) -> None:
        self._timer = None
        if self.closed:
            self._wait_ms = min(2 * self._wait_ms, self._rules.canary_most_ms)
            self._ring(self._wait_ms)
            self._send_canaries()
        elif self._doubt is not None:
            self._look_again(self._doubt)

    def _look_again(self, doubt: _Doubt) -> None:
        now = self._clock.now()
        if not doubt.proven:
            self._judge(doubt, max(now, doubt.since + self._rules.judge_ms))
        elif now - doubt.seen_at >= self._rules.stay_ms:
            self._end_doubt(ours=True)
        else:
            self._ring(self._rules.quiet_ms)
            self._judge(doubt, now)

    def stop(self) -> None:
        """The process ends: what waits for a verdict has spent nothing."""
        if self._doubt is not None:
            self._end_doubt(ours=True)
        self._stop_ringing()

    def quiet_since(self, now: int) -> int:
        """The end of our last pause: now, while it lasts."""
        return now if self.closed else self.opened_at or 0


def _rested(work: Work) -> Work:
    """As if it had not failed by our trouble before: it waits for the gate, and not for itself."""
    return replace(work, delivery=replace(work.delivery, ours=0)) if work.delivery.ours else work


def _ours(made: Made) -> Made:
    """Our own trouble, whatever the failure looks like."""
    if made.outcome is not Outcome.FAILED:
        return made
    detail = f"seen in an outage of our own: {made.answer.detail}".rstrip(": ")
    return replace(made, outcome=Outcome.OURS, answer=replace(made.answer, detail=detail))
