"""The live view of the demo: three URLs with their health, and the sentences of the log."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from math import log1p
from textwrap import wrap

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from homing.cli.demo.rules import SPEED, production_time
from homing.cli.demo.story import LENGTH_S
from homing.cli.demo.world import Url, World
from homing.cli.output import STYLES, clock_text
from homing.model import Endpoint, Health, Lane, Outcome, State
from homing.policy.explain import explain_endpoint
from homing.policy.health import HealthRules

COLUMNS = 60  # of a URL's timeline
HEIGHTS = "▁▂▃▄▅▆▇█"
NAMES = {"healthy": "green", "flaky": "yellow", "dead": "red", "": "cyan"}
LOG_LINES = 200
TALL = 36  # rows from which the URLs have frames
WIDE = 108
LOG_MARGIN = 19  # columns of the log besides its sentences


class Line(Struct, frozen=True):
    """A sentence of the log."""

    at_ms: int  # since the start
    about: str
    sentence: str


class _Column:
    """One column of a URL's timeline."""

    def __init__(self) -> None:
        self.delivered = 0
        self.state = State.ENABLED


class View:
    """Keeps the timelines and the log, and draws the screen."""

    def __init__(self, world: World, *, speed: int, address: str) -> None:
        self._world, self._speed, self._address = world, speed, address
        self._started = world.now
        self._length_ms = LENGTH_S * 1000 * SPEED / speed
        self.log: deque[Line] = deque(maxlen=LOG_LINES)
        self._timelines: dict[str, list[_Column]] = {url.name: [] for url in world.urls}
        self._counted = {url.name: 0 for url in world.urls}

    @property
    def elapsed_ms(self) -> int:
        return self._world.now - self._started

    def note(self, about: str, sentence: str) -> Line:
        line = Line(self.elapsed_ms, about, sentence)
        self.log.append(line)
        return line

    def remember(self) -> None:
        """Update the timelines; called after each refresh."""
        index = min(int(COLUMNS * self.elapsed_ms / self._length_ms), COLUMNS - 1)
        for url in self._world.urls:
            timeline = self._timelines[url.name]
            while len(timeline) <= index:
                timeline.append(_Column())
            timeline[index].delivered += url.delivered - self._counted[url.name]
            self._counted[url.name] = url.delivered
            if url.endpoint is not None:
                timeline[index].state = url.endpoint.health.state

    def screen(self, width: int, height: int) -> RenderableType:
        framed = height >= TALL
        rows = [self._url(url, width=width, framed=framed) for url in self._world.urls]
        size = 6 if framed else 5
        layout = Layout()
        layout.split_column(
            Layout(self._head(width), size=2),
            *(Layout(row, size=size) for row in rows),
            Layout(self._sentences(width, height - 2 - 3 * size - 1), name="log"),
            Layout(self._foot(), size=1),
        )
        return layout

    def _head(self, width: int) -> RenderableType:
        part = min(self.elapsed_ms / self._length_ms, 1.0)
        seconds = self.elapsed_ms // 1000
        bar_width = max(min(width - 85, 40), 8)
        full = round(part * bar_width)
        minutes = 3_600_000 // 60_000 * self._speed // 3_600
        return Text.assemble(
            (" Homing demo ", "bold reverse"),
            (f"  1 s in the demo is {minutes} min in production  ", "dim"),
            ("━" * full, "cyan"),
            ("━" * (bar_width - full), "grey30"),
            (f"  {seconds // 60}:{seconds % 60:02d}", "bold"),
            (f"  ≙ {production_time(self.elapsed_ms, self._speed)}", "dim"),
            no_wrap=True,
            overflow="crop",
        )

    def _sentences(self, width: int, height: int) -> RenderableType:
        """The latest sentences, newest at the bottom; long ones take more than one line."""
        room, latest = height - 2, list[Line]()
        for line in reversed(self.log):
            room -= len(wrap(line.sentence, max(width - LOG_MARGIN, 20)))
            if room < 0 and latest:
                break
            latest.insert(0, line)
        table = sentences(latest)
        return Panel(table, title="what happens and why", title_align="left", border_style="dim")

    def _foot(self) -> RenderableType:
        ledger = self._world.ledger
        if ledger is None:
            return Text("")
        return Text.assemble(
            (f" {self._world.published:,} events", "bold"),
            f"  {ledger.accepted:,} accepted = ",
            (f"{ledger.delivered:,} delivered", "green"),
            " + ",
            (f"{ledger.pending:,} pending", "yellow"),
            " + ",
            (f"{ledger.dropped:,} dropped", "red" if ledger.dropped else "dim"),
            ("  ▮", "green"),
            (" delivered ", "dim"),
            ("▮", "red"),
            (" failed ", "dim"),
            ("▯", "yellow"),
            (" failed probe  Ctrl-C ends the demo", "dim"),
            no_wrap=True,
            overflow="ellipsis",
        )

    # --- one URL -----------------------------------------------------------------------------

    def _url(self, url: Url, *, width: int, framed: bool) -> RenderableType:
        endpoint = url.endpoint
        if endpoint is None:
            return Text("")
        state = endpoint.health.state
        style = STYLES[state.value]
        badge = (f" {state.value.upper()} ", f"bold reverse {style}")
        name = (f" {url.name} ", "bold")
        about = (f"{url.address} {url.mood.value}", "dim")
        lines = (
            self._timeline(url),
            _recent(url, width=width - 20),
            _counters(endpoint.health, self._world.rules, now=self._world.now, wide=width >= WIDE),
            _why(endpoint, self._world.rules, now=self._world.now),
        )
        waiting = _waiting(url, now=self._world.now)
        if not framed:
            title = Text.assemble(badge, name, waiting, about, no_wrap=True, overflow="ellipsis")
            return Group(title, *lines)
        return Panel(
            Group(*lines),
            title=Text.assemble(badge, name, about),
            title_align="left",
            subtitle=waiting,
            subtitle_align="right",
            border_style=style,
        )

    def _timeline(self, url: Url) -> Text:
        timeline = self._timelines[url.name]
        highest = log1p(max((column.delivered for column in timeline), default=0)) or 1.0
        text = _labelled("history")
        for column in timeline:
            height = HEIGHTS[int((len(HEIGHTS) - 1) * log1p(column.delivered) / highest)]
            text.append(height, style=STYLES[column.state.value])
        text.append("·" * (COLUMNS - len(timeline)), style="grey30")
        text.append(f"  {url.delivered:,} delivered", style="dim")
        return text


def _labelled(name: str) -> Text:
    return Text.assemble((f"{name:<8}", "dim"), no_wrap=True, overflow="ellipsis")


def _recent(url: Url, *, width: int) -> Text:
    text = _labelled("recent")
    for attempt in list(url.recent)[-max(width, 10) :]:
        if attempt.lane is Lane.PROBE and attempt.outcome is not Outcome.DELIVERED:
            text.append("▯", style="yellow")
        else:
            text.append("▮", style="green" if attempt.outcome is Outcome.DELIVERED else "red")
    return text


def _counters(health: Health, rules: HealthRules, *, now: int, wide: bool) -> Text:
    """The counters of the health rules, each with its limit."""
    attempts, row = health.attempts, health.consecutive_failures
    percent = 100 * health.failures // attempts if attempts else 0
    marks = (health.last_success_at, health.first_attempt_at, health.manual_enable_at)
    without_success_ms = (
        now - max((mark for mark in marks if mark is not None), default=now) if row else 0
    )
    rate_counts = attempts > rules.rate_after_attempts
    text = _labelled("limits")
    size = 8 if wide else 4
    for name, value, limit, shown in (
        (
            "failed",
            percent if rate_counts else 0,
            rules.failure_percent,
            f"{percent} % of {attempts:,}" if attempts else "–",
        ),
        ("in a row", row, rules.consecutive_disable, f"{row:,}/{rules.consecutive_disable}"),
        (
            "no success",
            without_success_ms,
            rules.freeze_after_ms,
            f"{without_success_ms / 1000:.1f}/{rules.freeze_after_ms / 1000:.1f} s",
        ),
    ):
        text.append(f"{name} ", style="dim")
        _gauge(text, value / limit, size)
        text.append(f" {shown:<14}" if wide else f" {shown} ")
    return text


def _why(endpoint: Endpoint, rules: HealthRules, *, now: int) -> Text:
    """The sentence that the API has for the endpoint, without parts that are shown elsewhere."""
    sentence = explain_endpoint(endpoint, rules, now=now).text(lambda ms: clock_text(ms, now=now))
    sentence = sentence.removeprefix("The endpoint has been ")
    sentence = re.sub(r"; the next probe is due .*?, and", ";", sentence)
    sentence = sentence[0].upper() + sentence[1:]
    return Text(sentence, style="italic", no_wrap=True, overflow="ellipsis")


def _gauge(text: Text, part: float, size: int) -> None:
    full = min(round(part * size), size)
    style = "red" if part >= 1 else "yellow" if part >= 0.5 else "green"
    text.append("▰" * full, style=style)
    text.append("▱" * (size - full), style="grey30")


def _waiting(url: Url, *, now: int) -> Text:
    text = Text(f" {url.waiting:,} waiting ", style="yellow" if url.waiting else "dim")
    endpoint = url.endpoint
    if endpoint is not None and endpoint.next_probe_at is not None:
        text.append(f"· next probe in {max(endpoint.next_probe_at - now, 0):>3} ms ", "yellow")
    return text


def sentences(lines: Iterable[Line]) -> Table:
    """The log as a table: time, URL, sentence."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(overflow="fold")
    for line in lines:
        seconds = line.at_ms / 1000
        table.add_row(
            f"{int(seconds // 60)}:{seconds % 60:04.1f}",
            Text(line.about or "·", style=NAMES.get(line.about, "")),
            _sentence(line.sentence),
        )
    return table


def _sentence(sentence: str) -> Text:
    """A state change begins with the new state, in its colour."""
    text = Text(sentence)
    first = sentence.split(" ", 1)[0].lower()
    if first in STYLES:
        text.stylize(f"bold {STYLES[first]}", 0, len(first))
    return text
