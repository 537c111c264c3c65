"""The drawings show states, attempts, probes and backlog, for the terminal and for a browser."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from functools import cache

from rich.console import Console

from homing.sim.chart import Span, most_interesting, panels, ticks
from homing.sim.draw_html import page
from homing.sim.draw_svg import picture
from homing.sim.draw_terminal import draw
from homing.sim.play import Played
from homing.sim.read import with_policy
from homing.sim.summary import Summary, summarize
from sim.scenes import HOUR, played

TROUBLE = """
title = "Trouble <&> more"
run_for = "8h"
[[endpoints]]
name = "payroll <1>"
latency_ms = 50
outages = [{ from = "1h", to = "4h", answers = 503 }, { from = "6h", to = "6h10m", hangs = true }]
[[traffic]]
to = "payroll <1>"
every = "1m"
[[actions]]
at = "3h"
do = "freeze"
endpoint = "payroll <1>"
[[actions]]
at = "5h"
do = "enable"
endpoint = "payroll <1>"
"""


@cache
def run() -> tuple[Played, Summary]:
    one = played(TROUBLE)
    return one, summarize(one)


@cache
def two_runs() -> list[tuple[Played, Summary]]:
    from homing.sim.play import play

    other = play(with_policy(run()[0].scenario, "standard-webhooks"))
    return [run(), (other, summarize(other))]


def drawn(*runs: tuple[Played, Summary], width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    draw(console, runs)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_time_is_cut_into_steps_that_add_up() -> None:
    one, summary = run()
    (panel,) = panels(one, steps=80, names=["payroll <1>"])
    figures = summary.total
    assert len(panel.delivered) == len(panel.backlog) == 80
    probes = sum(panel.probes_delivered) + sum(panel.probes_failed)
    assert sum(panel.attempts) + probes == figures.attempts
    assert probes == figures.probes
    assert max(panel.backlog) == figures.late.count - 10 + figures.pending == 240
    assert panel.outages == [
        Span(HOUR, 4 * HOUR, "503"),
        Span(6 * HOUR, 6 * HOUR + 600_000, "hangs"),
    ]
    assert [(span.word, span.to_ms) for span in panel.states][-2:] == [
        ("frozen", 5 * HOUR),
        ("enabled", 8 * HOUR),
    ]


def test_even_steps_are_round() -> None:
    (panel,) = panels(run()[0], steps=77, names=["payroll <1>"], even=True)
    assert panel.step_ms == 600_000


def test_the_terminal_shows_rows_of_blocks_over_time() -> None:
    text = drawn(run())
    rows = {line[2:12].strip(): line[12:] for line in text.splitlines() if line.startswith("│")}
    assert "░ 503 ░" in rows["outage"]
    assert re.search("━+▒+█+━+", rows["state"])
    assert "█" in rows["delivered"]
    assert "·" in rows["probes"]
    assert "at most 240" in rows["backlog"]
    assert "▲ freeze" in rows["person"]
    assert "╵2 h" in rows[""] or "╵2 h" in text
    assert "03:00:00  █ Frozen (was disabled): frozen by a person." in text
    assert re.search(r"delivered +480", text)
    assert max(map(len, text.splitlines())) <= 100


def test_the_terminal_may_be_narrow() -> None:
    assert max(map(len, drawn(run(), width=60).splitlines())) <= 60


def test_two_policies_stand_side_by_side() -> None:
    text = drawn(*two_runs())
    assert re.search(r"workfront +standard-webhooks", text)
    assert text.count("policy ") == 2


def test_the_picture_is_whole_and_needs_nothing_else() -> None:
    svg = picture([run()])
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "prefers-color-scheme:dark" in svg
    assert "Trouble &lt;&amp;&gt; more" in svg
    assert "payroll &lt;1&gt;" in svg
    assert "frozen by a person" in svg
    assert svg.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    for kind in ("state-disabled", "state-frozen", "backlog", "outage", "person", "failed"):
        assert f'class="{kind}"' in svg


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    html = page([run()])
    assert html.startswith("<!doctype html>")
    assert "prefers-color-scheme:dark" in html
    assert "Trouble &lt;&amp;&gt; more" in html
    assert "<script" not in html
    assert not re.search(r"""(src|href)=|url\(|@import""", html)
    assert html.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert run()[1].trace_sha256 in html


def test_a_comparison_shows_what_is_better() -> None:
    html = page(two_runs())
    assert html.count("<svg") == 2
    assert 'class="better"' in html
    ET.fromstring(picture(two_runs()))


def test_of_many_endpoints_the_most_interesting_are_drawn() -> None:
    endpoints = "".join(
        f'[[endpoints]]\nname = "e{n}"\nanswers = {500 if n == 17 else 200}\n'
        f'[[traffic]]\nto = "e{n}"\nevery = "1h"\n'
        for n in range(20)
    )
    one = played(f'run_for = "2h"\n{endpoints}')
    assert most_interesting(one, 30)[17] == "e17"
    assert "e17" in most_interesting(one, 3)
    text = drawn((one, summarize(one)))
    assert "and 12 more endpoints" in text
    assert "all endpoints" in text
    assert "and 8 more endpoints" in page([(one, summarize(one))])


def test_an_axis_has_round_times() -> None:
    assert ticks(60 * HOUR, 12) == [HOUR * 6 * n for n in range(11)]
    assert ticks(1_000, 12) == [100 * n for n in range(11)]
