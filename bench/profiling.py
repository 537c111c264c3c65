"""Where the CPU goes in c, d and n: ``python -m bench.profiling [--count N] [--only c,d]``.

py-spy looks at the running server a few hundred times a second, from outside, which costs it
little. It counts threads that run or wait for the disk; the processor time of each thread comes
from the kernel, and is shared out by those counts. What is done in C (sockets, SQLite) counts for
the Python function that called it, and what the event loop does itself counts for ``Runner.run``.
``_between`` is BEGIN and COMMIT, mostly the wait for the disk. With ``--native`` the C functions
are named (``fdatasync``, ``write``), and time spent waiting for the interpreter's lock is seen as
an address in libc; every look then stops the server for a moment.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from rich import box
from rich.console import Console
from rich.table import Table

from bench import letter
from bench.measure import FULL
from bench.parts import BATCH, BATCH_CONNECTIONS, SINGLE_CONNECTIONS, Hall, flood
from bench.processes import BenchFailed, Server
from bench.run import hall_of
from bench.show import bar, console

LOOKS_A_SECOND = 250
LOOKS_A_SECOND_NATIVE = 100  # each stops the server for a moment
TOP = 25
THREADS = {"MainThread": "the event loop", "homing-writer": "the writer's thread"}
LOADS = {  # events in a request, connections, URLs of an event
    "c": (BATCH, BATCH_CONNECTIONS, 1),
    "d": (1, SINGLE_CONNECTIONS, 1),
    "n": (1, SINGLE_CONNECTIONS, letter.FAN_OUT),
}
_FRAME = re.compile(r"(?P<name>.+) \((?P<file>.+):(?P<line>\d+)\)$")
_THREAD = re.compile(r"thread \((?P<id>\d+)\): (?P<name>.*)$")
_AROUND = ("homing/cli/", "homing/server/", "uvicorn/server.py")
_STORE = "homing/store/sqlite.py"  # one function runs all statements: its caller tells which


class Looks(Struct):
    """What was seen of one thread."""

    id: int
    count: int = 0
    own: Counter[str] = field(default_factory=Counter)
    inside: Counter[str] = field(default_factory=Counter)


def _plain(frame: str) -> str:
    found = _FRAME.match(frame)
    return f"{found['name']} ({found['file']})" if found else frame


def _own(frames: list[str]) -> str:
    """The innermost function; a statement by who runs it."""
    if _STORE not in frames[-1] or len(frames) < 2:
        return _plain(frames[-1])
    caller = next((it for it in reversed(frames) if _STORE not in it), "")
    found, leaf = _FRAME.match(caller), _FRAME.match(frames[-1])
    if found is None or leaf is None or "homing/store" not in found["file"]:
        return _plain(frames[-1])
    name = leaf["name"].rpartition(".")[2]
    return f"{name} ← {found['name'].rpartition('.')[2]} ({found['file']}:{found['line']})"


def read_looks(text: str) -> dict[str, Looks]:
    """py-spy's raw output: a stack and how often it was seen, line by line."""
    threads: dict[str, Looks] = {}
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        found = _THREAD.match(thread)
        if found is None or not frames:
            continue
        looks = threads.setdefault(found["name"], Looks(int(found["id"])))
        looks.count += int(count)
        looks.own[_own(frames)] += int(count)
        for name in {_plain(frame) for frame in frames}:
            looks.inside[name] += int(count)
    return threads


def thread_cpu_s(pid: int) -> dict[int, float]:
    """The processor time of each thread, as the kernel counts it."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for folder in (Path("/proc") / str(pid) / "task").iterdir():
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        found[int(folder.name)] = (int(fields[11]) + int(fields[12])) / tick
    return found


@contextmanager
def watched(pid: int, out: Path, *, native: bool) -> Iterator[None]:
    """py-spy on this process while the block runs."""
    tool = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    if tool is None:
        raise BenchFailed("py-spy is not installed: pip install '.[bench]'")
    argv = [tool, "record", "--pid", str(pid), "--output", str(out), "--format", "raw"]
    argv += ["--threads", "--duration", "unlimited"]
    if native:
        argv += ["--native", "--rate", str(LOOKS_A_SECOND_NATIVE)]
    else:
        argv += ["--nonblocking", "--rate", str(LOOKS_A_SECOND)]
    with tempfile.TemporaryFile() as log:
        spy = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        try:
            time.sleep(1)  # It reads the symbols of the process first.
            yield
            if spy.poll() is None:
                spy.send_signal(signal.SIGINT)
                spy.wait(30)
        finally:
            if spy.poll() is None:
                spy.kill()
                spy.wait()
        if not out.exists():
            log.seek(0)
            raise BenchFailed(f"py-spy saw nothing: {log.read()[-400:].decode()}")


def _table(title: str, counted: Counter[str], looks: int, us_each: float) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("share", justify="right")
    table.add_column("µs", justify="right")
    table.add_column("", min_width=12)
    table.add_column("function", no_wrap=True)
    for name, count in counted.most_common(TOP):
        share = count / looks
        table.add_row(f"{share:.1%}", f"{share * us_each:.1f}", bar(share * 3, 12), name)
    return table


def _inside(looks: Looks) -> Counter[str]:
    """What takes part of the time, with all it calls; not what everything is inside of."""
    return Counter(
        {
            name: count
            for name, count in looks.inside.items()
            if count < looks.count * 0.95
            and ("homing/" in name or "uvicorn/" in name)
            and not any(it in name for it in _AROUND)
        }
    )


def profile(hall: Hall, part: str, *, count: int, native: bool, out: Console) -> None:
    """One part under observation."""
    batch, connections, fan_out = LOADS[part]
    seen = hall.folder / f"looks-{part}"
    with Server(hall.folder / hall.name()) as server:
        if fan_out > 1:
            server.subscribe_to_all(hall.receiver)
        else:
            server.subscribe(hall.receiver)

        def load(deliveries: int) -> dict[str, Any]:
            events = deliveries // fan_out
            return flood(
                hall, server, count=events, batch=batch, connections=connections, fan_out=fan_out
            )

        load(count // 10)
        pid = server.process.pid
        with watched(pid, seen, native=native):
            before = thread_cpu_s(pid)
            found = load(count)
            after = thread_cpu_s(pid)
    each = {
        thread: (cpu - before.get(thread, 0.0)) / (count + found["warm"]) * 1e6
        for thread, cpu in after.items()
    }
    out.rule(f"{part}: {found['rate']:,.0f} deliveries/s while watched")
    for name, looks in read_looks(seen.read_text()).items():
        if name in THREADS:
            us_each = each.get(looks.id, 0.0)
            title = f"{part}, {THREADS[name]}: {us_each:.0f} µs of CPU per delivery"
            out.print(_table(f"{title}; own time", looks.own, looks.count, us_each))
            out.print(_table("with what it calls", _inside(looks), looks.count, us_each))
    parties = ("server", "publisher", "receiver")
    used = ", ".join(f"{it} {found[f'{it}_cpu_us_each']:.0f}" for it in parties)
    commits = ", ".join(f"{count / many:.0f} {kind}" for kind, many in found["commits"].items())
    out.print(f"CPU per delivery in µs: {used}; deliveries per commit: {commits}", highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profiling")
    parser.add_argument("--only", default="c,d", help="some of c, d and n")
    parser.add_argument("--count", type=int, default=40_000, help="deliveries")
    parser.add_argument("--native", action="store_true", help="look into C as well")
    given = parser.parse_args()
    out = console()
    try:
        with hall_of(FULL) as hall:
            for part in given.only.split(","):
                profile(hall, part, count=given.count, native=given.native, out=out)
    except BenchFailed as error:
        out.print(str(error), highlight=False, markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
