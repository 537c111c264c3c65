"""One bench run: ``python -m bench.run [--quick] [--only c,d]``; one table, one JSON.

A full run takes about a quarter of an hour and writes ``bench/latest.json`` and its page; a quick
or partial one only looks, and writes ``bench/quick.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import msgspec
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench import page
from bench.measure import (
    FULL,
    NAMES,
    ONCE,
    PARTS,
    QUICK,
    Goal,
    Measured,
    Sizes,
    goals,
    medians,
    parts_named,
    round_order,
    titles,
)
from bench.parts import MEASURE, Hall, rss_small_mb
from bench.postgres import Postgres
from bench.processes import ROOT, BenchFailed, Receiver, scratch
from bench.show import console, number, show

_WEIGHT = {  # how long each takes, roughly
    "g": 3.0,
    "j": 8.0,
    "f": 4.0,
    "a": 1.0,
    "l": 100.0,
    "n": 4.0,
    "o": 8.0,
    "s": 40.0,
    "t": 12.0,
    "A": 60.0,
}
_WEIGHT_ELSE = 2.0
_FIRST_ROUND_ONLY = 6.0  # writing the backlog


class Run(msgspec.Struct):
    """Everything measured so far."""

    before: list[Measured] = []
    rounds: list[list[Measured]] = []
    after: list[Measured] = []
    rss_small_mb: float | None = None
    fsync_ms: float = 0.0  # of one page on the disk of the measurement, the median
    stolen_percent: float = 0.0  # of the processors' time, taken by the host while this ran

    def all(self) -> list[Measured]:
        return [*self.before, *(one for each in self.rounds for one in each), *self.after]


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, two minutes")
    parser.add_argument(
        "--only",
        default=",".join(PARTS),
        help="some parts by letter or name, like c,d or batches,singles; e,k measures PostgreSQL"
        " with and without the writer process, p with 1, 2 and 4 processes. The parts: "
        + ", ".join(f"{part} {name}" for part, name in NAMES.items()),
    )
    parser.add_argument(
        "--large",
        action="store_true",
        help="the dashboard with ten million attempts (part l) and nothing else: 5 GB, ten minutes",
    )
    parser.add_argument("--rounds", type=int, help="how often each ratio is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="sizes times this")
    parser.add_argument("--json", type=Path, help="where the figures go")
    given = parser.parse_args(argv)
    if given.large:
        given.only = "l"
    given.only = parts_named(given.only)
    if not given.only:
        parser.error(f"--only takes some of {', '.join(f'{it} {NAMES[it]}' for it in NAMES)}")
    return given


def sizes_of(given: argparse.Namespace) -> Sizes:
    sizes = QUICK if given.quick else FULL
    if given.scale != 1:
        sizes = sizes.scaled(given.scale)
    return msgspec.structs.replace(sizes, rounds=given.rounds or sizes.rounds)


# --- measuring ------------------------------------------------------------------------------


def measure_all(hall: Hall, only: str, progress: Progress) -> Run:
    """The ceiling, then round after round, then what is measured once."""
    run, what = Run(), titles(hall.sizes)
    once = [part for part in ONCE if part in only]
    steps = ["ceiling", *round_order(only) * hall.sizes.rounds, *once]
    total = sum(_WEIGHT.get(part, _WEIGHT_ELSE) for part in steps)
    total += 2 * _FIRST_ROUND_ONLY if "g" in only else 0.0
    task = progress.add_task("", total=total)

    def measure(part: str, where: str) -> Measured:
        progress.update(task, description=f"{where} [bold]{part}[/] {what[part]}")
        found = MEASURE[part](hall)
        progress.advance(task, _WEIGHT.get(part, _WEIGHT_ELSE))
        progress.console.print(
            f"[dim]{where} {part:>7}  {number(found.value)} {found.unit}[/]", highlight=False
        )
        return found

    run.fsync_ms, times_before = _fsync_ms(hall.folder), _processor_times()
    run.before.append(measure("ceiling", "first"))
    for turn in range(hall.sizes.rounds):
        run.rounds.append([])
        for part in round_order(only, turn):
            run.rounds[-1].append(measure(part, f"round {turn + 1}"))
    if "g" in only:
        progress.update(task, description="memory with few others pending")
        run.rss_small_mb = rss_small_mb(hall)
        progress.advance(task, 2 * _FIRST_ROUND_ONLY)
    for part in once:
        run.after.append(measure(part, "last"))
    spent = [after - before for before, after in zip(times_before, _processor_times(), strict=True)]
    run.stolen_percent = 100 * spent[_STOLEN] / max(sum(spent), 1) if spent else 0.0
    return run


_STOLEN = 7  # the column of /proc/stat


def _processor_times() -> list[int]:
    """What all processors did since the start of the machine; empty if the system does not say."""
    path = Path("/proc/stat")
    return (
        [int(it) for it in path.read_text().splitlines()[0].split()[1:9]] if path.exists() else []
    )


def _fsync_ms(folder: Path) -> float:
    took = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return median(took)


@contextmanager
def hall_of(sizes: Sizes) -> Iterator[Hall]:
    """The scene; whatever happens, its processes end and its folders go."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        postgres = Postgres()
        stack.callback(postgres.end)
        receiver = stack.enter_context(Receiver())
        yield Hall(receiver, folder, postgres, sizes)


# --- what is kept ---------------------------------------------------------------------------


def _git(*words: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    found = subprocess.run([git, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def machine() -> dict[str, Any]:
    """Facts about the machine that say nothing about whose it is."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processors": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(pages / 1024**3, 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        **{name: version(name) for name in ("uvloop", "aiohttp", "apsw", "asyncpg", "msgspec")},
    }


def _goal(goal: Goal) -> dict[str, Any]:
    return {**msgspec.structs.asdict(goal), "met": goal.met}


def document(run: Run, sizes: Sizes, found_goals: list[Goal], *, quick: bool) -> dict[str, Any]:
    """The JSON."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "src", "bench")),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": {
            **machine(),
            "fsync_ms": run.fsync_ms,
            "stolen_percent": run.stolen_percent,
        },
        "sizes": msgspec.structs.asdict(sizes),
        "medians": {
            part: {"value": one.value, "unit": one.unit} for part, one in medians(run.all()).items()
        },
        "ratios": {goal.name: _goal(goal) for goal in found_goals if "/" in goal.name},
        "limits": {goal.name: _goal(goal) for goal in found_goals if "/" not in goal.name},
        "rss_small_mb": run.rss_small_mb,
        "before": msgspec.to_builtins(run.before),
        "rounds": msgspec.to_builtins(run.rounds),
        "after": msgspec.to_builtins(run.after),
    }


def _rounded(value: Any) -> Any:
    """Six digits are more than any of it is worth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _stop(_number: int, _frame: object) -> None:
    sys.exit(143)


def main() -> int:
    given = arguments(sys.argv[1:])
    sizes = sizes_of(given)
    whole = not given.quick and given.only == PARTS and given.scale == 1
    path = given.json or ROOT / "bench" / ("latest.json" if whole else "quick.json")
    signal.signal(signal.SIGTERM, _stop)  # Leave by the blocks that end what was started.
    out = console()
    columns = (
        SpinnerColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with (
            Progress(*columns, console=out, transient=True) as progress,
            hall_of(sizes) as hall,
        ):
            run = measure_all(hall, given.only, progress)
    except BenchFailed as error:
        out.print(f"[red]{error}[/]", highlight=False)
        return 1
    except KeyboardInterrupt:
        out.print("stopped")
        return 130
    found_goals = goals(run.rounds, run.rss_small_mb, run.after)
    show(
        out,
        medians(run.all()),
        found_goals,
        titles=titles(sizes),
        rss_small_mb=run.rss_small_mb,
    )
    written = _rounded(document(run, sizes, found_goals, quick=given.quick))
    path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    if path == page.LATEST:
        page.write()
    out.print(f"[dim]{path.name} has every figure[/]", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
