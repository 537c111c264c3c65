"""The summary counts what the trace shows."""

from __future__ import annotations

import msgspec

from homing.sim.summary import Late, peak_after, summarize, summary_line
from homing.sim.summary_text import ROWS, clock_text, moment_text, span_text
from simulation.scenes import HOUR, MINUTE, ONE, SENDER_OUTAGE, played

OUTAGE = """
run_for = "6h"
[[endpoints]]
name = "a"
latency_ms = 100
outages = [{ from = "1h", to = "3h", responds = 503 }]
[[endpoints]]
name = "b"
[[traffic]]
to = "a"
every = "30s"
[[traffic]]
to = "b"
every = "10m"
[[actions]]
at = "5h"
do = "freeze"
endpoint = "b"
"""


def test_an_outage_is_summed_up() -> None:
    one = played(OUTAGE)
    summary = summarize(one)
    a, b, all_ = summary.endpoints["a"], summary.endpoints["b"], summary.total
    assert (a.accepted, a.delivered, a.pending, sum(a.dropped.values())) == (720, 720, 0, 0)
    assert 240 <= a.late.count <= 260  # until the next probe
    assert a.late.max_ms is not None
    assert a.late.p50_ms is not None
    assert a.late.p99_ms is not None
    assert 0 < a.late.p50_ms < a.late.p99_ms <= a.late.max_ms < 2 * HOUR + 11 * MINUTE
    assert a.requests == a.attempts == 720 + a.failed
    assert a.probes > 0
    assert 0 < a.disabled_ms < 2 * HOUR
    assert a.peak_per_second_after_recovery > 50
    assert (b.accepted, b.delivered, b.pending) == (36, 30, 6)
    assert (b.frozen_ms, b.late) == (HOUR, Late(0, None, None, None))
    assert (all_.accepted, all_.delivered, all_.frozen_ms) == (756, 750, HOUR)


def test_the_last_line_holds_the_numbers_of_all_and_of_each() -> None:
    line = msgspec.json.decode(summary_line(summarize(played(ONE))))
    assert line["kind"] == "summary"
    assert line["dropped"] == {"exhausted": 1, "expired": 0}
    assert line["endpoints"]["payroll"]["attempts"] == line["attempts"] == 12
    assert line["trace_sha256"] == played(ONE).trace.sha256
    assert (line["policy"], line["seed"], line["run_for_ms"]) == ("workfront", 7, 60 * HOUR)


def test_trouble_of_our_own_is_no_failure_of_an_endpoint() -> None:
    summary = summarize(played(SENDER_OUTAGE))
    assert (summary.total.failed, summary.total.delivered) == (0, summary.total.accepted)
    assert summary.total.sender_errors > 10
    assert 4 * MINUTE < summary.paused_ms < 6 * MINUTE
    line = msgspec.json.decode(summary_line(summary))
    assert (line["sender_errors"], line["paused_ms"]) == (
        summary.total.sender_errors,
        summary.paused_ms,
    )
    assert line["failed"] == 0


def test_the_peak_is_the_most_in_one_second_of_the_hour_after_a_recovery() -> None:
    times = [0, 1, 2, 3, 10_000, 10_500, 10_999, 11_000, 5 * HOUR, 5 * HOUR]
    assert peak_after(times, []) == 0
    assert peak_after(times, [5_000]) == 3
    assert peak_after(times, [0, 5_000]) == 4
    assert peak_after(times, [11_001]) == 0


def test_times_are_told_in_words() -> None:
    texts = [span_text(ms) for ms in (None, 0, 40, 1_500, 90_000, HOUR, 6 * HOUR + 10 * MINUTE)]
    assert texts == ["–", "0", "40 ms", "1.5 s", "1 min 30 s", "1 h", "6 h 10 min"]
    assert moment_text(108 * HOUR + 3 * MINUTE + 7_999) == "108:03:07"
    assert [clock_text(ms) for ms in (0, 1_500, 90 * MINUTE)] == ["0", "1.5 s", "1 h 30 min"]


def test_every_row_can_be_told() -> None:
    figures = summarize(played(ONE)).total
    assert all(row.text(figures) for row in ROWS)
