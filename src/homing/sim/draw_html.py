"""Draws a simulation as one self-contained page: figures, timelines, changes of state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from homing.sim.chart import Panel, most_interesting, panels
from homing.sim.draw_svg import ENDPOINTS_MAX, STEPS, STYLE, WIDTH, draw_panel, wrap
from homing.sim.play import Played
from homing.sim.summary import Figures, Summary
from homing.sim.summary_text import ROWS, Row, moment_text, pause_text, span_text

ENDPOINT_ROWS_MAX = 200
CHANGES_MAX = 200
HALF = 660  # the width of a drawing beside another

_PAGE_STYLE = """
:root{color-scheme:light dark}*{box-sizing:border-box}
body{--paper:#fff;--page:#f5f6f9;--ink:#1c2330;--soft:#677084;--line:#e4e7ee;--good:#1d7f59;
--bad:#c2314d;--enabled:#d5efe3;--enabled-ink:#17694a;--disabled:#fbe2b4;--disabled-ink:#7c4a03;
--frozen:#cfdffb;--frozen-ink:#1f4b99;margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
@media (prefers-color-scheme:dark){body{--paper:#14171f;--page:#0d0f15;--ink:#e4e8f1;--soft:#98a2b8;
--line:#2a303d;--good:#4fc596;--bad:#f2708a;--enabled:#173d2f;--enabled-ink:#8fe3bf;
--disabled:#4d3610;--disabled-ink:#ffd58a;--frozen:#1d3564;--frozen-ink:#b4cffb}}
main{max-width:1360px;margin:0 auto;padding:36px 24px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:18px;margin:0 0 2px}.soft{color:var(--soft)}
.facts{margin:0 0 24px;color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:12px;
margin:0 0 20px}
.tile,.card{background:var(--paper);border:1px solid var(--line);border-radius:12px}
.tile{padding:14px 16px}.tile b{display:block;font-size:24px;line-height:1.2;font-weight:650;
font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.tile small{display:block;color:var(--soft);font-size:12px;min-height:1.5em}
.card{padding:20px 22px;margin:0 0 20px;overflow-x:auto}
.card svg{display:block;width:100%;height:auto;min-width:560px}
.legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:4px 0 10px;padding:0;list-style:none;
color:var(--soft);font-size:13px}.legend i{display:inline-block;width:11px;height:11px;
border-radius:2px;margin-right:6px}
.changes{list-style:none;margin:14px 0 0;padding:0}
.changes li{display:grid;grid-template-columns:1.9em 5.4em 5.6em 1fr;gap:8px;padding:5px 0;
border-top:1px solid var(--line);align-items:baseline}
.changes time{color:var(--soft);font-variant-numeric:tabular-nums}
.changes .n{color:var(--soft);text-align:right}
.state{border-radius:99px;padding:1px 9px;font-size:12px;font-weight:600;justify-self:start}
.state.enabled{background:var(--enabled);color:var(--enabled-ink)}
.state.disabled{background:var(--disabled);color:var(--disabled-ink)}
.state.frozen{background:var(--frozen);color:var(--frozen-ink)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:6px 14px 6px 0;text-align:right;border-top:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}thead th{border-top:0;font-weight:600}
tr.none td{color:var(--soft)}td.better{color:var(--good);font-weight:600}
td.worse{color:var(--bad);font-weight:600}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(560px,1fr));gap:20px}
.pair>section{min-width:0}.pair .card svg{min-width:0}
footer{color:var(--soft);font-size:13px}code{font-size:12px;overflow-wrap:anywhere}
@media (max-width:700px){.pair{grid-template-columns:1fr}.tiles{grid-template-columns:1fr 1fr}
main{padding:24px 12px}}
"""


def page(played: Sequence[tuple[Played, Summary]]) -> str:
    """The whole page."""
    scenario = played[0][0].scenario
    policies = " and ".join(summary.policy for _, summary in played)
    facts = (
        f"{span_text(scenario.run_for_ms)} of virtual time · seed {scenario.seed} · "
        f"{scenario.events:,} {'event' if scenario.events == 1 else 'events'} to "
        f"{len(scenario.receivers):,} "
        f"{'endpoint' if len(scenario.receivers) == 1 else 'endpoints'} · policy {policies}"
    )
    body = [f"<h1>{escape(scenario.title)}</h1>", f'<p class="facts">{escape(facts)}</p>']
    if len(played) == 1:
        body += [_tiles(played[0][1].total), *_run(*played[0])]
    else:
        body += [_comparison([summary for _, summary in played]), '<div class="pair">']
        for one, summary in played:
            body += [f"<section><h2>{escape(summary.policy)}</h2>", *_run(one, summary, width=HALF)]
            body.append("</section>")
        body.append("</div>")
    body.append(_footer(played))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(scenario.title)} · homing simulate</title>"
        f"<style>{_PAGE_STYLE}{STYLE}</style></head><body><main>"
        f"{''.join(body)}</main></body></html>\n"
    )


def _run(one: Played, summary: Summary, *, width: int = WIDTH) -> Iterator[str]:
    names = most_interesting(one, ENDPOINTS_MAX)
    legend = _LEGEND
    for panel in panels(one, steps=STEPS * width // WIDTH, names=names, even=True):
        drawing, height = draw_panel(panel, width=width, sentences=False)
        svg = wrap(drawing, height, width=width, label=f"{panel.name} over time")
        yield f'<div class="card">{legend}{svg}{_changes(panel)}</div>'
        legend = ""  # Only the first drawing has one.
    if more := len(one.scenario.receivers) - len(names):
        yield f'<p class="soft">and {more:,} more endpoints</p>'
    for pause in one.trace.pauses[:CHANGES_MAX]:
        yield f'<p class="soft">{escape(pause_text(pause))}</p>'
    if len(summary.endpoints) > 1:
        yield _endpoints(summary)


_LEGEND = (
    '<ul class="legend">'
    '<li><i style="background:var(--good)"></i>delivered</li>'
    '<li><i style="background:var(--bad)"></i>failed</li>'
    '<li><i style="background:#0e7fa8"></i>sender error, or by a person</li>'
    '<li><i style="background:#8d83e6"></i>backlog: waiting for more than a second</li>'
    '<li><i style="background:#d6456030"></i>outage</li>'
    "<li>bars grow with the square root; point at anything for its numbers</li></ul>"
)


def _changes(panel: Panel) -> str:
    if not panel.changes:
        return '<p class="soft">Its state never changed.</p>'
    rows = [
        f'<li><span class="n">{number}</span><time>{moment_text(change.at_ms)}</time>'
        f'<span class="state {change.label}">{change.label}</span>'
        f"<span>{escape(change.sentence)}</span></li>"
        for number, change in enumerate(panel.changes[:CHANGES_MAX], start=1)
    ]
    if (rest := len(panel.changes) - CHANGES_MAX) > 0:
        rows.append(f"<li><span></span><span></span><span></span>and {rest:,} more</li>")
    return f'<ol class="changes">{"".join(rows)}</ol>'


# --- figures --------------------------------------------------------------------------------


def _tiles(figures: Figures) -> str:
    late = figures.late
    dropped = sum(figures.dropped.values())
    reasons = ", ".join(f"{count:,} {why}" for why, count in figures.dropped.items() if count)
    within = "each within a second" if figures.delivered else ""
    if late.count:
        within = (
            f"half within {span_text(late.p50_ms)}, 99 % within {span_text(late.p99_ms)}, "
            f"all within {span_text(late.max_ms)}"
        )
    failed = f"{figures.failed:,} {'attempt' if figures.failed == 1 else 'attempts'} failed"
    if figures.sender_errors:
        failed += f", {figures.sender_errors:,} sender-side"
    tiles = (
        (f"{figures.delivered:,}", "delivered", f"of {figures.accepted:,} accepted"),
        (f"{late.count:,}", "of them late", within),
        (f"{dropped:,}", "dropped", reasons),
        (f"{figures.pending:,}", "pending at the end", ""),
        (span_text(figures.disabled_ms), "disabled", f"{figures.probes:,} probes"),
        (span_text(figures.frozen_ms), "frozen", ""),
        (f"{figures.peak_per_second_after_recovery:,}/s", "peak after recovery", ""),
        (f"{figures.requests:,}", "requests received", failed),
    )
    shown = (
        f'<div class="tile"><b>{value}</b><span>{label}</span><small>{note}</small></div>'
        for value, label, note in tiles
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def _comparison(summaries: Sequence[Summary]) -> str:
    heads = "".join(f"<th>{escape(summary.policy)}</th>" for summary in summaries)
    rows = []
    for row in ROWS:
        totals = [summary.total for summary in summaries]
        numbers = [row.number(total) or 0 for total in totals]
        cells = "".join(
            f'<td class="{_judged(row, number, numbers)}">{row.text(total)}</td>'
            for total, number in zip(totals, numbers, strict=True)
        )
        faint = "" if any(numbers) else ' class="none"'
        rows.append(f"<tr{faint}><td>{row.label}</td>{cells}</tr>")
    return (
        f'<div class="card"><table><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _judged(row: Row, number: int, numbers: Sequence[int]) -> str:
    if not row.less or min(numbers) == max(numbers):
        return ""
    best = min(numbers) if row.less > 0 else max(numbers)
    return "better" if number == best else "worse"


def _endpoints(summary: Summary) -> str:
    """A row for each endpoint."""
    columns = [row for row in ROWS if any(map(row.number, summary.endpoints.values()))]
    heads = "".join(f"<th>{row.label.lstrip('· ')}</th>" for row in columns)
    each = list(summary.endpoints.items())
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{row.text(figures)}</td>" for row in columns)
        + "</tr>"
        for name, figures in [*each[:ENDPOINT_ROWS_MAX], ("all endpoints", summary.total)]
    )
    return (
        f'<div class="card"><table><thead><tr><th>endpoint</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _footer(played: Sequence[tuple[Played, Summary]]) -> str:
    hashes = ", ".join(f"<code>{summary.trace_sha256}</code>" for _, summary in played)
    return (
        "<footer>Made by <code>homing simulate</code>: the real engine, rules and store on virtual "
        f"time. The same scenario and seed always give the same trace: {hashes}.</footer>"
    )
