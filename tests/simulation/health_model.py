"""A second reading of the promised health rules and schedules, sharing no code with the policy.

It is written to be compared, so it is plain where the policy is fast: times are sought by counting
n up, states are words, and every rule stands as what-homing-promises.md has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BASE_MS = 84_800
MINUTE, HOUR = 60_000, 3_600_000
HOLD_MAX_MS = HOUR
REFUSED_HOLD_MS = MINUTE


@dataclass(frozen=True)
class Numbers:
    """The numbers of the rules (what-homing-promises.md#endpoint-health)."""

    rate_over_attempts: int = 100
    percent: int = 70
    row_disables: int = 2_000
    row_freezes_over: int = 2_000
    alone_freezes_over_ms: int = 72 * HOUR
    row_freezes_always: int = 50_000
    probe_every_ms: int = 10 * MINUTE


@dataclass(frozen=True)
class Timetable:
    """Retry n is ``times[n - 1]`` after t₀, or after the last failure.

    Promised: what-homing-promises.md#retry-schedule.
    """

    times: tuple[int, ...]
    from_first: bool
    window_ms: int
    jitter: float = 0.0
    deadline_ms: int = 5_000

    def retry_after(self, failed_at: int, *, t0: int, n: int) -> tuple[int, int, int] | None:
        """The next n, and the earliest and latest time it may be due; None: no n is ahead."""
        end = t0 + self.window_ms
        if self.from_first:
            ahead = [i for i, offset in enumerate(self.times, 1) if t0 + offset > failed_at]
            if not ahead:
                return None
            n = ahead[0]
            due = t0 + self.times[n - 1]
            gap = self.times[n - 1] - (self.times[n - 2] if n > 1 else 0)
        else:
            n += 1
            if n > len(self.times):
                return None
            gap = self.times[n - 1]
            due = failed_at + gap
        if min(due, end) <= failed_at:
            return None
        return n, min(due, end), min(due + int(gap * self.jitter), end)


def workfront() -> Timetable:
    """Due after ((2 to the n) - 1) times 84.8 s, n = 1 to 11; the window ends with the last."""
    times = tuple((2**n - 1) * BASE_MS for n in range(1, 12))
    return Timetable(times, from_first=True, window_ms=times[-1])


def workfront_chained() -> Timetable:
    """The same delays from failure to failure: 11 attempts in all, 48 h."""
    times = tuple((2**n - 1) * BASE_MS for n in range(1, 11))
    return Timetable(times, from_first=False, window_ms=48 * HOUR)


def standard_webhooks() -> Timetable:
    """5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h from attempt to attempt; 76 h."""
    hours = (2, 5, 10, 14, 20, 24)
    times = (5_000, 5 * MINUTE, 30 * MINUTE, *(hour * HOUR for hour in hours))
    return Timetable(times, from_first=False, window_ms=76 * HOUR)


def once() -> Timetable:
    """One attempt, which is made within the window of ``workfront``."""
    return Timetable((), from_first=True, window_ms=workfront().window_ms)


@dataclass
class Acceptance:
    """How many deliveries were committed so far, and endpoints enabled."""

    last: int = 0


@dataclass
class DeliveryModel:
    """What is promised of one delivery."""

    id: int
    tenant: str
    event_id: int
    subscription_id: int
    endpoint_id: int
    root_id: int
    accepted_at: int
    table: Timetable
    replay: bool = False
    bucket: int = 0
    due: int = 0
    due_latest: int = 0  # with jitter, a range; afterwards what was chosen of it
    expires: int = 0
    t0: int | None = None
    n: int = 0
    attempts: int = 0
    sender_errors: int = 0
    status: str = "pending"
    reason: str | None = None
    arrived: bool = False  # a receiver took it, although it was cancelled
    moved: bool = False  # it could not be sent for a while: another URL, or a 410
    paused: int = 0  # by how much the pauses of its subscription have moved its times
    key: str = ""  # of its event
    place: int = 0  # in the order of commits
    position: int = 0  # in the order of acceptance of all deliveries
    turn: int = 0  # the same, as if it were accepted when it was unblocked
    ordered: bool = False  # its subscription had an order when it was accepted
    blocked: bool = False  # it waits for others of its key
    freed: bool = False  # its subscription has no order any more
    ready: int = 0  # when it was accepted, or unblocked
    after_drop: bool = False  # it was unblocked because the one before was dropped
    unblocked_at: int = 0

    def __post_init__(self) -> None:
        self.ready = self.due = self.due_latest = self.accepted_at
        self.expires = self.accepted_at + self.table.window_ms

    @property
    def begin(self) -> int:
        """When it was accepted or unblocked, as the pauses since have moved it."""
        return self.ready + self.paused

    @property
    def waits_first(self) -> bool:
        """It was due when it was ready, and never attempted: a pause leaves it its place."""
        first = self.attempts == 0 and not self.replay and not self.after_drop
        return first and self.due == self.ready

    @property
    def was_just_unblocked(self) -> bool:
        """It is due since it was unblocked, so it may not have waited for quiet."""
        first = self.attempts == 0 and not self.replay
        return first and 0 < self.unblocked_at >= self.due - self.paused

    def move_to(self, paused: int) -> None:
        """Its subscription was paused for so long since it was ready."""
        by = paused - self.paused
        if not self.waits_first:
            self.due, self.due_latest = self.due + by, self.due_latest + by
        self.expires += by
        self.t0 = None if self.t0 is None else self.t0 + by
        self.paused = paused

    def failed(self, at: int, *, enabled_since: int, asked: int | None) -> bool:
        """An ordinary attempt failed; False: it is exhausted."""
        self.attempts += 1
        t0 = self.t0
        if t0 is None:
            t0 = self.begin if self.ready < enabled_since else at
        following = self.table.retry_after(at, t0=t0, n=self.n)
        if following is None:
            return False
        self.sender_errors, self.t0, self.expires = 0, t0, t0 + self.table.window_ms
        self.n, self.due, self.due_latest = following
        if asked is not None:
            self.due = min(max(self.due, asked), self.expires)
            self.due_latest = min(max(self.due_latest, asked), self.expires)
        return True

    def probe_failed(self, at: int) -> None:
        """A probe spends nothing; if it was the first attempt, t₀ is the acceptance."""
        self.attempts += 1
        self.sender_errors = 0
        if self.t0 is None:
            self.t0, self.expires = self.begin, self.begin + self.table.window_ms
            following = self.table.retry_after(at, t0=self.t0, n=self.n)
            if following is not None:
                self.n, self.due, _ = following
                self.due_latest = self.due
        self.due = min(self.due, self.expires)
        self.due_latest = min(self.due_latest, self.expires)

    def unblocked(self, at: int, *, after_drop: bool) -> None:
        """It may go from now on, as if it had just been accepted."""
        self.ready = self.due = self.due_latest = self.unblocked_at = at
        self.expires, self.after_drop = at + self.table.window_ms, after_drop
        self.paused = 0

    def had_sender_error(self, at: int, *, probe: bool) -> None:
        """Our own trouble: again after 5 s, doubling to 60 s; what a probe took keeps its time."""
        self.attempts += 1
        if probe:
            return
        self.due = self.due_latest = at + min(5_000 * 2 ** min(self.sender_errors, 9), 60_000)
        self.sender_errors += 1


Change = tuple[str, str, str, int, dict[str, int], str]  # from, to, rule, when, numbers, by whom


def whose_refusal(passed_under: int, settings: int) -> str:
    """The outcome of an attempt that the guard refuses under these settings; 0: it never passed.

    If the URL last passed under other settings, the operator refuses it; else its name leads to
    an address that never was allowed, and that is its receiver's affair.
    """
    return "sender_error" if passed_under and passed_under != settings else "failed"


@dataclass
class EndpointModel:
    """What is promised of one endpoint."""

    id: int
    tenant: str
    url: str
    numbers: Numbers
    enabled_since: int
    acceptance: Acceptance = field(default_factory=Acceptance)
    enabled_from: int = 0  # what is accepted from this position on is fresh
    since: int = 0
    state: str = "enabled"
    attempts: int = 0
    failures: int = 0
    row: int = 0  # consecutive failures
    first_attempt_at: int | None = None
    last_success_at: int | None = None
    enabled_by_person_at: int | None = None
    probe_at: int | None = None
    hold_until: int = 0
    guard_passed: int = 0  # the settings under which an attempt last passed the guard
    refused_at: int = 0  # when other settings last refused it; 0: not since it passed
    probed_last: int = 0
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.since = self.enabled_since
        self.enabled_from = self.acceptance.last + 1

    def _enabled(self, at: int) -> None:
        self.enabled_since = at
        self.acceptance.last += 1
        self.enabled_from = self.acceptance.last + 1

    def succeeded(self, at: int) -> None:
        self._counted(at)
        self.row = 0
        self.last_success_at = at
        if self.state == "disabled":
            self._becomes("enabled", "success", at, {"disabled_ms": at - self.since})
            self._enabled(at)
            self.attempts = self.failures = 0

    def failed(self, at: int, *, probe: bool, asked: int | None) -> None:
        self._counted(at)
        self.failures += 1
        self.row += 1
        if asked is not None:
            self.hold_until = max(self.hold_until, asked)
        if probe and self.state == "disabled":
            self.probe_at = at + self.numbers.probe_every_ms
        if self.state == "frozen":
            return
        if rule := self._freezes(at):
            self._becomes("frozen", rule, at, self._numbers(rule, at))
        elif self.state == "enabled" and (rule := self._disables()):
            self._becomes("disabled", rule, at, self._numbers(rule, at))
            self.probe_at = at + self.numbers.probe_every_ms

    def passed_guard(self, settings: int) -> None:
        self.guard_passed, self.refused_at = settings, 0

    def refused(self, at: int, settings: int) -> None:
        """The guard refused an attempt that was called a sender error: a minute of rest."""
        if whose_refusal(self.guard_passed, settings) == "sender_error":
            self.refused_at = at
            self.hold_until = max(self.hold_until, at + REFUSED_HOLD_MS)

    def enabled_by_person(self, at: int, by: str) -> None:
        if self.state != "enabled":
            self._becomes("enabled", "enabled_by_person", at, self._counts(), by)
            self._enabled(at)
        self.attempts = self.failures = self.row = 0
        self.enabled_by_person_at = at
        self.probe_at, self.hold_until = None, 0

    def frozen_by_person(self, at: int, by: str) -> None:
        if self.state != "frozen":
            self._becomes("frozen", "frozen_by_person", at, self._counts(), by)
        self.probe_at = None

    def _counted(self, at: int) -> None:
        self.attempts += 1
        if self.first_attempt_at is None:
            self.first_attempt_at = at

    def _freezes(self, at: int) -> str:
        numbers = self.numbers
        if self.row >= numbers.row_freezes_always:
            return "hopeless"
        alone = self._alone_ms(at) > numbers.alone_freezes_over_ms
        return "no_success" if self.row > numbers.row_freezes_over and alone else ""

    def _alone_ms(self, at: int) -> int:
        """Since its last success, its first attempt or a person's enable."""
        known = (self.last_success_at, self.first_attempt_at, self.enabled_by_person_at)
        return at - max(time for time in known if time is not None)

    def _disables(self) -> str:
        numbers = self.numbers
        many = self.attempts > numbers.rate_over_attempts
        if many and 100 * self.failures > numbers.percent * self.attempts:
            return "failure_rate"
        if self.row >= numbers.row_disables:
            return "consecutive_failures"
        return ""

    def _counts(self) -> dict[str, int]:
        return {
            "attempts": self.attempts,
            "failures": self.failures,
            "consecutive_failures": self.row,
        }

    def _numbers(self, rule: str, at: int) -> dict[str, int]:
        """What a person is told of the rule that held."""
        limits, row = self.numbers, {"consecutive_failures": self.row}
        match rule:
            case "failure_rate":
                counted = {"attempts": self.attempts, "failures": self.failures}
                return {**counted, "limit_percent": limits.percent}
            case "consecutive_failures":
                return {**row, "limit": limits.row_disables}
            case "hopeless":
                return {**row, "limit": limits.row_freezes_always}
            case _:
                alone = {"without_success_ms": self._alone_ms(at)}
                limit = {"limit_ms": limits.alone_freezes_over_ms}
                return {**row, "limit": limits.row_freezes_over, **alone, **limit}

    def _becomes(
        self, state: str, rule: str, at: int, numbers: dict[str, int], by: str = ""
    ) -> None:
        self.changes.append((self.state, state, rule, at, numbers, by))
        self.state, self.since, self.probe_at = state, at, None
