"""A summary as text: times, spans, and a row for every figure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from homing.languages.sentences import Number, Sentence, say
from homing.sim.record import Pause
from homing.sim.summary import LATE_MS, Figures

_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000


def clock_text(ms: int) -> str:
    """A moment on the axis: ``0``, ``90 s``, ``6 h``, ``1 h 30 min``."""
    if ms == 0:
        return "0"
    hours, rest = divmod(ms, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds = figure(f"{rest / 1000:g}")
    match bool(hours), bool(minutes), bool(rest):
        case True, False, False:
            return say("{n} h", n=hours)
        case True, True, False:
            return say("{h} h {m} min", h=hours, m=minutes)
        case True, _, True:
            return say("{h} h {m} min {s} s", h=hours, m=minutes, s=seconds)
        case False, True, False:
            return say("{n} min", n=minutes)
        case False, True, True:
            return say("{m} min {s} s", m=minutes, s=seconds)
        case _:
            return say("{n} s", n=seconds)


def figure(text: str) -> Number:
    """A number with as many digits after the point as this text of it has."""
    return Number(float(text), len(text.partition(".")[2]))


def moment_text(ms: int) -> str:
    """A moment in full: ``02:59:53``, from the start of the scenario."""
    seconds = ms // 1000
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def span_text(ms: int | None) -> str:
    """A length of time in two words at most: ``40 ms``, ``1.5 s``, ``6 h 10 min``, ``none``."""
    if not ms:
        return "–" if ms is None else "0"
    if ms < _SECOND:
        return say("{n} ms", n=ms)
    if ms < _MINUTE:
        return say("{n} s", n=figure(f"{ms / 1000:.3g}"))
    if ms < _HOUR:
        minutes, rest = divmod(ms // 1000, 60)
        return say("{m} min {s} s", m=minutes, s=rest) if rest else say("{n} min", n=minutes)
    hours, rest = divmod(ms // _MINUTE, 60)
    return say("{h} h {m} min", h=hours, m=rest) if rest else say("{n} h", n=hours)


def pause_text(pause: Pause) -> Sentence:
    """A sentence that says when and why sending was paused."""
    return say(
        "Sending was paused from {begin} to {end}, as in a sender outage: {why}. No retry was used "
        "meanwhile.",
        begin=moment_text(pause.from_ms),
        end=moment_text(pause.to_ms),
        why=pause.why,
    )


class Row(Struct, frozen=True):
    """One figure of a summary; fewer is better if ``less`` is 1, worse if it is -1."""

    label: str
    text: Callable[[Figures], str]
    number: Callable[[Figures], int | None]
    less: int = 0


def _count(label: str, number: Callable[[Figures], int], less: int = 0) -> Row:
    return Row(label, lambda it: f"{number(it):,}", number, less)


def _time(label: str, number: Callable[[Figures], int | None], less: int = 0) -> Row:
    return Row(label, lambda it: span_text(number(it)), number, less)


ROWS: tuple[Row, ...] = (
    _count("deliveries accepted", lambda it: it.accepted),
    _count("delivered", lambda it: it.delivered, -1),
    _count(f"delivered late, by over {LATE_MS // 1000} s", lambda it: it.late.count, 1),
    _time("· lateness, half of them within", lambda it: it.late.p50_ms, 1),
    _time("· 99 % of them within", lambda it: it.late.p99_ms, 1),
    _time("· the latest", lambda it: it.late.max_ms, 1),
    _count("dropped, exhausted", lambda it: it.dropped["exhausted"], 1),
    _count("dropped, expired", lambda it: it.dropped["expired"], 1),
    _count("cancelled", lambda it: it.cancelled),
    _count("still pending at the end", lambda it: it.pending, 1),
    _count("attempts", lambda it: it.attempts),
    _count("· failed", lambda it: it.failed, 1),
    _count("· sender-side", lambda it: it.sender_errors, 1),
    _count("probes", lambda it: it.probes),
    _count("requests the receiver saw", lambda it: it.requests),
    Row(
        "peak rate after recovery",
        lambda it: f"{it.peak_per_second_after_recovery:,} a second",
        lambda it: it.peak_per_second_after_recovery,
        1,
    ),
    _time("time disabled", lambda it: it.disabled_ms, 1),
    _time("time frozen", lambda it: it.frozen_ms, 1),
)
