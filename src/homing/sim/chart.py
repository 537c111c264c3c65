"""The data of the drawings of a simulation: each endpoint's time in equal steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from homing.languages.sentences import say
from homing.model import State
from homing.policy.explain import explain_change
from homing.sim.play import Played
from homing.sim.record import AttemptLine, FinishLine, StateLine
from homing.sim.scenario import Do, Outage, Receiver
from homing.sim.summary import LATE_MS
from homing.sim.summary_text import figure, span_text

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_TICKS_MS = (
    *(_SECOND // 10, _SECOND, 5 * _SECOND, 15 * _SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY),
)
_STEPS_MS = (
    *(1, 5, 10, 50, 100, 500, _SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 20 * _SECOND),
    *(30 * _SECOND, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 20 * _MINUTE),
    *(30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY),
)


_ACTIONS = {
    Do.ENABLE: say("enable"),
    Do.FREEZE: say("freeze"),
    Do.REPLAY_DROPPED: say("replay dropped"),
}


class Span(Struct, frozen=True):
    """A span of time with a label."""

    from_ms: int
    to_ms: int
    label: str


class Mark(Struct, frozen=True):
    """A moment with a label and a sentence."""

    at_ms: int
    label: str
    sentence: str


class Panel(Struct, frozen=True):
    """One endpoint, ready to be drawn; the lists have one number for each step of time."""

    name: str
    step_ms: int
    run_for_ms: int
    delivered: list[int]
    failed: list[int]
    sender_errors: list[int]  # sender-side failures
    probes_delivered: list[int]
    probes_failed: list[int]
    backlog: list[int]  # the maximum within the step
    states: list[Span]
    outages: list[Span]
    pauses: list[Span]  # of all sending
    changes: list[Mark]  # of its state
    actions: list[Mark]  # of people

    @property
    def attempts(self) -> list[int]:
        return list(map(sum, zip(self.delivered, self.failed, self.sender_errors, strict=True)))


def panels(played: Played, *, steps: int, names: Sequence[str], even: bool = False) -> list[Panel]:
    """These endpoints, in this order, in so many steps; ``even``: fewer steps of a round length."""
    # One millisecond more than the run: its last moment belongs to the last step.
    step_ms = -(-(played.scenario.run_for_ms + 1) // steps)
    if even:
        least_ms = -(-played.scenario.run_for_ms // steps)
        step_ms = next((one for one in _STEPS_MS if one >= least_ms), step_ms)
    cut = _Cut(played, step_ms, frozenset(names))
    receivers = {receiver.name: receiver for receiver in played.scenario.receivers}
    return [cut.panel(receivers[name]) for name in names]


class _Cut:
    """The lines of a trace, sorted into endpoints and steps."""

    def __init__(self, played: Played, step_ms: int, names: frozenset[str]) -> None:
        self._scenario = scenario = played.scenario
        self._step_ms = step_ms
        self._steps = -(-(scenario.run_for_ms + 1) // step_ms)
        self._counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * self._steps)
        self._moves: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._changes: dict[str, list[StateLine]] = defaultdict(list)
        trace = played.trace
        self._pauses = trace.pauses
        finished_ms: dict[int, int] = {}
        for line in trace.lines:
            match line:
                case AttemptLine():
                    if line.endpoint in names:
                        self._attempt(line)
                case FinishLine():
                    finished_ms[line.delivery] = line.at_ms
                case StateLine():
                    self._changes[line.endpoint].append(line)
        starts = zip(trace.homes, trace.accepted_ms, strict=True)
        for number, (home, at_ms) in enumerate(starts, start=1):
            end_ms = finished_ms.get(number, scenario.run_for_ms + 1)
            if home in names and end_ms - at_ms > LATE_MS:
                self._moves[home] += [(at_ms, 1), (end_ms, -1)]

    def _attempt(self, line: AttemptLine) -> None:
        kind = line.outcome
        if line.lane == "probe":
            kind = "probes_delivered" if kind == "delivered" else "probes_failed"
        self._counts[line.endpoint, kind][line.at_ms // self._step_ms] += 1

    def panel(self, receiver: Receiver) -> Panel:
        name, run_for_ms = receiver.name, self._scenario.run_for_ms
        lines = self._changes[name]
        begins = [0, *(line.at_ms for line in lines)]
        words = [receiver.start.state.value, *(line.after for line in lines)]
        return Panel(
            name=name,
            step_ms=self._step_ms,
            run_for_ms=run_for_ms,
            delivered=self._counts[name, "delivered"],
            failed=self._counts[name, "failed"],
            sender_errors=self._counts[name, "sender_error"],
            probes_delivered=self._counts[name, "probes_delivered"],
            probes_failed=self._counts[name, "probes_failed"],
            backlog=self._backlog(name),
            states=[
                Span(begin, end, word)
                for begin, end, word in zip(begins, [*begins[1:], run_for_ms], words, strict=True)
            ],
            outages=[
                Span(one.from_ms, min(one.to_ms, run_for_ms), _outage_word(one))
                for one in receiver.outages
                if one.from_ms < run_for_ms
            ],
            pauses=[Span(one.from_ms, one.to_ms, "paused") for one in self._pauses],
            changes=[_change(line) for line in lines],
            actions=[
                Mark(action.at_ms, _ACTIONS[action.do], "")
                for action in self._scenario.actions
                if self._scenario.receivers[action.endpoint].name == name
            ],
        )

    def _backlog(self, name: str) -> list[int]:
        """The largest backlog of each step, without deliveries that took less than a second."""
        net: dict[int, int] = defaultdict(int)
        for at_ms, change in self._moves[name]:
            net[at_ms] += change
        times = sorted(net)
        levels = list(accumulate(net[at_ms] for at_ms in times))
        peaks = [0] * self._steps
        level, place = 0, 0
        for step in range(self._steps):
            peaks[step] = level
            while place < len(times) and times[place] // self._step_ms == step:
                level = levels[place]
                peaks[step] = max(peaks[step], level)
                place += 1
        return peaks


def _change(line: StateLine) -> Mark:
    by = say("a person") if line.rule.endswith("_by_person") else ""
    sentence = explain_change(State(line.before), State(line.after), line.rule, line.numbers, by=by)
    return Mark(line.at_ms, line.after, sentence)


def _outage_word(outage: Outage) -> str:
    how = ""
    if outage.hangs:
        how = say("hangs")
    elif outage.refuses:
        how = say("refuses")
    elif outage.responds is not None:
        how = str(outage.responds)
    if outage.latency_ms is not None:
        latency = span_text(outage.latency_ms)
        how = say("{how} {latency}", how=how, latency=latency) if how else latency
    if outage.fails is None:
        return how
    percent = figure(f"{outage.fails * 100:g}")
    if not how:
        return say("{percent} % fail", percent=percent)
    return say("{percent} % fail {how}", percent=percent, how=how)


def ticks(run_for_ms: int, count_max: int) -> list[int]:
    """Round times for an axis: 0 and at most ``count_max`` others."""
    for step_ms in _TICKS_MS:
        if run_for_ms // step_ms <= count_max:
            return list(range(0, run_for_ms + 1, step_ms))
    return [0, run_for_ms]


def most_interesting(played: Played, count_max: int) -> list[str]:
    """The endpoints to draw when there are many: those with changes of state, then by failures."""
    names = [receiver.name for receiver in played.scenario.receivers]
    if len(names) <= count_max:
        return names
    weight: dict[str, list[int]] = {name: [0, 0] for name in names}
    for line in played.trace.lines:
        if isinstance(line, StateLine):
            weight[line.endpoint][0] += 1
        elif isinstance(line, AttemptLine) and line.outcome != "delivered":
            weight[line.endpoint][1] += 1
    chosen = set(sorted(names, key=lambda name: weight[name], reverse=True)[:count_max])
    return [name for name in names if name in chosen]
