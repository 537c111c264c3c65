"""The drawings show states, attempts, probes and backlog, for the terminal and for a browser."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from functools import cache
from html import escape

import pytest
from rich.console import Console

from homing.sim.chart import Span, most_interesting, panels, ticks
from homing.sim.draw_html import page
from homing.sim.draw_svg import picture
from homing.sim.draw_terminal import draw
from homing.sim.play import Played
from homing.sim.read import with_policy
from homing.sim.summary import Summary, summarize
from simulation.scenes import HOUR, SENDER_OUTAGE, played

TROUBLE = """
title = "Trouble <&> more"
run_for = "8h"
[[endpoints]]
name = "payroll <1>"
latency_ms = 50
outages = [{ from = "1h", to = "4h", responds = 503 }, { from = "6h", to = "6h10m", hangs = true }]
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
    assert [(span.label, span.to_ms) for span in panel.states][-2:] == [
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


@pytest.mark.parametrize("name", ["[/b]", "billing [eu]", "[red]hi[/red]", ":smile: x"])
def test_a_name_is_shown_as_it_is(name: str) -> None:
    each = (
        f'[[endpoints]]\nname = "{it}"\n[[traffic]]\nto = "{it}"\nevery = "1m"\n'
        for it in (name, "b")
    )
    one = played(f'run_for = "1h"\n{"".join(each)}')
    text = drawn((one, summarize(one)))
    assert text.count(name) == 2  # above its timeline, and in the summary
    assert escape(name) in page([(one, summarize(one))])


@pytest.mark.long
def test_large_numbers_are_shown_whole() -> None:
    one = played(
        'run_for = "10m"\n[[endpoints]]\nname = "a"\n[[traffic]]\nto = "a"\nper_second = 20\n'
        '[[actions]]\nat = "0s"\ndo = "freeze"\nendpoint = "a"\n'
    )
    assert re.search(r"at most 11,9\d\d", drawn((one, summarize(one)), width=80))
    label = re.search(
        r'<text x="([\d.]+)"[^>]*>(11,9\d\d)</text>', picture([(one, summarize(one))])
    )
    assert label is not None
    assert float(label[1]) > len(label[2]) * 7  # It is written to the left of this.


def test_marks_of_people_do_not_overwrite_each_other() -> None:
    actions = "".join(
        f'[[actions]]\nat = "{at}"\ndo = "{do}"\nendpoint = "a"\n'
        for at, do in (("6h", "enable"), ("7h30m", "enable"), ("8h", "freeze"))
    )
    one = played(f'run_for = "9h"\n[[endpoints]]\nname = "a"\n{actions}')
    for width in range(40, 100):
        (row,) = re.findall(r"│ person +(.*)│", drawn((one, summarize(one)), width=width))
        assert 2 <= row.count("▲") <= 3
        assert set(re.findall(r"[a-z]+", row)) <= {"enable", "freeze"}
    svg = picture([(one, summarize(one))])
    assert svg.count('class="person"') == svg.count('class="person-word"') == 3


def test_our_own_outage_is_drawn_and_explained() -> None:
    one = played(SENDER_OUTAGE)
    run_ = (one, summarize(one))
    text, svg, html = drawn(run_), picture([run_]), page([run_])
    assert re.search(r"│ paused +▓+ ", text)
    assert re.search(r"│ sender +▁|│ sender +[▂▃▄▅▆▇█ ]+", text)
    for told in (re.sub(r"\s+", " ", text.replace("│", "")), svg, html):
        assert "Sending was paused" in told
        assert "7 of 12 endpoints on 7 hosts" in told
    ET.fromstring(svg)
    assert "Sending was paused" not in drawn(run())


def test_the_page_tells_how_late_and_nothing_of_what_was_not() -> None:
    assert re.search(r"half within .*, 99 % within .*, all within ", page([run()]))
    none = played('run_for = "1h"\n[[endpoints]]\nname = "a"\n')
    assert "each within a second" not in page([(none, summarize(none))])


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
        f'[[endpoints]]\nname = "e{n}"\nresponds = {500 if n == 17 else 200}\n'
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
