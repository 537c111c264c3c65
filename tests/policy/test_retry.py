"""A failed delivery goes again at the times of its schedule, and not for ever.

Promised: what-homing-promises.md#retry-schedule.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.model import Delivery
from homing.policy import retry
from homing.policy.presets import STANDARD_WEBHOOKS, WORKFRONT, WORKFRONT_CHAINED
from homing.policy.retry import Anchor, Schedule
from policy.build import DAY, HOUR, MINUTE, NOW, SECOND, a_delivery, a_schedule


def hms(hours: int = 0, minutes: int = 0, seconds: float = 0) -> int:
    return hours * HOUR + minutes * MINUTE + round(seconds * SECOND)


def fail(delivery: Delivery, schedule: Schedule, *, at: int, enabled_since: int = 0) -> Delivery:
    row = retry.after_failure(delivery, schedule, now=at, enabled_since=enabled_since)
    assert row is not None
    return row


def failures(schedule: Schedule) -> list[Delivery]:
    """The rows of a delivery that is attempted the moment it is due and fails at once."""
    rows: list[Delivery] = []
    row: Delivery | None = a_delivery()
    while row is not None:
        row = retry.after_failure(row, schedule, now=row.due_at, enabled_since=0)
        if row is not None:
            rows.append(row)
    return rows


WORKFRONT_TABLE = [
    hms(0, 1, 24.8),
    hms(0, 4, 14.4),
    hms(0, 9, 53.6),
    hms(0, 21, 12),
    hms(0, 43, 48.8),
    hms(1, 29, 2.4),
    hms(2, 59, 29.6),
    hms(6, 0, 24),
    hms(12, 2, 12.8),
    hms(24, 5, 50.4),
    hms(48, 13, 5.6),
]
CHAINED_TABLE = [sum(WORKFRONT_TABLE[: n + 1]) for n in range(10)]
STANDARD_TABLE = [
    hms(seconds=5),
    hms(0, 5, 5),
    hms(0, 35, 5),
    hms(2, 35, 5),
    hms(7, 35, 5),
    hms(17, 35, 5),
    hms(31, 35, 5),
    hms(51, 35, 5),
    hms(75, 35, 5),
]


@pytest.mark.parametrize(
    ("schedule", "table"),
    [
        pytest.param(WORKFRONT, WORKFRONT_TABLE, id="workfront from the first failure"),
        pytest.param(WORKFRONT_CHAINED, CHAINED_TABLE, id="workfront from failure to failure"),
        pytest.param(STANDARD_WEBHOOKS, STANDARD_TABLE, id="standard webhooks"),
    ],
)
def test_a_preset_retries_at_these_times_to_the_millisecond(
    schedule: Schedule, table: list[int]
) -> None:
    rows = failures(schedule)
    assert [row.due_at - NOW for row in rows] == table
    assert [row.retry for row in rows] == list(range(1, len(table) + 1))
    assert [row.attempts for row in rows] == list(range(1, len(table) + 1))
    assert {row.t0 for row in rows} == {NOW}
    assert {row.expires_at for row in rows} == {NOW + schedule.window_ms}


def test_the_workfront_window_ends_with_the_eleventh_retry() -> None:
    assert WORKFRONT.window_ms == hms(48, 13, 5.6)
    assert failures(WORKFRONT)[-1].due_at == retry.window_end(NOW, WORKFRONT)


def test_chained_makes_eleven_attempts_in_all_the_last_before_48_hours() -> None:
    assert CHAINED_TABLE[-1] == hms(47, 57, 32.8)
    assert len(CHAINED_TABLE) + 1 == 11
    assert WORKFRONT_CHAINED.window_ms == 48 * HOUR


FAILED_AT = NOW + 5 * SECOND


@pytest.mark.parametrize(
    ("accepted_at", "enabled_since", "t0"),
    [
        pytest.param(NOW, NOW - 1, FAILED_AT, id="accepted while enabled: the failure"),
        pytest.param(NOW, NOW, FAILED_AT, id="accepted as it was enabled: the failure"),
        pytest.param(NOW, NOW + 1, NOW, id="held back first: the acceptance"),
    ],
)
def test_t0_of_a_first_failure_is(accepted_at: int, enabled_since: int, t0: int) -> None:
    row = fail(
        a_delivery(accepted_at=accepted_at), WORKFRONT, at=FAILED_AT, enabled_since=enabled_since
    )
    assert row.t0 == t0
    assert row.due_at == t0 + WORKFRONT_TABLE[0]
    assert row.expires_at == t0 + WORKFRONT.window_ms


def test_t0_stays_once_it_is_known() -> None:
    row = fail(a_delivery(t0=NOW, retry=1, attempts=1), WORKFRONT, at=NOW + hms(0, 1, 30))
    row = fail(row, WORKFRONT, at=NOW + hms(0, 5), enabled_since=NOW + hms(0, 4))
    assert row.t0 == NOW


@pytest.mark.parametrize(
    ("failed_after", "n"),
    [
        pytest.param(0, 1, id="at t0: the first"),
        pytest.param(hms(0, 1, 24.8) - 1, 1, id="1 ms before retry 1: still retry 1"),
        pytest.param(hms(0, 1, 24.8), 2, id="exactly at retry 1: retry 2, strictly after"),
        pytest.param(hms(10), 9, id="after ten hours: the missed ones are skipped"),
        pytest.param(hms(48, 13, 5.6) - 1, 11, id="1 ms before the window ends: the last"),
        pytest.param(hms(48, 13, 5.6), None, id="as the window ends: exhausted"),
        pytest.param(hms(100), None, id="long after: exhausted"),
    ],
)
def test_a_failure_takes_the_smallest_retry_ahead(failed_after: int, n: int | None) -> None:
    waiting = a_delivery(t0=NOW, retry=1, attempts=1)
    row = retry.after_failure(waiting, WORKFRONT, now=NOW + failed_after, enabled_since=0)
    assert (row and row.retry) == n
    if row is not None and n is not None:
        assert row.due_at == NOW + WORKFRONT_TABLE[n - 1]


def test_a_failure_ends_a_row_of_our_own_troubles() -> None:
    assert fail(a_delivery(sender_errors=3, attempts=3), WORKFRONT, at=NOW).sender_errors == 0


CHAIN = a_schedule(anchor=Anchor.PREVIOUS_FAILURE, window_ms=10 * MINUTE)


@pytest.mark.parametrize(
    ("failed_after", "done", "due_after"),
    [
        pytest.param(2 * MINUTE, 1, 5 * MINUTE, id="the delay counts from this failure"),
        pytest.param(9 * MINUTE, 1, 10 * MINUTE, id="past the window: clamped to its end"),
        pytest.param(10 * MINUTE - 1, 2, 10 * MINUTE, id="1 ms before the end: the end"),
        pytest.param(10 * MINUTE, 2, None, id="at the end: exhausted"),
        pytest.param(5 * MINUTE, 3, None, id="all retries made: exhausted"),
    ],
)
def test_a_chained_failure(failed_after: int, done: int, due_after: int | None) -> None:
    waiting = a_delivery(t0=NOW, retry=done, attempts=done)
    row = retry.after_failure(waiting, CHAIN, now=NOW + failed_after, enabled_since=0)
    assert (row and row.due_at - NOW) == due_after
    assert (row and row.retry) == (due_after and done + 1)


@pytest.mark.parametrize(
    ("asked_after", "due_after"),
    [
        pytest.param(SECOND, MINUTE, id="earlier than the retry: the retry's time"),
        pytest.param(2 * MINUTE, 2 * MINUTE, id="later: the later of both"),
        pytest.param(5 * MINUTE, 5 * MINUTE, id="after a later retry: still retry 1"),
        pytest.param(30 * MINUTE, 7 * MINUTE, id="past the window: its end"),
    ],
)
def test_retry_after_moves_the_retry_and_it_stays_the_same_retry(
    asked_after: int, due_after: int
) -> None:
    row = retry.after_failure(
        a_delivery(), a_schedule(), now=NOW, enabled_since=0, retry_after_at=NOW + asked_after
    )
    assert row is not None
    assert row.due_at == NOW + due_after
    assert row.retry == 1


@pytest.mark.parametrize(
    ("random", "extra"),
    [
        pytest.param(0.0, 0, id="zero adds nothing"),
        pytest.param(0.5, 30 * SECOND, id="half of half the wait since retry 1"),
        pytest.param(0.999, 59_940, id="nearly all of it"),
    ],
)
def test_jitter_adds_a_part_of_the_wait_since_the_retry_before(random: float, extra: int) -> None:
    schedule = a_schedule(jitter=0.5)
    waiting = a_delivery(t0=NOW, retry=1, attempts=1)
    row = retry.after_failure(waiting, schedule, now=NOW + MINUTE, enabled_since=0, random=random)
    assert row is not None
    assert row.due_at == NOW + 3 * MINUTE + extra


def test_jitter_never_leaves_the_window() -> None:
    waiting = a_delivery(t0=NOW, retry=2, attempts=2)
    row = retry.after_failure(
        waiting, a_schedule(jitter=1.0), now=NOW + 3 * MINUTE, enabled_since=0, random=0.9
    )
    assert row is not None
    assert row.due_at == NOW + 7 * MINUTE


# --- probes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probed_after", "n", "due_after"),
    [
        pytest.param(30 * SECOND, 1, MINUTE, id="before retry 1: it waits for retry 1"),
        pytest.param(MINUTE, 2, 3 * MINUTE, id="at retry 1: it waits for retry 2"),
        pytest.param(7 * MINUTE, 0, 0, id="nothing ahead: it stays due as it was"),
    ],
)
def test_a_first_attempt_that_is_a_probe_counts_from_acceptance(
    probed_after: int, n: int, due_after: int
) -> None:
    row = retry.after_probe_failure(a_delivery(), a_schedule(), now=NOW + probed_after)
    assert (row.t0, row.retry, row.attempts) == (NOW, n, 1)
    assert row.due_at == NOW + due_after
    assert row.expires_at == NOW + 7 * MINUTE


@pytest.mark.parametrize(
    ("probed_after", "n", "due_after"),
    [
        pytest.param(30 * SECOND, 1, 90 * SECOND, id="retry 1, a delay from the probe"),
        pytest.param(hms(0, 9, 30), 1, 10 * MINUTE, id="clamped to the window"),
        pytest.param(10 * MINUTE, 0, 0, id="the window is over: it stays due as it was"),
    ],
)
def test_a_chained_first_attempt_that_is_a_probe(probed_after: int, n: int, due_after: int) -> None:
    row = retry.after_probe_failure(a_delivery(), CHAIN, now=NOW + probed_after)
    assert (row.t0, row.retry, row.due_at) == (NOW, n, NOW + due_after)


@pytest.mark.parametrize("schedule", [WORKFRONT, CHAIN], ids=["workfront", "chained"])
def test_a_later_probe_spends_nothing(schedule: Schedule) -> None:
    waiting = fail(a_delivery(), schedule, at=NOW)
    row = retry.after_probe_failure(waiting, schedule, now=NOW + HOUR)
    assert row == replace(waiting, attempts=2)


@pytest.mark.parametrize("t0", [NOW, None], ids=["a later one", "the first attempt"])
def test_a_probe_after_trouble_of_ours_leaves_no_due_time_after_the_window(t0: int | None) -> None:
    end = NOW + 7 * MINUTE
    waiting = retry.after_sender_error(a_delivery(t0=t0, expires_at=end), now=end - SECOND)
    assert waiting.due_at > end
    row = retry.after_probe_failure(waiting, a_schedule(), now=end)
    assert (row.due_at, row.expires_at) == (end, end)


# --- sender errors --------------------------------------------------------------------------


def test_our_own_trouble_waits_5_s_doubling_to_60_s_and_spends_nothing() -> None:
    row = a_delivery(t0=NOW, retry=4, attempts=9)
    waits = []
    for _ in range(7):
        after = retry.after_sender_error(row, now=NOW)
        waits.append((after.due_at - NOW) // SECOND)
        assert after == replace(
            row, attempts=row.attempts + 1, sender_errors=row.sender_errors + 1, due_at=after.due_at
        )
        row = after
    assert waits == [5, 10, 20, 40, 60, 60, 60]


def test_our_own_trouble_with_a_probe_is_counted_and_moves_nothing() -> None:
    row = a_delivery(t0=NOW, retry=4, attempts=9, due_at=NOW + DAY)
    assert retry.after_sender_error(row, now=NOW, probe=True) == replace(row, attempts=10)


def test_a_year_of_sender_errors_still_waits_60_s() -> None:
    assert (
        retry.after_sender_error(a_delivery(sender_errors=500_000), now=NOW).due_at == NOW + MINUTE
    )


def test_our_own_trouble_before_the_first_attempt_leaves_t0_open() -> None:
    row = retry.after_sender_error(a_delivery(), now=NOW)
    assert row.t0 is None
    assert fail(row, WORKFRONT, at=row.due_at).t0 == NOW + 5 * SECOND


# --- windows --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enabled_after", "held"),
    [
        pytest.param(-1, False, id="enabled 1 ms before the window ended: merely late"),
        pytest.param(0, True, id="enabled as it ended: held back until then"),
        pytest.param(DAY, True, id="enabled a day later"),
    ],
)
def test_held_past_the_window(enabled_after: int, held: bool) -> None:
    row = a_delivery()
    enabled_since = row.expires_at + enabled_after
    assert retry.held_past_window(row, enabled_since=enabled_since) is held


# --- what lies ahead ------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [WORKFRONT, WORKFRONT_CHAINED, STANDARD_WEBHOOKS])
def test_a_fresh_delivery_has_the_whole_timetable_ahead(schedule: Schedule) -> None:
    expected = tuple((row.retry, row.due_at) for row in failures(schedule))
    assert retry.remaining(a_delivery(), schedule) == expected


def test_what_remains_begins_with_the_retry_it_waits_for() -> None:
    row = a_delivery(t0=NOW, retry=2, due_at=NOW + 3 * MINUTE, attempts=2)
    assert retry.remaining(row, a_schedule()) == ((2, NOW + 3 * MINUTE), (3, NOW + 7 * MINUTE))


def test_a_retry_moved_past_the_next_one_takes_its_place() -> None:
    row = a_delivery(t0=NOW, retry=1, due_at=NOW + 5 * MINUTE, attempts=1)
    assert retry.remaining(row, a_schedule()) == ((1, NOW + 5 * MINUTE), (3, NOW + 7 * MINUTE))


def test_a_chained_timetable_ends_with_its_window() -> None:
    row = a_delivery(t0=NOW, retry=1, due_at=NOW + 2 * MINUTE, attempts=1)
    assert retry.remaining(row, CHAIN) == (
        (1, NOW + 2 * MINUTE),
        (2, NOW + 5 * MINUTE),
        (3, NOW + 10 * MINUTE),
    )
    late = replace(row, due_at=NOW + 10 * MINUTE)
    assert retry.remaining(late, CHAIN) == ((1, NOW + 10 * MINUTE),)


def test_nothing_remains_for_what_was_only_probed_and_has_no_retry_ahead() -> None:
    row = retry.after_probe_failure(a_delivery(), a_schedule(), now=NOW + HOUR)
    assert retry.remaining(row, a_schedule()) == ()


# --- Retry-After ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "after"),
    [
        pytest.param("120", 120 * SECOND, id="seconds"),
        pytest.param(" 120 ", 120 * SECOND, id="with spaces around"),
        pytest.param("3600", HOUR, id="one hour"),
        pytest.param("3601", HOUR, id="more than one hour is one hour"),
        pytest.param("9" * 5000, HOUR, id="a number without end is one hour"),
        pytest.param("0", None, id="zero is not ahead"),
        pytest.param("-5", None, id="negative"),
        pytest.param("1.5", None, id="a fraction"),
        pytest.param("", None, id="empty"),
        pytest.param("soon", None, id="a word"),
        pytest.param("١٢", None, id="digits of another script"),
        pytest.param("Thu, 12 Nov 2026 14:10:00 GMT", 10 * MINUTE, id="date"),
        pytest.param("Thursday, 12-Nov-26 14:10:00 GMT", 10 * MINUTE, id="RFC 850 date"),
        pytest.param("Thu Nov 12 14:10:00 2026", 10 * MINUTE, id="asctime date"),
        pytest.param("Thu, 12 Nov 2026 13:59:59 GMT", None, id="a date in the past"),
        pytest.param("Thu, 12 Nov 2026 14:00:00 GMT", None, id="the date of now"),
        pytest.param("Fri, 13 Nov 2026 14:00:00 GMT", HOUR, id="tomorrow is one hour"),
        pytest.param("Thu, 12 Nov 2026 14:10:60 GMT", 659 * SECOND, id="a leap second"),
        pytest.param("Sunday, 06-Nov-94 08:49:37 GMT", None, id="94 is 1994"),
        pytest.param("Thursday, 12-Nov-76 08:49:37 GMT", HOUR, id="76 is 2076, 50 years ahead"),
        pytest.param("Saturday, 12-Nov-77 08:49:37 GMT", None, id="77 is 1977"),
        pytest.param("Sun, 31 Feb 2027 08:49:37 GMT", None, id="a day that is not"),
        pytest.param("Thu, 12 Nov 2026 14:10:00 CET", None, id="not GMT"),
        pytest.param("Thu, 12 Nov 2026 25:10:00 GMT", None, id="an hour that is not"),
    ],
)
def test_retry_after_reads(value: str, after: int | None) -> None:
    for now in (NOW, NOW - 600_000, NOW + 86_400_000):  # A date is compared with the wall clock.
        at = retry.retry_after_at(value, now=now, wall=NOW)
        assert (None if at is None else at - now) == after
