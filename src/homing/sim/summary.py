"""The results of a simulation in numbers: for each endpoint, and for all together.

A delivery is late if its successful attempt began more than a second after its acceptance; its
lateness is the time between the two. A recovery is the end of an outage, or the moment at which an
endpoint becomes enabled; the peak after it is the largest number of requests in one second of the
following hour.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from homing.model import State, Status
from homing.sim.play import Played
from homing.sim.record import AttemptLine, FinishLine, StateLine

LATE_MS = 1_000
RECOVERY_MS = 3_600_000
PEAK_MS = 1_000


class Late(Struct, frozen=True):
    """How many deliveries were late, and by how much."""

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None
    last_at_ms: int | None = None  # when the last of them was delivered


class Figures(Struct, frozen=True):
    """The numbers of one endpoint, or of all."""

    accepted: int
    delivered: int
    late: Late
    dropped: dict[str, int]  # by reason
    cancelled: int
    pending: int
    attempts: int
    failed: int
    sender_errors: int  # sender-side failures, which count for nothing
    probes: int
    requests: int
    disabled_ms: int
    frozen_ms: int
    peak_per_second_after_recovery: int


class Summary(Struct, frozen=True):
    """The results of a scenario under its policy."""

    policy: str
    seed: int
    run_for_ms: int
    total: Figures
    endpoints: dict[str, Figures]
    paused_ms: int  # by a sender outage
    trace_sha256: str


def summary_line(summary: Summary) -> bytes:
    """The last line of a trace, as JSON: the numbers of all endpoints, then of each."""
    return msgspec.json.encode(
        {
            "kind": "summary",
            "policy": summary.policy,
            "seed": summary.seed,
            "run_for_ms": summary.run_for_ms,
            **msgspec.structs.asdict(summary.total),
            "paused_ms": summary.paused_ms,
            "endpoints": summary.endpoints,
            "trace_sha256": summary.trace_sha256,
        }
    )


def summarize(played: Played) -> Summary:
    """The summary of a played scenario."""
    scenario, trace = played.scenario, played.trace
    books = {it.name: _Counts(it.start.state) for it in scenario.receivers}
    for home in trace.homes:
        books[home].accepted += 1
    _read(played, books)
    for receiver in scenario.receivers:
        ends = [outage.to_ms for outage in receiver.outages]
        book = books[receiver.name]
        book.requests = len(trace.requests_ms[receiver.name])
        book.peak = peak_after(trace.requests_ms[receiver.name], [*ends, *book.enabled_at])
        book.close(scenario.run_for_ms)
    return Summary(
        policy=scenario.schedule.name,
        seed=scenario.seed,
        run_for_ms=scenario.run_for_ms,
        total=_total(books.values()).figures(),
        endpoints={name: book.figures() for name, book in books.items()},
        paused_ms=sum(pause.to_ms - pause.from_ms for pause in trace.pauses),
        trace_sha256=trace.sha256,
    )


def _read(played: Played, books: dict[str, _Counts]) -> None:
    trace = played.trace
    last_start: dict[int, int] = {}  # of each delivery's latest attempt
    for line in trace.lines:
        match line:
            case AttemptLine():
                book = books[line.endpoint]
                book.attempts += 1
                book.failed += line.outcome == "failed"
                book.sender_errors += line.outcome == "sender_error"
                book.probes += line.lane == "probe"
                last_start[line.delivery] = line.at_ms
            case FinishLine():
                book = books[trace.homes[line.delivery - 1]]
                book.finished[line.status, line.reason or ""] += 1
                if line.status == Status.DELIVERED:
                    accepted_ms = trace.accepted_ms[line.delivery - 1]
                    book.delivered(last_start.pop(line.delivery) - accepted_ms, line.at_ms)
            case StateLine():
                books[line.endpoint].change(line)


class _Counts:
    """The counts of one endpoint so far."""

    def __init__(self, state: State = State.ENABLED) -> None:
        self.accepted = self.attempts = self.failed = self.sender_errors = self.probes = 0
        self.requests = self.peak = 0
        self.finished: Counter[tuple[str, str]] = Counter()
        self.lateness: list[int] = []
        self.last_late_at: int | None = None
        self.enabled_at: list[int] = []
        self.spent_ms: defaultdict[str, int] = defaultdict(int)
        self._state, self._since = state.value, 0

    def delivered(self, late_ms: int, at_ms: int) -> None:
        self.lateness.append(late_ms)
        if late_ms > LATE_MS:
            self.last_late_at = at_ms  # Lines are in the order of time.

    def change(self, line: StateLine) -> None:
        self.spent_ms[self._state] += line.at_ms - self._since
        self._state, self._since = line.after, line.at_ms
        if line.after == State.ENABLED:
            self.enabled_at.append(line.at_ms)

    def close(self, at_ms: int) -> None:
        self.spent_ms[self._state] += at_ms - self._since

    def figures(self) -> Figures:
        finished = self.finished
        dropped: Counter[str] = Counter({"exhausted": 0, "expired": 0})
        for (status, reason), count in finished.items():
            if status == Status.DROPPED:
                dropped[reason] += count
        late = sorted(one for one in self.lateness if one > LATE_MS)
        return Figures(
            accepted=self.accepted,
            delivered=len(self.lateness),
            late=Late(
                len(late),
                _share(late, 50),
                _share(late, 99),
                late[-1] if late else None,
                self.last_late_at,
            ),
            dropped=dict(dropped),
            cancelled=sum(n for (status, _), n in finished.items() if status == Status.CANCELLED),
            pending=self.accepted - sum(finished.values()),
            attempts=self.attempts,
            failed=self.failed,
            sender_errors=self.sender_errors,
            probes=self.probes,
            requests=self.requests,
            disabled_ms=self.spent_ms[State.DISABLED.value],
            frozen_ms=self.spent_ms[State.FROZEN.value],
            peak_per_second_after_recovery=self.peak,
        )


def _total(books: Iterable[_Counts]) -> _Counts:
    total = _Counts()
    for book in books:
        total.accepted += book.accepted
        total.attempts += book.attempts
        total.failed += book.failed
        total.sender_errors += book.sender_errors
        total.probes += book.probes
        total.requests += book.requests
        total.peak = max(total.peak, book.peak)
        total.finished.update(book.finished)
        total.lateness += book.lateness
        if book.last_late_at is not None:
            total.last_late_at = max(total.last_late_at or 0, book.last_late_at)
        for state, ms in book.spent_ms.items():
            total.spent_ms[state] += ms
    return total


def peak_after(times: Sequence[int], recoveries: Iterable[int]) -> int:
    """The largest number in one second, within an hour after any of these moments."""
    peak = 0
    for begin in sorted(set(recoveries)):
        first, last = bisect_left(times, begin), bisect_left(times, begin + RECOVERY_MS)
        end = first
        for at in range(first, last):
            while end < last and times[end] < times[at] + PEAK_MS:
                end += 1
            peak = max(peak, end - at)
    return peak


def _share(values: Sequence[int], percent: int) -> int | None:
    """The value that so many percent of the values do not exceed; None without values."""
    if not values:
        return None
    return values[min(-(-len(values) * percent // 100), len(values)) - 1]
