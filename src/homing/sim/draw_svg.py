"""Draws a simulation as SVG: for each endpoint its state, attempts, probes and backlog over time.

The picture follows the light or dark setting of its reader's system, and needs no other files.
Heights of bars grow with the square root, so that a burst does not hide everyday traffic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from unicodedata import east_asian_width

from homing.languages.language import ENGLISH, Language
from homing.languages.sentences import Sentence, many, say
from homing.sim.chart import Panel, Span, most_interesting, panels, ticks
from homing.sim.play import Played
from homing.sim.summary import Summary
from homing.sim.summary_text import clock_text, moment_text, pause_text, span_text

ENDPOINTS_MAX = 12
CHANGES_MAX = 10
STEPS = 240

WIDTH = 1200
_LEFT, _RIGHT = 92, 24
_BARS_HEIGHT = 92
_BACKLOG_HEIGHT = 64
_BAND_HEIGHT = 22
_LINE = 20
_CHAR = 6.2  # the width of a letter of 11 pixels, about
_WIDE_CHAR = 11.0  # of a Chinese or Japanese one

_STATES = {"enabled": say("enabled"), "disabled": say("disabled"), "frozen": say("frozen")}

STYLE = """
.sim{--paper:#fff;--ink:#1c2330;--soft:#677084;--line:#e4e7ee;--good:#2f9e73;--bad:#d64560;
--enabled:#d5efe3;--enabled-ink:#17694a;--disabled:#fbe2b4;--disabled-ink:#7c4a03;
--frozen:#cfdffb;--frozen-ink:#1f4b99;--wait:#7a6fd8;--outage:#d64560;--person:#0e7fa8;
font:12px/1.4 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;fill:var(--ink)}
@media (prefers-color-scheme:dark){.sim{--paper:#14171f;--ink:#e4e8f1;--soft:#98a2b8;--line:#2a303d;
--good:#4fc596;--bad:#f2708a;--enabled:#173d2f;--enabled-ink:#8fe3bf;--disabled:#4d3610;
--disabled-ink:#ffd58a;--frozen:#1d3564;--frozen-ink:#b4cffb;--wait:#a097f5;--outage:#f2708a;
--person:#59c5ea}}
.sim .paper{fill:var(--paper)}.sim .title{font-size:20px;font-weight:650}
.sim .name{font-size:15px;font-weight:650}.sim .soft{fill:var(--soft);font-size:11px}
.sim .grid{stroke:var(--line);stroke-width:1}.sim .base{stroke:var(--soft);opacity:.5}
.sim .delivered{fill:var(--good)}.sim .failed{fill:var(--bad)}
.sim .sender_error,.sim .pause{fill:var(--person)}
.sim .pause-word{fill:var(--person);font-size:11px}
.sim .backlog{fill:var(--wait);fill-opacity:.22;stroke:var(--wait);stroke-width:1.5}
.sim .outage{fill:var(--outage);fill-opacity:.09}.sim .outage-edge{fill:var(--outage)}
.sim .outage-word{fill:var(--bad);font-size:11px;font-weight:600}
.sim .person{stroke:var(--person);stroke-width:1.5;stroke-dasharray:4 3}
.sim .person-word{fill:var(--person);font-size:11px;font-weight:600}
.sim .state-enabled{fill:var(--enabled)}.sim .state-disabled{fill:var(--disabled)}
.sim .state-frozen{fill:var(--frozen)}.sim .word-enabled{fill:var(--enabled-ink)}
.sim .word-disabled{fill:var(--disabled-ink)}.sim .word-frozen{fill:var(--frozen-ink)}
.sim .word{font-size:11px;font-weight:600}.sim .dot{fill:var(--ink)}
.sim .dot-number{fill:var(--paper);font-size:10px;font-weight:700;text-anchor:middle}
.sim .at{font-variant-numeric:tabular-nums;fill:var(--soft)}
"""


def picture(played: Sequence[tuple[Played, Summary]], language: Language = ENGLISH) -> str:
    """The whole picture, as a file of its own."""
    text = language.text
    parts: list[str] = []
    y = 24.0
    for one, summary in played:
        scenario = one.scenario
        parts.append(_text(24, y + 18, scenario.title, "title"))
        facts = say(
            "policy {policy} · seed {seed} · {span}",
            policy=summary.policy,
            seed=str(summary.seed),
            span=span_text(summary.run_for_ms),
        )
        parts.append(_text(24, y + 38, text(facts), "soft"))
        parts.append(f'<g transform="translate(0 {y + 22:g})">{_legend(language)}</g>')
        y += 58
        names = most_interesting(one, ENDPOINTS_MAX)
        for panel in panels(one, steps=STEPS, names=names, even=True):
            drawing, height = draw_panel(panel, language=language)
            parts.append(f'<g transform="translate(0 {y:g})">{drawing}</g>')
            y += height + 18
        if more := len(scenario.receivers) - len(names):
            rest = many("and {count} more endpoint", "and {count} more endpoints", more)
            parts.append(_text(24, y + 8, text(rest), "soft"))
            y += 30
        for pause in one.trace.pauses[:CHANGES_MAX]:
            parts.append(_text(24, y + 8, text(pause_text(pause)), "pause-word"))
            y += _LINE
    return wrap("".join(parts), y + 8, label=played[0][0].scenario.title, style=True)


def wrap(
    content: str, height: float, *, label: str, width: int = WIDTH, style: bool = False
) -> str:
    """An SVG element around a drawing."""
    head = f"<style>{STYLE}</style>" if style else ""
    paper = '<rect class="paper" width="100%" height="100%"/>' if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sim" viewBox="0 0 {width} {height:g}" '
        f'width="{width}" height="{height:g}" role="img" aria-label="{escape(label)}">'
        f"{head}{paper}{content}</svg>\n"
    )


# --- one endpoint ---------------------------------------------------------------------------


def draw_panel(
    panel: Panel, *, width: int = WIDTH, sentences: bool = True, language: Language = ENGLISH
) -> tuple[str, float]:
    """An endpoint's drawing, and its height."""
    return _Drawing(panel, width, language).draw(sentences=sentences)


class _Drawing:
    """The drawing of one endpoint; each method returns a part of it."""

    def __init__(self, panel: Panel, width: int, language: Language) -> None:
        self._panel, self._language = panel, language
        self._end = width - _RIGHT  # the end of the time axis
        self._numbered = len(panel.changes) <= CHANGES_MAX

    def draw(self, *, sentences: bool) -> tuple[str, float]:
        panel = self._panel
        top = 16.0 + (14 if panel.outages else 4) + (14 if panel.actions else 0)
        band = top + 10
        pause = band + _BAND_HEIGHT + 6
        bars = pause + 10 + (10 if panel.pauses else 0) + _BARS_HEIGHT
        probes = bars + 22
        backlog = probes + 20 + _BACKLOG_HEIGHT
        parts = [
            _text(24, 16, panel.name, "name"),
            *self._axis(band, backlog),
            *self._outages(top, backlog),
            *self._states(band),
            *self._pauses(pause),
            *self._bars(bars),
            *self._probes(probes),
            *self._backlog(backlog),
            *self._actions(top, backlog),
        ]
        height = backlog + 26
        if sentences and panel.changes:
            parts += self._sentences(height + 12)
            height += 10 + _LINE * min(len(panel.changes), CHANGES_MAX + 1)
        return "".join(parts), height

    def _title(self, sentence: Sentence) -> str:
        return f"<title>{escape(self._language.text(sentence))}</title>"

    def _label(self, y: float, sentence: str) -> str:
        text = self._language.text(sentence)
        return _text(_LEFT - 12, y, text, "soft", ' text-anchor="end"')

    def _x(self, at_ms: float) -> float:
        return _LEFT + (self._end - _LEFT) * min(at_ms / self._panel.run_for_ms, 1.0)

    def _axis(self, top: float, bottom: float) -> Iterator[str]:
        for at_ms in ticks(self._panel.run_for_ms, 12 if self._end > 900 else 6):
            x = self._x(at_ms)
            yield f'<path class="grid" d="M{x:.1f} {top:g}V{bottom + 5:g}"/>'
            anchor = "end" if x > self._end - 20 else "middle"
            text = self._language.text(clock_text(at_ms))
            yield _text(x, bottom + 18, text, "soft", f' text-anchor="{anchor}"')

    def _outages(self, top: float, bottom: float) -> Iterator[str]:
        free = 0.0  # labels must not overlap
        for span in self._panel.outages:
            x = self._x(span.from_ms)
            width = max(self._x(span.to_ms) - x, 2)
            title = say("{span}: {what}", span=_from_to(span), what=span.label)
            yield (
                f"<g>{self._title(title)}"
                f'<rect class="outage" x="{x:.1f}" y="{top:g}" width="{width:.1f}" '
                f'height="{bottom - top:g}"/><rect class="outage-edge" x="{x:.1f}" y="{top:g}" '
                f'width="{width:.1f}" height="2"/></g>'
            )
            label = self._language.text(span.label)
            place = min(x, self._end - _width(label))
            if place >= free:
                yield _text(place, top - 4, label, "outage-word")
                free = place + _width(label) + 8

    def _states(self, top: float) -> Iterator[str]:
        yield self._label(top + 15, say("state"))
        for number, span in enumerate(self._panel.states):
            x = self._x(span.from_ms)
            width = max(self._x(span.to_ms) - x, 1.5)
            state, long = _STATES[span.label], span_text(span.to_ms - span.from_ms)
            title = say("{state}, {span} ({long})", state=state, span=_from_to(span), long=long)
            yield (
                f"<g>{self._title(title)}"
                f'<rect class="state-{span.label}" x="{x:.1f}" y="{top:g}" width="{width:.1f}" '
                f'height="{_BAND_HEIGHT}" rx="3"/></g>'
            )
            dotted = number > 0 and self._numbered
            begin = 22 if dotted else 8
            for said in (say("{state} · {long}", state=state, long=long), state):
                text = self._language.text(said)
                if begin + _width(text) + 6 <= width:
                    yield _text(x + begin, top + 15, text, f"word word-{span.label}")
                    break
            if dotted and width >= 22:
                yield _dot(x + 11, top + _BAND_HEIGHT / 2, number)

    def _pauses(self, top: float) -> Iterator[str]:
        if self._panel.pauses:
            yield self._label(top + 6, say("paused"))
        for span in self._panel.pauses:
            x = self._x(span.from_ms)
            width = max(self._x(span.to_ms) - x, 2)
            title = say("sending paused, {span}", span=_from_to(span))
            yield (
                f"<g>{self._title(title)}"
                f'<rect class="pause" x="{x:.1f}" y="{top:g}" width="{width:.1f}" height="5"/></g>'
            )

    def _bars(self, base: float) -> Iterator[str]:
        """Delivered below, then failed, then sender errors: the height is the sum of all."""
        panel = self._panel
        peak = max(panel.attempts, default=0)
        step_text = say("in {span}", span=span_text(panel.step_ms))
        yield self._label(base - _BARS_HEIGHT + 10, say("attempts"))
        yield self._label(base - _BARS_HEIGHT + 24, step_text)
        for level in _levels(peak):
            y = base - _BARS_HEIGHT * math.sqrt(level / peak)
            yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{self._end}"/>'
            shown = self._language.number(level)
            yield _text(self._end, y - 3, shown, "soft", ' text-anchor="end"')
        width = max((self._end - _LEFT) * panel.step_ms / panel.run_for_ms - 0.6, 1)
        for step, made in enumerate(panel.attempts):
            if not made:
                continue
            x = self._x(step * panel.step_ms)
            full = max(_BARS_HEIGHT * math.sqrt(made / peak), 1.5)
            good, bad = panel.delivered[step], panel.failed[step]
            sender_errors = panel.sender_errors[step]
            title = self._counted(step, good, bad)
            if sender_errors:
                title = many(
                    "{counted}, {count} sender error",
                    "{counted}, {count} sender errors",
                    sender_errors,
                    counted=title,
                )
            yield f"<g>{self._title(title)}"
            y = base
            parts = (("delivered", good), ("failed", bad), ("sender_error", sender_errors))
            for kind, count in parts:
                height = full * count / made
                y -= height
                yield _rect(kind, x, y, width, height)
            yield "</g>"
        yield self._ground(base)

    def _counted(self, step: int, good: int, bad: int) -> Sentence:
        return say(
            "{time}: {good} delivered, {bad} failed",
            time=moment_text(step * self._panel.step_ms),
            good=good,
            bad=bad,
        )

    def _probes(self, y: float) -> Iterator[str]:
        panel = self._panel
        yield self._label(y + 4, say("probes"))
        pairs = zip(panel.probes_delivered, panel.probes_failed, strict=True)
        for step, (good, bad) in enumerate(pairs):
            if good or bad:
                x = self._x((step + 0.5) * panel.step_ms)
                kind = "delivered" if good else "failed"
                yield (
                    f'<circle class="{kind}" cx="{x:.1f}" cy="{y:g}" r="{3.4 if good else 1.8}">'
                    f"{self._title(self._counted(step, good, bad))}</circle>"
                )

    def _backlog(self, base: float) -> Iterator[str]:
        panel = self._panel
        peak = max(panel.backlog, default=0)
        yield self._label(base - _BACKLOG_HEIGHT + 10, say("backlog"))
        yield self._label(base - _BACKLOG_HEIGHT + 24, say("at most") if peak else say("none"))
        if peak:
            yield self._label(base - _BACKLOG_HEIGHT + 38, self._language.number(peak))
        if peak:
            points = [
                f"L{self._x((step + 0.5) * panel.step_ms):.1f} "
                f"{base - _BACKLOG_HEIGHT * value / peak:.1f}"
                for step, value in enumerate(panel.backlog)
            ]
            path = f"M{_LEFT} {base:g}{''.join(points)}L{self._end} {base:g}Z"
            yield f'<path class="backlog" d="{path}"/>'
        yield self._ground(base)

    def _ground(self, y: float) -> str:
        return f'<path class="base grid" d="M{_LEFT} {y:g}H{self._end}"/>'

    def _actions(self, top: float, bottom: float) -> Iterator[str]:
        if not self._panel.actions:
            return
        y = top - (18 if self._panel.outages else 4)
        places = [self._x(mark.at_ms) for mark in self._panel.actions]
        free = 0.0  # A label ends before the next line, or is to the left of its own line.
        for mark, x, limit in zip(
            self._panel.actions, places, [*places[1:], self._end], strict=True
        ):
            label, at = self._language.text(mark.label), moment_text(mark.at_ms)
            title = say("{time}: a person, {action}", time=at, action=mark.label)
            yield (
                f'<path class="person" d="M{x:.1f} {y - 10:g}V{bottom:g}">'
                f"{self._title(title)}</path>"
            )
            width = _width(label) + 8
            if x + width <= limit:
                yield _text(x + 6, y, label, "person-word")
                free = x + width
            elif x - width >= free:
                yield _text(x - 6, y, label, "person-word", ' text-anchor="end"')
                free = x
            else:
                free = max(free, x)

    def _sentences(self, top: float) -> Iterator[str]:
        changes = self._panel.changes
        for number, change in enumerate(changes[:CHANGES_MAX]):
            y = top + _LINE * number
            if self._numbered:
                yield _dot(_LEFT + 8, y - 4, number + 1)
            yield _text(_LEFT + 26, y, moment_text(change.at_ms), "at")
            yield _text(_LEFT + 98, y, self._language.text(change.sentence), "sentence")
        rest = len(changes) - CHANGES_MAX
        if rest > 0:
            y = top + _LINE * CHANGES_MAX
            more = many(
                "and {count} more change of state", "and {count} more changes of state", rest
            )
            yield _text(_LEFT + 26, y, self._language.text(more), "soft")


# --- strokes --------------------------------------------------------------------------------


def _text(x: float, y: float, text: str, kind: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{more}>{escape(text)}</text>'


def _width(text: str) -> float:
    """The width of a text of 11 pixels, about."""
    return sum(_WIDE_CHAR if east_asian_width(it) in "WF" else _CHAR for it in text)


def _from_to(span: Span) -> Sentence:
    begin, end = moment_text(span.from_ms), moment_text(span.to_ms)
    return say("{begin} to {end}", begin=begin, end=end)


def _dot(x: float, y: float, number: int) -> str:
    return (
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="8"/>'
        f'<text class="dot-number" x="{x:.1f}" y="{y + 3.5:.1f}">{number}</text>'
    )


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    if height <= 0:
        return ""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
    )


def _levels(peak: int) -> list[int]:
    """Round numbers up to ``peak``, for grid lines."""
    if peak == 0:
        return []
    top = 10 ** int(math.log10(peak))
    highest = max(factor * top for factor in (1, 2, 5) if factor * top <= peak)
    return sorted({highest, max(highest // 5, 1)})


def _legend(language: Language) -> str:
    """Right-aligned, in the line of the title."""
    words = {
        "delivered": language.text(say("delivered")),
        "failed": language.text(say("failed")),
        "backlog": language.text(say("backlog")),
        "outage": language.text(say("outage")),
    }
    x, parts = WIDTH - _RIGHT - sum(31 + _width(word) for word in words.values()), list[str]()
    for kind, word in words.items():
        rounded = "" if kind == "outage" else ' rx="2"'
        parts.append(f'<rect class="{kind}" x="{x:.1f}" y="-9" width="11" height="11"{rounded}/>')
        parts.append(_text(x + 17, 0.5, word, "soft"))
        x += 31 + _width(word)
    return "".join(parts)
