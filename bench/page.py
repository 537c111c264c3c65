"""Renews the figures on the page about speed from a full run; also ``python -m bench.page``.

They stand between two marks. The rest of the page is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LATEST = ROOT / "bench" / "latest.json"
PAGE = ROOT / "docs" / "explanation" / "speed.md"
BEGIN = "<!-- from here on written by make bench -->\n"
END = "<!-- until here -->\n"

_STATE = """ While it ran, the
host took {stolen_percent:.0f} % of the processors' time for others, and the disk needed
{fsync_ms:.1f} ms to write a page durably."""
_HEAD = """The throughput and latency of one server process, measured by `make bench` on {machine}.
The server, its receiver and its publisher share these processors. All figures are from one full run
(commit `{commit}`); [bench/latest.json](../../bench/latest.json) has all of them.{state}

Your machine will give other figures, so compare the right column. It is relative to a yardstick: a
plain aiohttp loop that posts 1 KiB with a signature and stores nothing. The yardstick is measured
again before and after each part, because machines drift, and each ratio is the median of {rounds}
rounds.

| what is measured | result | relative to the yardstick |
|---|---|---|
"""
_ROWS = {
    "a": ("the yardstick: a plain aiohttp loop, 64 requests in flight", ""),
    "b": ("Homing's sender in the same loop", "b/a"),
    "c": (
        "events published in batches of 100, durable on SQLite, delivered to 50 URLs, settled",
        "c/a",
    ),
    "d": ("the same, published one by one on 64 connections", "d/a"),
    "e": ("batches of 100 on PostgreSQL", "e/a"),
    "m": ("published one by one on PostgreSQL", "m/d"),
    "n": ("one event to 100 URLs, deliveries", "n/c"),
    "g": ("batches of 100 with a million other deliveries pending", "g/c"),
    "q": ("batches of 100 with two payload fields indexed for searches", "q/c"),
    "u": ("batches of 100 with OpenTelemetry, one event in a hundred traced", "u/c"),
    "h": ("10,000 URLs with one retry each, due at once from the store", "h/c"),
    "v": ("events that one reader reads and acknowledges in pages of 1,000, SQLite", "v/a"),
    "w": ("the same on PostgreSQL", "w/a"),
    "x": ("batches of 100 with order by key, 10,000 keys", "x/c"),
    "y": ("batches of 100 with only the newest event of a key, each of its own key", "y/c"),
    "z": ("published one by one, each checked against the schema of its event type", "z/d"),
}
_YARDSTICKS = {"a": "", "c": " of batches on SQLite", "d": " of one by one on SQLite"}
_COSTS = {  # Pages of earlier runs do not have all of them.
    "c CPU": "CPU per delivery with batches of 100, all processes of the server: {value:.0f} µs",
    "o CPU": "CPU per delivery at 100 events per second, all processes: {value:.1f} ms",
    "q search p99": "a search by a payload field: 99 of 100 within {value:.1f} ms",
    "n RSS above": "memory while 100,000 deliveries of 1,000 events go out, above that of an idle "
    "server: {value:.0f} MB",
    "r WAL": "write-ahead log of PostgreSQL per delivery, with small events: {value:.1f} kB",
    "t CPU": "CPU of an idle server: {value:.2f} % of a processor",
    "t RSS": "memory of an idle server: {value:.0f} MB",
}
_SATURATED = """
With publishers that send twice as many events as the server can take, it refuses what it cannot
write soon with `429` and `Retry-After`: 99 of 100 accepted requests get their `202` within
{p99:.1f} s, those of another tenant within {other:.1f} s, and memory grows by {rss:.0f} MB. What
was accepted and not yet sent is sent at {drained:.2f} × the rate of batches on SQLite afterwards.
"""
_TAIL = """
At 500 events per second, half of the events arrive at their receiver within {p50:.1f} ms of the
publisher's request, and 99 of 100 within {p99:.0f} ms. With a million pending deliveries a process
uses {rss:.0f} MB more memory than with ten thousand.

An event counts when its receiver has it, its attempt is logged and its outcome is on disk: SQLite
with `synchronous=FULL`, PostgreSQL with `synchronous_commit=on`. `make profile` shows which
functions use the CPU.
"""


def _against(name: str, ratios: dict[str, Any]) -> str:
    if not name:
        return "1"
    return f"{ratios[name]['value']:.2f} ×{_YARDSTICKS[name[-1]]}"


def _costs(latest: dict[str, Any]) -> str:
    limits, ratios = latest["limits"], latest["ratios"]
    lines = [
        f"- {text.format(value=limits[name]['value'])}\n"
        for name, text in _COSTS.items()
        if name in limits
    ]
    text = "\nWhat it costs:\n\n" + "".join(lines) if lines else ""
    if "s/c" in ratios:
        text += _SATURATED.format(
            p99=limits["s p99"]["value"] / 1000,
            other=limits["s p99 of another tenant"]["value"] / 1000,
            rss=limits["s RSS above"]["value"],
            drained=ratios["s/c"]["value"],
        )
    return text


def figures(latest: dict[str, Any]) -> str:
    """The text between the marks."""
    machine, medians, limits = latest["machine"], latest["medians"], latest["limits"]
    kind = f"{machine['processor']}, Python {machine['python']}"
    text = _HEAD.format(
        machine=f"{machine['processors']} processors ({kind})",
        commit=latest["commit"][:7],
        state=_STATE.format(**machine) if "fsync_ms" in machine else "",
        rounds=latest["sizes"]["rounds"],
    )
    for part, (what, ratio) in _ROWS.items():
        if part not in medians:
            continue
        value = f"{round(medians[part]['value'], -2):,.0f}{medians[part]['unit']}"
        text += f"| {what} | {value} | {_against(ratio, latest['ratios'])} |\n"
    return (
        text
        + _costs(latest)
        + _TAIL.format(
            p50=limits["f p50"]["value"],
            p99=limits["f p99"]["value"],
            rss=limits["g RSS above"]["value"],
        )
    )


def page(latest: dict[str, Any]) -> str:
    """The whole page as it is now, with these figures."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    assert mark, f"{PAGE.name} has lost its marks"
    return f"{before}{BEGIN}{figures(latest)}{END}{after}"


def write() -> None:
    PAGE.write_text(page(json.loads(LATEST.read_text())))


if __name__ == "__main__":
    if "--show" in sys.argv[1:]:
        path = Path(sys.argv[2]) if sys.argv[2:] else LATEST
        sys.stdout.write(page(json.loads(path.read_text())))
    else:
        write()
