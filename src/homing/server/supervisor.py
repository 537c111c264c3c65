"""The supervisor of ``homing serve --processes N``: it starts N processes and keeps them running.

The supervisor opens the one listening socket and forks; it serves nothing itself and has no event
loop and no threads. Each serving process is an ordinary process of the fleet.

- Start: the first process starts alone, so that migrations, keys and wrong settings are dealt with
  once. If it fails, the supervisor ends with its exit code. When it serves, the others start.
- Death: a process that ends is started again, after a pause that grows while the process keeps
  ending early. Connections wait in the shared socket meanwhile, or other processes accept them.
- Stop: after SIGTERM or SIGINT every process gets SIGTERM and ends within its grace period. A
  process that takes longer is killed; a second signal kills all. The exit code is 0 if every
  process settled all its outcomes.
- A serving process never outlives the supervisor: the kernel kills it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import structlog
from msgspec import Struct

from homing.net.clock import monotonic
from homing.server.http_server import open_listener, url_of
from homing.server.settings import PROCESSES_MAX, Settings
from homing.server.shutdown import CLOSE_S, EXIT_UNSETTLED
from homing.server.siblings import STOP_SIGNALS, Siblings
from homing.store.process.worker import die_with_parent

log = structlog.get_logger("homing")

FIRST_PAUSE_S = 0.5
PAUSE_MAX_S = 30.0
LONG_LIFE_S = 60.0  # After a life this long, the next pause is FIRST_PAUSE_S again.
KILL_AFTER_S = 5.0  # after a process should have ended by itself


def process_count(settings: Settings) -> int:
    """How many processes serve: a number, or one per usable core; one on SQLite."""
    if not settings.database.url:
        return 1
    wanted = settings.fleet.processes
    return min(usable_cores(), PROCESSES_MAX) if wanted == "auto" else wanted


def usable_cores() -> int:
    if sys.platform == "linux":
        return max(len(os.sched_getaffinity(0)), 1)
    return os.cpu_count() or 1


def pause_s(short_lives: int) -> float:
    """How long to wait before a start, after this many short lives in a row."""
    return min(FIRST_PAUSE_S * 2.0 ** min(short_lives, 10), PAUSE_MAX_S)


def supervise(settings: Settings, count: int, *, ready: Callable[[str], None]) -> Siblings:
    """Start ``count`` processes and supervise them; returns only in each of these processes.

    The supervisor ends with SystemExit. ``ready`` is called in it with the address, once.
    """
    siblings = Siblings(open_listener(settings.listen), count)
    address = url_of(siblings.listener)
    stop_within_ms = settings.listen.drain_ms + settings.delivery.grace_ms
    stop_within_s = stop_within_ms / 1000 + CLOSE_S + KILL_AFTER_S
    supervisor = _Supervisor(siblings, stop_within_s, lambda: ready(address))
    gc.collect()
    gc.freeze()  # The processes share the memory of what is loaded.
    return supervisor.run()


class _Process(Struct):
    """One of the serving processes, across its restarts."""

    number: int
    pid: int | None = None  # None: the process is not running
    started_s: float = 0.0
    short_lives: int = 0  # in a row
    start_at_s: float = 0.0


class _Supervisor:
    def __init__(self, siblings: Siblings, stop_within_s: float, ready: Callable[[], None]) -> None:
        self._siblings, self._stop_within_s, self._ready = siblings, stop_within_s, ready
        self._processes = [_Process(number) for number in range(siblings.count)]
        self._wake, self._waker = socket.socketpair()  # Signals write to it.
        self._is_up = False  # The first process has served.
        self._stop_signals = 0
        self._kill_at_s: float | None = None  # set when the stop has begun
        self._exit_code = 0

    def run(self) -> Siblings:
        """Supervise until the end; returns in a process that was started."""
        with self._catching_signals():
            while True:
                self._bury()
                if self._stop_signals:
                    self._stop()
                if self._kill_at_s is not None and not self._running():
                    sys.exit(self._exit_code)
                if self._kill_at_s is None and self._start_due():
                    break
                self._wait()
        return self._siblings

    # --- starting -----------------------------------------------------------------------------

    def _start_due(self) -> bool:
        """Start the processes that are due; returns True only in a started process."""
        if not self._is_up and self._siblings.somebody_serves():
            self._is_up = True
            self._ready()
        now = monotonic()
        for one in self._wanted():
            if one.pid is None and now >= one.start_at_s and self._start(one, now):
                return True
        return False

    def _wanted(self) -> list[_Process]:
        """All processes; only the first one as long as none has served."""
        return self._processes if self._is_up else self._processes[:1]

    def _start(self, one: _Process, now: float) -> bool:
        alone = not self._siblings.somebody_serves()
        sys.stdout.flush()
        supervisor = os.getpid()
        # A signal that arrives before the process has its handlers waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        pid = os.fork()
        if pid == 0:
            die_with_parent(supervisor)
            self._siblings.become(one.number, alone=alone, wake=self._waker)
            return True
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        one.pid, one.started_s = pid, now
        return False

    # --- waiting and dying --------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait until a process ends or serves, a signal arrives, or a start or kill is due."""
        due = [one.start_at_s for one in self._wanted() if one.pid is None]
        if self._kill_at_s is not None:
            due = [self._kill_at_s]
        timeout_s = max(min(due) - monotonic(), 0.0) if due else None
        select.select([self._wake], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)

    def _bury(self) -> None:
        """Note which processes have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for one in self._processes:
                if one.pid == pid:
                    self._ended(one, os.waitstatus_to_exitcode(status))

    def _ended(self, one: _Process, code: int) -> None:
        """``code`` is negative if a signal ended the process."""
        pid, one.pid = one.pid, None
        self._siblings.accepts_no_more(one.number)
        if self._kill_at_s is not None:
            self._exit_code = EXIT_UNSETTLED if code else self._exit_code
            return
        if not self._is_up and code > 0:
            sys.exit(code)  # The process has reported the reason.
        now = monotonic()
        one.short_lives = 0 if now - one.started_s >= LONG_LIFE_S else one.short_lives
        wait_s = pause_s(one.short_lives)
        one.short_lives += 1
        one.start_at_s = now + wait_s
        log.warning(
            "a serving process ended; the supervisor starts it again",
            process=one.number + 1,
            pid=pid,
            exit=signal.Signals(-code).name if code < 0 else code,
            after_s=wait_s,
        )

    # --- stopping -----------------------------------------------------------------------------

    def _running(self) -> list[int]:
        return [one.pid for one in self._processes if one.pid is not None]

    def _stop(self) -> None:
        if self._kill_at_s is None:
            self._kill_at_s = monotonic() + self._stop_within_s
            self._siblings.listener.close()
            self._signal(signal.SIGTERM)
        elif self._stop_signals > 1 or monotonic() >= self._kill_at_s:
            log.error(
                "the supervisor kills its processes before they have settled all outcomes:"
                " unsettled deliveries that were sent will be sent again",
                why="a second signal came" if self._stop_signals > 1 else "they took too long",
                processes=len(self._running()),
            )
            self._signal(signal.SIGKILL)
            self._kill_at_s = monotonic() + self._stop_within_s
            self._stop_signals = 1

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._running():  # Not reaped yet: the id still belongs to the process.
            os.kill(pid, number)

    @contextlib.contextmanager
    def _catching_signals(self) -> Iterator[None]:
        """Let signals wake ``_wait``; a started process gets the former handlers back."""
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        watched = (*STOP_SIGNALS, signal.SIGCHLD)
        before = {number: signal.signal(number, self._signalled) for number in watched}
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, _frame: object) -> None:
        if number in STOP_SIGNALS:
            self._stop_signals += 1
