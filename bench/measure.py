"""What a bench run is made of, as plain values: sizes, the order of parts, ratios, targets.

Machines drift, by a third within minutes on shared ones. So no two figures are compared that were
not measured side by side: a part stands between two measurements of its yardstick, its ratio is
taken against their mean, and of several rounds the median counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from msgspec import Struct

YARDSTICK = {
    "b": "a",
    "c": "a",
    "d": "a",
    "e": "a",
    "k": "a",
    "v": "a",
    "w": "a",
    "g": "c",
    "h": "c",
    "n": "c",
    "q": "c",
    "u": "c",
    "x": "c",
    "y": "c",
    "m": "d",
    "z": "d",
}
IN_ROUNDS = "bcuxydzekvwfghnqm"
ONCE = "ijloprstA"
PARTS = "abcdefghijmnoqrstuvwxyzA"
ON_REQUEST = "klp"  # measured only where --only names it; --large is --only l
NAMES = {  # of the parts; a figure is named by letters, such as c/a
    "a": "yardstick",
    "b": "sender",
    "c": "batches",
    "d": "singles",
    "e": "batches-on-postgresql",
    "f": "latency",
    "g": "beside-a-backlog",
    "h": "retries-due-at-once",
    "i": "matching",
    "j": "pages",
    "k": "without-writer-process",
    "l": "large-dashboard",
    "m": "singles-on-postgresql",
    "n": "fan-out",
    "o": "cpu-at-low-rate",
    "p": "processes",
    "q": "payload-fields",
    "r": "write-ahead-log",
    "s": "twice-the-capacity",
    "t": "idle-server",
    "u": "opentelemetry",
    "v": "pull",
    "w": "pull-on-postgresql",
    "x": "order-by-key",
    "y": "newest-of-a-key",
    "z": "checked-data",
    "A": "beside-changes",
}


class Sizes(Struct, frozen=True):
    """How much of everything."""

    rounds: int
    ceiling: int
    a: int
    b: int
    c: int
    d: int
    e: int
    f_seconds: int
    backlog: int  # g
    backlog_small: int  # what g's memory is compared with
    backlog_urls: int
    due_urls: int  # h
    rows: int  # j
    rows_urls: int
    pages: int
    attempts: int  # l
    attempts_urls: int
    m: int
    n: int  # events, each to 100 URLs
    o_seconds: int
    searches: int  # q
    r: int
    s_seconds: int
    t_seconds: int
    changes: int  # A: events published as fast as it goes
    changes_seconds: int

    def scaled(self, factor: float) -> Sizes:
        """For trying out: smaller."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        least = {"rounds": values["rounds"], "f_seconds": 1, "rows_urls": 10, "pages": 5}
        least |= {"n": 20, "o_seconds": 1, "s_seconds": 1, "t_seconds": 1, "changes_seconds": 1}
        return Sizes(
            **{
                name: least[name] if name in least else max(int(value * factor), 200)
                for name, value in values.items()
            }
        )


FULL = Sizes(
    rounds=5,
    ceiling=60_000,
    a=10_000,
    b=60_000,
    c=40_000,
    d=20_000,
    e=30_000,
    f_seconds=8,
    backlog=1_000_000,
    backlog_small=10_000,
    backlog_urls=10_000,
    due_urls=10_000,
    rows=1_000_000,
    rows_urls=1_000,
    pages=40,
    attempts=10_000_000,
    attempts_urls=2_000,
    m=20_000,
    n=1_000,
    o_seconds=20,
    searches=1_000,
    r=30_000,
    s_seconds=60,
    t_seconds=30,
    changes=12_000,
    changes_seconds=10,
)
QUICK = Sizes(
    rounds=1,
    ceiling=10_000,
    a=3_000,
    b=10_000,
    c=8_000,
    d=4_000,
    e=6_000,
    f_seconds=4,
    backlog=50_000,
    backlog_small=10_000,
    backlog_urls=1_000,
    due_urls=1_000,
    rows=50_000,
    rows_urls=100,
    pages=10,
    attempts=100_000,
    attempts_urls=200,
    m=4_000,
    n=200,
    o_seconds=5,
    searches=200,
    r=6_000,
    s_seconds=8,
    t_seconds=5,
    changes=6_000,
    changes_seconds=5,
)


def parts_named(only: str) -> str:
    """The letters of the parts in ``--only`` (``c,d`` or ``pull``); empty if one is unknown."""
    letters = {name: part for part, name in NAMES.items()} | {part: part for part in NAMES}
    words = set(only.replace(" ", "").split(","))
    return "".join(sorted({letters[word] for word in words})) if words <= letters.keys() else ""


def titles(sizes: Sizes) -> dict[str, str]:
    """What each part is, in a line."""
    return {
        "ceiling": "the receiver itself, fed with static bytes",
        "a": "a bare aiohttp loop with HMAC, 64 in flight",
        "b": "our sender in the same loop",
        "c": "publish in batches of 100 on 16 connections → SQLite → 50 URLs → settled",
        "d": "the same with single publishes on 64 connections",
        "e": "c on PostgreSQL",
        "f": "publish to receive at 500 events/s, p50",
        "g": f"c with {sizes.backlog:,} other deliveries pending",
        "h": f"{sizes.due_urls:,} URLs with one retry each, due at once",
        "i": "one match among 10,000 subscriptions",
        "j": f"a page of a list or the dashboard with {sizes.rows:,} rows, slowest p50",
        "k": "e without the writer process",
        "l": f"a page of the dashboard with {sizes.attempts:,} attempts, slowest p99",
        "m": "d on PostgreSQL",
        "n": "one event to 100 URLs, on 64 connections → SQLite → settled; deliveries",
        "o": "CPU per delivery at 100 events/s, server and writer",
        "p": "CPU per delivery of e with 4 processes, against 1",
        "q": "c with two payload fields, which are then searched",
        "r": "write-ahead log of PostgreSQL per delivery, small events",
        "s": f"twice as many events as c can take, for {sizes.s_seconds} s: p99 of a 202",
        "t": "CPU of an idle server",
        "u": "c with OpenTelemetry",
        "v": "events read by one reader in pages of 1,000, each acknowledged, SQLite",
        "w": "v on PostgreSQL",
        "x": "c with order by key, 10,000 keys",
        "y": "c with only the newest event of a key, each of its own key",
        "z": "d with the data of every event checked against the schema of its type",
        "A": "share of the publishes of m that is left beside 300 changes/s of 20 other tenants",
    }


class Measured(Struct, frozen=True):
    """One measurement of one part."""

    part: str
    value: float
    unit: str
    details: dict[str, Any] = {}


class Goal(Struct, frozen=True):
    """A figure with the target that it should reach."""

    name: str
    value: float
    target: float
    at_most: bool = False
    unit: str = ""
    each: tuple[float, ...] = ()  # round by round

    @property
    def met(self) -> bool:
        return self.value <= self.target if self.at_most else self.value >= self.target


class Limit(Struct, frozen=True):
    """A target for a figure of one part that is no ratio to another part."""

    name: str
    part: str
    detail: str  # what the part calls it; empty: its value
    target: float
    unit: str = ""
    at_most: bool = True


RATIO_TARGETS = {
    "b/a": 8.0,
    "c/a": 4.0,
    "d/a": 1.8,
    "e/a": 3.0,
    "k/a": 1.5,
    "v/a": 4.0,
    "w/a": 4.0,
    "g/c": 0.9,
    "h/c": 0.8,
    "m/d": 0.8,
    "n/c": 1.6,
    "q/c": 0.8,
    "u/c": 0.97,
    "x/c": 0.8,
    "y/c": 0.8,
    "z/d": 0.97,
    "q/a": 3.2,
}
LIMITS = (
    Limit("f p50", "f", "p50_ms", 1.0, "ms"),
    Limit("f p99", "f", "p99_ms", 4.0, "ms"),
    Limit("c CPU", "c", "server_cpu_us_each", 65.0, "µs"),
    Limit("o CPU", "o", "", 1.0, "ms"),
    Limit("q search p99", "q", "search_p99_ms", 10.0, "ms"),
    Limit("n RSS above", "n", "rss_above_mb", 40.0, "MB"),
    Limit("r WAL", "r", "", 0.8, "kB"),
    Limit("t CPU", "t", "", 0.2, "%"),
    Limit("t RSS", "t", "rss_mb", 90.0, "MB"),
    Limit("s p99", "s", "p99_ms", 2_000.0, "ms"),
    Limit("s p99 of another tenant", "s", "other_p99_ms", 1_000.0, "ms"),
    Limit("s RSS above", "s", "rss_above_mb", 100.0, "MB"),
    Limit("s Retry-After", "s", "retry_after_percent", 100.0, "%", at_most=False),
    Limit("s/c", "s", "drained_of_c", 0.9, at_most=False),
    Limit("l p99", "l", "", 200.0, "ms"),
)
G_RSS_MB = 100.0
WRITER_PROCESS_GAIN = 1.05  # e/k: less, and the PostgreSQL writer process is not worth its code


def round_order(only: str, turn: int = 0) -> list[str]:
    """The parts of one round, each ratio's part between two measurements of its yardstick.

    e and k, which are compared with each other, change places from round to round.
    """
    order: list[str] = []
    for part in IN_ROUNDS.replace("ek", "ke") if turn % 2 else IN_ROUNDS:
        if part not in only:
            continue
        yardstick = YARDSTICK.get(part)
        if yardstick is None:
            order.append(part)
            continue
        if not order or order[-1] != yardstick:
            order.append(yardstick)
        order += [part, yardstick]
    if "a" in only and "a" not in order:
        order.append("a")
    return order


def ratios(rounds: Sequence[Sequence[Measured]]) -> dict[str, list[float]]:
    """Round by round, for each part that stood between its yardsticks."""
    found: dict[str, list[float]] = {}
    for one in rounds:
        for before, middle, after in zip(one, one[1:], one[2:], strict=False):
            yardstick = YARDSTICK.get(middle.part)
            if yardstick == before.part == after.part:
                ratio = middle.value / ((before.value + after.value) / 2)
                found.setdefault(f"{middle.part}/{yardstick}", []).append(ratio)
    if {"q/c", "c/a"} <= found.keys():
        found["q/a"] = [q * c for q, c in zip(found["q/c"], found["c/a"], strict=True)]
    return found


def goals(
    rounds: Sequence[Sequence[Measured]],
    rss_small_mb: float | None,
    once: Sequence[Measured] = (),
) -> list[Goal]:
    """Everything that has a target and was measured."""
    measured = ratios(rounds)
    found = [
        Goal(name, median(measured[name]), target, each=tuple(measured[name]))
        for name, target in RATIO_TARGETS.items()
        if name in measured
    ]
    if {"e/a", "k/a"} <= measured.keys():
        gains = tuple(e / k for e, k in zip(measured["e/a"], measured["k/a"], strict=True))
        found.append(Goal("e/k", median(gains), WRITER_PROCESS_GAIN, each=gains))
    everything = [*(one for each in rounds for one in each), *once]
    for limit in LIMITS:
        values = tuple(
            one.details[limit.detail] if limit.detail else one.value
            for one in everything
            if one.part == limit.part and (not limit.detail or limit.detail in one.details)
        )
        if values:
            found.append(
                Goal(
                    limit.name,
                    median(values),
                    limit.target,
                    at_most=limit.at_most,
                    unit=limit.unit,
                    each=values,
                )
            )
    sizes = tuple(one.details["rss_mb"] for each in rounds for one in each if one.part == "g")
    if sizes and rss_small_mb is not None:
        above = tuple(size - rss_small_mb for size in sizes)
        found.append(
            Goal("g RSS above", median(above), G_RSS_MB, at_most=True, unit="MB", each=above)
        )
    return found


def medians(measured: Sequence[Measured]) -> dict[str, Measured]:
    """Of each part the median value, in the order of parts, with the details of the last one."""
    by_part: dict[str, list[Measured]] = {}
    for one in measured:
        by_part.setdefault(one.part, []).append(one)
    order = ("ceiling", *PARTS, *ON_REQUEST)
    return {
        part: Measured(
            part,
            median(one.value for one in by_part[part]),
            by_part[part][-1].unit,
            by_part[part][-1].details,
        )
        for part in order
        if part in by_part
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
