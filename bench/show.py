"""The table of a bench run, with bars."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from bench.measure import NAMES, Goal, Measured

BAR = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int = BAR) -> str:
    """A bar that fills this share of its width, to an eighth of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _parts(found: dict[str, Measured], titles: dict[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("part")
    table.add_column("")
    table.add_column("median", justify="right")
    table.add_column("", min_width=BAR)
    rates = [one.value for one in found.values() if one.unit == "/s"]
    for part, one in found.items():
        is_rate = one.unit == "/s"
        color = "dim" if part == "ceiling" else "yellow" if part == "a" else "cyan"
        table.add_row(
            f"{part}  {NAMES[part]}" if part in NAMES else "",
            titles[part],
            f"{number(one.value)} {one.unit}".replace(" /s", "/s"),
            Text(bar(one.value / max(rates)) if is_rate else "", style=color),
        )
    return table


def _goals(goals: Sequence[Goal]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure")
    table.add_column("median", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    table.add_column("", min_width=BAR)
    table.add_column("round by round")
    for goal in goals:
        unit = f" {goal.unit}" if goal.unit else ""
        sign = "≤" if goal.at_most else "≥"
        share = goal.value / goal.target / 2  # the middle of the bar is the target
        table.add_row(
            goal.name,
            f"{number(goal.value)}{unit}",
            f"{sign} {goal.target:g}{unit}",
            Text("✓" if goal.met else "✗", style="green" if goal.met else "bold red"),
            Text(bar(share), style="green" if goal.met else "red"),
            Text(" ".join(number(one) for one in goal.each), style="dim"),
        )
    return table


def _lines(found: dict[str, Measured], rss_small_mb: float | None) -> list[str]:
    lines = []
    if "g" in found:
        small = "" if rss_small_mb is None else f", {rss_small_mb:.0f} MB with few pending"
        lines.append(f"g  memory of the server: {found['g'].details['rss_mb']:.0f} MB{small}")
    if "i" in found:
        costs = (f"{name}: {number(us)} µs" for name, us in found["i"].details.items())
        lines.append("i  " + " · ".join(costs))
    if "n" in found:
        n = found["n"].details
        lines.append(
            f"n  memory of the server: {n['rss_idle_mb']:.0f} MB idle, "
            f"{n['rss_above_mb']:.0f} MB more with all deliveries going out"
        )
    if "o" in found:
        o = found["o"].details
        lines.append(
            f"o  CPU per delivery: server {number(o['server_ms'])} ms, "
            f"writer {number(o['writer_ms'])} ms"
        )
    if "r" in found:
        images = found["r"].details["wal_images_each"]
        lines.append(f"r  images of whole pages per delivery: {images:.4f}")
    if "s" in found:
        lines += _pressed(found["s"].details)
    if "t" in found:
        lines.append(f"t  memory of an idle server: {found['t'].details['rss_mb']:.0f} MB")
    lines += [_by_processes(one.details) for part, one in found.items() if part == "p"]
    lines += [line for part, one in found.items() if part == "A" for line in _beside(one.details)]
    lines += [_times(part, "page", found[part].details) for part in ("j", "l") if part in found]
    if "q" in found:
        lines.append(_times("q", "search by a value", found["q"].details["searches"]))
    return lines


def _times(part: str, what: str, details: dict[str, Any]) -> str:
    each = (
        f"{name} {number(one['p50_ms'])}/{number(one['p99_ms'])}" for name, one in details.items()
    )
    return f"{part}  ms per {what}, p50/p99: " + " · ".join(each)


def _by_processes(p: dict[str, Any]) -> str:
    each = (
        f"{processes}: {number(one['cpu_us_each'])} µs, {number(one['rate'])}/s"
        for processes, one in p.items()
    )
    return "p  processes, CPU per delivery, rate: " + " · ".join(each)


def _beside(a: dict[str, Any]) -> list[str]:
    """One line for each store and number of processes."""
    return [
        f"A  {name}: "
        + " · ".join(
            f"{changes} changes/s: {number(one['rate'])} events/s, "
            f"p50 at 500/s {number(one['p50_ms'])} ms"
            for changes, one in each.items()
        )
        for name, each in a.items()
    ]


def _pressed(s: dict[str, Any]) -> list[str]:
    pressed, other = s["pressed"], s["other"]
    refused = pressed["refused"] + pressed["unsent"] + pressed["broken"]
    return [
        f"s  {number(s['accepted'])} of {number(2 * s['can_take'])} events/s accepted, "
        f"p50/p99/worst {number(pressed['p50_ms'])}/{number(pressed['p99_ms'])}/"
        f"{number(pressed['worst_ms'])} ms; {refused / pressed['requests']:.0%} refused: "
        f"{pressed['refused']:,} with 429 or 503 ({pressed['with_retry_after']:,} with "
        f"Retry-After), {pressed['broken']:,} cut off, {pressed['unsent']:,} without a connection",
        f"s  another tenant: {other['refused']:,} of {other['requests']:,} refused, p99 "
        f"{number(other['p99_ms'])} ms to the 202, {number(s['other_arrived_p99_ms'])} ms to the "
        f"receiver; memory {number(s['rss_idle_mb'])} MB, {number(s['rss_above_mb'])} MB more; "
        f"{s['waiting']:,} left, sent at {number(s['drained'])}/s",
    ]


def console() -> Console:
    """Wide enough for the tables also where the output is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def show(
    out: Console,
    found: dict[str, Measured],
    goals: Sequence[Goal],
    *,
    titles: dict[str, str],
    rss_small_mb: float | None,
) -> None:
    """Print it all."""
    out.print(Group(_parts(found, titles), *_lines(found, rss_small_mb)))
    if goals:
        out.print(_goals(goals))
