"""A child process that does a part of our work, begun when it is asked and not there.

Calls keep their order on each line, also while a child begins. If it ends alone, the next call
begins another.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from homing.errors import StoreUnavailable
from homing.store.line import Answers, answers_on, new_line
from homing.store.wire import Call

CLOSE_S = 30
_children: set[subprocess.Popen[bytes]] = set()  # that may still be there


def kill_children() -> None:
    """End every child now, also one that is stopped: this process is about to end."""
    for child in list(_children):
        with contextlib.suppress(OSError):
            child.kill()


class Child:
    """The parent's side: the process, and our end of each of its lines."""

    def __init__(
        self,
        module: str,
        lines: Sequence[str],
        *words: str,
        told: bytes = b"",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """It runs ``module`` with the numbers of its lines and ``words``; ``told`` comes first."""
        self._module, self._words = module, words
        self._told, self._environ = told, environ
        self._lines = {name: Answers() for name in lines}
        self._starting = asyncio.Lock()
        self._coming = 0  # calls that wait for it to begin
        self._closed = False
        self.process: subprocess.Popen[bytes] | None = None

    async def ask(self, line: str, call: Call) -> Any:
        """Its answer; StoreUnavailable if it ended before."""
        if self._lines[line].transport is None or self._coming:
            self._coming += 1  # Who comes later does not pass: the lock lets them in in turn.
            try:
                await self.start()
            finally:
                self._coming -= 1
        return await self._lines[line].ask(call)

    @property
    def whole(self) -> bool:
        """It has begun, and no line is broken."""
        return all(line.transport is not None for line in self._lines.values())

    async def start(self) -> None:
        """Begin now, so that the first call need not wait for it."""
        async with self._starting:
            if self._closed:
                raise StoreUnavailable("The store is closed.")
            if self.whole:
                return
            await self._end()  # One line is broken: the others' calls are answered no more.
            lines = [await answers_on(line) for line in self._begin()]
            self._lines = dict(zip(self._lines, lines, strict=True))

    def _begin(self) -> list[socket.socket]:
        """Start the process, and tell it what it is told first; our ends of its lines."""
        pairs = [new_line() for _ in self._lines]
        numbers = [theirs.fileno() for _, theirs in pairs]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - it is ourselves
                [sys.executable, "-m", self._module, *map(str, numbers), *self._words],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                env=self._environ,
            )
            _children.add(self.process)
        except OSError as error:
            for ours, _ in pairs:
                ours.close()
            raise StoreUnavailable(f"No process can be started: {error.strerror}.") from error
        finally:
            for _, theirs in pairs:
                theirs.close()
        pairs[0][0].sendall(self._told)  # There is room for it.
        return [ours for ours, _ in pairs]

    async def _end(self) -> None:
        """Of whatever is left of it, nothing goes on."""
        for line in self._lines.values():
            line.close()
        if self.process is not None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
            _children.discard(self.process)

    async def close(self) -> None:
        """It finishes what it was asked, and ends."""
        async with self._starting:
            self._closed = True
            for line in self._lines.values():
                line.hang_up()
            if self.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(self.process.wait, CLOSE_S)
            await self._end()
