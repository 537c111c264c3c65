"""Draws a simulation in a terminal: a timeline for each endpoint, changes of state, the summary.

Heights grow with the square root, so that a burst does not hide everyday traffic. Everything can
also be distinguished without colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel as Box
from rich.table import Table
from rich.text import Text

from homing.model import State
from homing.sim.chart import Mark, Panel, Span, most_interesting, panels, ticks
from homing.sim.play import Played
from homing.sim.summary import Figures, Summary
from homing.sim.summary_text import ROWS, clock_text, moment_text, pause_text

ENDPOINTS_MAX = 8
CHANGES_MAX = 20
STEPS_MAX = 160
COLUMNS_MAX = 4  # endpoints with a column of their own in the summary

_BARS = " ▁▂▃▄▅▆▇█"
_LABEL = 10
_NOTE = 14
_BAND = {"enabled": ("━", "green"), "disabled": ("▒", "yellow"), "frozen": ("█", "blue")}


def draw(console: Console, played: Sequence[tuple[Played, Summary]]) -> None:
    """Each run with its timelines, then the numbers of all of them side by side."""
    for one, summary in played:
        title = Text(one.scenario.title, style="bold")
        title.append(f"   policy {summary.policy} · seed {summary.seed}", style="dim")
        console.print(title)
        names = most_interesting(one, ENDPOINTS_MAX)
        note = max(_NOTE, len(_peak(summary.total.accepted)) + 1)
        width = console.width - _LABEL - note - 4
        for panel in panels(one, steps=max(min(width, STEPS_MAX), 10), names=names):
            console.print(_endpoint(panel, note))
        more = len(one.scenario.receivers) - len(names)
        if more:
            console.print(Text(f"and {more:,} more endpoints", style="dim"))
        for pause in one.trace.pauses:
            console.print(Text(pause_text(pause), style="cyan"))
    console.print(_legend())
    console.print()
    console.print(summary_table([summary for _, summary in played]))


# --- one endpoint ---------------------------------------------------------------------------


def _endpoint(panel: Panel, note_width: int) -> RenderableType:
    grid = Table.grid(padding=0)
    grid.add_column(width=_LABEL, no_wrap=True, style="dim")
    grid.add_column(width=len(panel.backlog), no_wrap=True)
    grid.add_column(width=note_width, no_wrap=True, style="dim")
    for label, row, note in _rows(panel):
        grid.add_row(label, row, f" {note}" if note else "")
    parts: list[RenderableType] = [grid]
    if panel.changes:
        parts += [Text(), _changes(panel.changes[:CHANGES_MAX])]
    if len(panel.changes) > CHANGES_MAX:
        rest = len(panel.changes) - CHANGES_MAX
        parts.append(Text(f"and {rest:,} more changes of state", style="dim"))
    return Box(Group(*parts), title=Text(panel.name, style="bold"), title_align="left", style="")


def _rows(panel: Panel) -> Iterator[tuple[str, Text, str]]:
    if panel.outages:
        yield "outage", _outages(panel), ""
    yield "state", _states(panel), ""
    peak = max(panel.attempts, default=0)
    yield "delivered", _bars(panel.delivered, peak, "green"), _peak(max(panel.delivered))
    yield "failed", _bars(panel.failed, peak, "red"), _peak(max(panel.failed))
    if any(panel.sender_errors):
        yield "sender", _bars(panel.sender_errors, peak, "cyan"), _peak(max(panel.sender_errors))
    if panel.pauses:
        yield "paused", _pauses(panel), ""
    yield "probes", _probes(panel), _sum(panel.probes_delivered, panel.probes_failed)
    yield "backlog", _bars(panel.backlog, max(panel.backlog), "magenta"), _peak(max(panel.backlog))
    if panel.actions:
        yield "person", _actions(panel), ""
    yield "", _axis(panel), ""


def _peak(number: int) -> str:
    return f"at most {number:,}" if number else "none"


def _sum(*rows: list[int]) -> str:
    total = sum(map(sum, rows))
    return f"{total:,} in all" if total else "none"


def _bars(values: Sequence[int], peak: int, colour: str) -> Text:
    heights = (math.ceil(8 * math.sqrt(value / peak)) if value else 0 for value in values)
    return Text("".join(_BARS[height] for height in heights), style=colour)


def _probes(panel: Panel) -> Text:
    row = Text()
    for good, bad in zip(panel.probes_delivered, panel.probes_failed, strict=True):
        if good:
            row.append("●", style="green")
        elif bad:
            row.append("·", style="red")
        else:
            row.append(" ")
    return row


def _states(panel: Panel) -> Text:
    """The state at the begin of each step, or a state that lasts less than the step."""
    row = Text()
    order = [State.ENABLED.value, State.DISABLED.value, State.FROZEN.value]
    for step in range(len(panel.backlog)):
        begin = step * panel.step_ms
        here = [
            span.label
            for span in panel.states
            if span.from_ms < begin + panel.step_ms and span.to_ms >= begin
        ]
        mark, colour = _BAND[max(here, key=order.index, default=State.ENABLED.value)]
        row.append(mark, style=colour)
    return row


def _cells(panel: Panel, span: Span) -> tuple[int, int]:
    begin = span.from_ms // panel.step_ms
    return begin, max(-(-span.to_ms // panel.step_ms), begin + 1)


def _outages(panel: Panel) -> Text:
    cells = [" "] * len(panel.backlog)
    for span in panel.outages:
        begin, end = _cells(panel, span)
        for cell in range(begin, min(end, len(cells))):
            cells[cell] = "░"
        word = f" {span.label} "
        if len(word) + 2 <= end - begin:
            cells[begin + 1 : begin + 1 + len(word)] = word
    return Text("".join(cells), style="red")


def _pauses(panel: Panel) -> Text:
    cells = [" "] * len(panel.backlog)
    for span in panel.pauses:
        begin, end = _cells(panel, span)
        cells[begin:end] = "▓" * (min(end, len(cells)) - begin)
    return Text("".join(cells), style="cyan")


def _actions(panel: Panel) -> Text:
    """A mark at each moment, with its label if there is room for it before the next."""
    width = len(panel.backlog)
    places = [min(mark.at_ms // panel.step_ms, width - 1) for mark in panel.actions]
    cells = [" "] * width
    for mark, place, limit in zip(panel.actions, places, [*places[1:], width], strict=True):
        word = f"▲ {mark.label}"
        cells[place : place + 1] = "▲"
        if place + len(word) < limit or place + len(word) == limit == width:
            cells[place : place + len(word)] = word
    return Text("".join(cells), style="cyan")


def _axis(panel: Panel) -> Text:
    width = len(panel.backlog)
    line = [" "] * width
    for at_ms in ticks(panel.run_for_ms, max(width // 12, 2)):
        place, word = at_ms // panel.step_ms, clock_text(at_ms)
        if place + len(word) + 1 <= width:
            line[place : place + len(word) + 1] = f"╵{word}"
    return Text("".join(line), style="dim")


def _changes(changes: Sequence[Mark]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style="dim", justify="right", min_width=9, no_wrap=True)
    grid.add_column(width=2, justify="right")
    grid.add_column()
    for change in changes:
        mark, colour = _BAND[change.label]
        grid.add_row(moment_text(change.at_ms), Text(mark, style=colour), Text(change.sentence))
    return grid


def _legend() -> Text:
    text = Text("state: ", style="dim")
    for word, (mark, colour) in _BAND.items():
        text.append(f"{mark * 2} ", style=f"not dim {colour}").append(f"{word}  ")
    text.append(" probes: ")
    text.append("●", style="not dim green").append(" responded  ")
    text.append("·", style="not dim red").append(" failed   heights grow with the square root")
    return text


# --- the summary ----------------------------------------------------------------------------


def summary_table(summaries: Sequence[Summary]) -> Table:
    """Every figure; policies side by side, or endpoints beside their total."""
    columns = summary_columns(summaries)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for name, _ in columns:
        table.add_column(Text(name), justify="right", overflow="fold")
    for row in ROWS:
        faint = "dim" if not any(row.number(figures) for _, figures in columns) else ""
        table.add_row(row.label, *(row.text(figures) for _, figures in columns), style=faint)
    return table


def summary_columns(summaries: Sequence[Summary]) -> list[tuple[str, Figures]]:
    if len(summaries) > 1:
        return [(summary.policy, summary.total) for summary in summaries]
    (summary,) = summaries
    each = list(summary.endpoints.items())
    if len(each) == 1:
        return each
    total = ("all endpoints" if len(each) > COLUMNS_MAX else "all", summary.total)
    return [total] if len(each) > COLUMNS_MAX else [*each, total]
