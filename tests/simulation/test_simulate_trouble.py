"""``homing simulate`` under failures: missing files, a full disk, an interrupt."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.terminal import Done, Terminal
from homing.sim.loop import VirtualLoop, run_virtual
from simulation.scenes import ONE

FULL = Path("/dev/full")
ROOT = Path(__file__).parents[2]
INTERRUPTED = """
import builtins

usual = builtins.__import__

def interrupted(name, *more):
    if name == "typer":
        raise KeyboardInterrupt
    return usual(name, *more)

builtins.__import__ = interrupted
from homing.cli.start import main
main()
"""

needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    (tmp_path / "one.toml").write_text(ONE)
    (tmp_path / "folder").mkdir()
    return Terminal(tmp_path)


# --- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["none.toml"], "none.toml cannot be read: No such file or directory."),
        (["folder"], "folder cannot be read: Is a directory."),
        (
            ["one.toml", "--compare", "own"],
            'There is no policy "own" to compare with; known policies: workfront, '
            "workfront-chained, standard-webhooks, once.",
        ),
        (
            ["one.toml", "--svg", "no/x.svg"],
            "no/x.svg cannot be written: No such file or directory.",
        ),
        (["one.toml", "--html", "folder"], "folder cannot be written: Is a directory."),
        (["one.toml", "--svg", "one.toml/x"], "one.toml/x cannot be written: Not a directory."),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_played(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.setattr("homing.sim.play.play", None)
    done = terminal.run("simulate", *arguments)
    assert done == Done(2, "", f"homing: {told}\n")


def test_a_place_that_was_only_looked_at_stays_as_it_was(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("homing.sim.play.play", interrupted)
    (terminal.place / "old.html").write_text("old")
    done = terminal.run("simulate", "one.toml", "--svg", "new.svg", "--html", "old.html")
    assert done == Done(130, "", "")
    assert not (terminal.place / "new.svg").exists()
    assert (terminal.place / "old.html").read_text() == "old"


@needs_full
def test_a_drawing_that_fails_at_last_leaves_the_result(terminal: Terminal) -> None:
    done = terminal.process("simulate", "one.toml", "--svg", str(FULL), "--html", "x.html")
    assert done.code == 1
    assert done.err == "homing: /dev/full cannot be written: No space left on device.\n"
    assert "payroll" in done.out
    assert (terminal.place / "x.html").exists()


@needs_full
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_is_told_in_one_line(terminal: Terminal, more: list[str]) -> None:
    command = [sys.executable, "-m", "homing.cli.main", "simulate", "one.toml", *more]
    with FULL.open("wb") as full:
        done = subprocess.run(
            command, cwd=terminal.place, stdout=full, stderr=subprocess.PIPE, check=False
        )
    told = b"homing: Standard output cannot be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_a_byte_order_mark_is_no_mistake(terminal: Terminal) -> None:
    (terminal.place / "one.toml").write_text(ONE, encoding="utf-8-sig")
    assert terminal.run("simulate", "one.toml").code == 0


# --- an interrupt ----------------------------------------------------------------------------


@contextmanager
def usual_interrupts() -> Iterator[None]:
    """As in a program of one's own, whatever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_a_turn() -> None:
    seen: list[str] = []

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        seen.append("the turn goes on")
        await asyncio.sleep(1)
        seen.append("the next does not")

    with usual_interrupts(), pytest.raises(KeyboardInterrupt):
        run_virtual(work())
    assert seen == ["the turn goes on"]


def test_a_second_interrupt_does_not_wait() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it waited")

    with usual_interrupts(), pytest.raises(KeyboardInterrupt):
        run_virtual(work())


def test_who_ignores_interrupts_is_left_alone() -> None:
    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(1)
        return "done"

    with usual_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert run_virtual(work()) == "done"
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_what_begins_while_all_ends_is_ended_too() -> None:
    begun: list[asyncio.Task[None]] = []

    async def heirs(left: int) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            if left:
                begun.append(asyncio.get_running_loop().create_task(heirs(left - 1)))
                await asyncio.sleep(0)

    async def work() -> None:
        begun.append(asyncio.get_running_loop().create_task(heirs(3)))
        await asyncio.sleep(0)

    loop = VirtualLoop()
    run_virtual(work(), loop)
    assert len(begun) > 1
    assert all(task.done() for task in begun)
    assert asyncio.all_tasks(loop) == set()


def test_an_interrupt_while_modules_are_imported_is_quiet() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["homing"] == "homing.cli.start:main"


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_given_to_a_thread_takes_no_virtual_time(fails: bool) -> None:
    def work() -> str:
        time.sleep(0.01)
        if fails:
            raise OSError("no disk")
        return "done"

    async def story() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        loop.call_later(0.001, lambda: None)  # Something the clock could jump to.
        try:
            said = await asyncio.to_thread(work)
        except OSError as error:
            said = str(error)
        return said, loop.time()

    loop = VirtualLoop()
    try:
        assert loop.run_until_complete(story()) == ("no disk" if fails else "done", 0.0)
    finally:
        loop.close()
