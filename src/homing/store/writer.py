"""The SQLite writer as a process of its own: commits do not share a GIL with the event loop.

apsw gives the GIL back and takes it again with every statement; beside a busy event loop each of
these takes longer than the statement itself. Here the loop's process sends a call (port, method,
arguments) over a socket pair, and a child runs it inline and answers. Calls that wait together
share one COMMIT and are answered after it; but publishes go first and wait for no other call than
the one under way. The child has no life of its own: it ends with
its parent, by the kernel's hand if need be, and holds no lock; the parent holds the lock file. If
the child alone ends, what it was asked is StoreUnavailable, the next call starts another, and a
batch that it had committed without an answer is known by its number.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from homing.errors import HomingError, StoreUnavailable
from homing.store.admin import Admin
from homing.store.child import Child
from homing.store.clock_marks import ClockMarks
from homing.store.flow import Flow
from homing.store.keys import Keys
from homing.store.line import RECEIVE_BYTES, end_with_parent
from homing.store.lock import Lock
from homing.store.seals import Seals
from homing.store.sqlite import SqliteDb
from homing.store.tx import to_its_end
from homing.store.wire import Call, Frames, is_publish, write_answer, write_error

LARGE = {"settle", "due", "do_chore", "remove_history", "fold_rollups"}  # methods of many rows
SMALL_MOST = 16  # other calls that share a COMMIT


class Writer(Child):
    """The parent's side. Made by ``open``."""

    def __init__(self, path: Path, *, node: int) -> None:
        self._lock = Lock(Path(f"{path}.lock"))
        super().__init__("homing.store.writer", ["calls"], str(path), str(node))

    @classmethod
    async def open(cls, path: Path, *, node: int) -> Writer:
        """DataInUse if another process has the file."""
        writer = cls(path, node=node)
        try:
            await writer.call("flow", "last_id")
        except BaseException:
            await writer.close()
            raise
        return writer

    async def call(self, port: str, method: str, *args: Any, **kwargs: Any) -> Any:
        return await self.ask("calls", (port, method, args, kwargs))

    async def close(self) -> None:
        """The child finishes what it was asked, writes the log back and ends."""
        try:
            await super().close()
        finally:
            self._lock.release()


class Remote:
    """A store port whose methods run in the writer's process."""

    def __init__(self, writer: Writer, port: str) -> None:
        self._writer, self._port = writer, port

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._writer.call(self._port, method, *args, **kwargs)

        setattr(self, method, call)  # Once for each method.
        return call


# --- the child ------------------------------------------------------------------------------


class _Calls:
    """The child's end of the line."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._frames = Frames()

    def add_to(self, waiting: list[Call]) -> bool:
        """Append the calls that have come, at least one if none waits; False: there are none."""
        while True:
            data = self._line.recv(RECEIVE_BYTES) if not waiting else self._more()
            if not data and not waiting:
                return False  # The parent has hung up.
            while data:  # There may be more; it is taken without waiting.
                self._frames.add(data)
                data = self._more()
            waiting += self._frames.calls()
            if waiting:
                return True

    def _more(self) -> bytes:
        try:
            return self._line.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""


class _Child:
    """Runs calls; those that have come together share a COMMIT, and are answered after it."""

    def __init__(self, db: SqliteDb, node: int) -> None:
        self._db, self._node = db, node
        self._ports = self._fresh_ports()

    def _fresh_ports(self) -> dict[str, Any]:
        return {
            "flow": Flow(self._db, node=self._node),
            "admin": Admin(self._db, node=self._node),
            "keys": Keys(self._db),
            "seals": Seals(self._db),
            "clock": ClockMarks(self._db),
        }

    def answers(self, calls: list[Call]) -> list[bytes]:
        if len(calls) == 1:
            return [self._answer(calls[0], grouped=False)]
        try:
            return self._db.grouped(lambda: [self._answer(call, grouped=True) for call in calls])
        except StoreUnavailable as error:
            self._ports = self._fresh_ports()  # They remember what was undone.
            return [write_error(error, call) for call in calls]
        except apsw.Error:  # A bug in one of them: each by itself, so that the others are done.
            self._ports = self._fresh_ports()
            return [self._answer(call, grouped=False) for call in calls]

    def _answer(self, call: Call, *, grouped: bool) -> bytes:
        port, method, args, kwargs = call
        try:
            answer = to_its_end(getattr(self._ports[port], method)(*args, **kwargs))
            return write_answer(call, answer)
        except HomingError as error:
            return write_error(error, call)
        except apsw.Error as error:
            if grouped:
                raise  # The group is undone, and all of it is answered so.
            return write_error(RuntimeError(f"{method}: {type(error).__name__}"), call)
        except Exception as error:  # noqa: BLE001 - a bug is raised where it was asked for
            return write_error(RuntimeError(f"{method}: {type(error).__name__}: {error}"), call)


def take_share(waiting: list[Call], before: list[Call]) -> list[Call]:
    """Take the calls of the next COMMIT off those that wait; ``before``: those of the last one.

    Publishes go first, all of them. Of the rest some small calls share a commit, or one large call
    has its own. Commits of the two kinds alternate while both wait: a publish waits for one
    bounded commit, and publishers that never pause cannot keep outcomes from being written.
    """
    share = [call for call in waiting if is_publish(call)]
    rest = len(waiting) - len(share)
    if share and not (rest and before and is_publish(before[0])):
        waiting[:] = [call for call in waiting if not is_publish(call)]
        return share
    if share:
        waiting.sort(key=is_publish)
    count = next((n for n, call in enumerate(waiting[:SMALL_MOST], 1) if call[1] in LARGE), 0)
    count = count or min(rest, SMALL_MOST)
    share = waiting[:count]
    del waiting[:count]
    return share


def main(number: str, path: str, node: str) -> None:
    """Answer calls until the parent hangs up."""
    end_with_parent()
    with socket.socket(fileno=int(number)) as line:
        try:
            db = to_its_end(SqliteDb.open(path, locked=True))
        except HomingError as error:
            line.sendall(write_error(error))
            return
        calls, child = _Calls(line), _Child(db, int(node))
        gc.freeze()  # What is there stays; rows are plain values, which make no garbage.
        gc.set_threshold(50_000, 20, 50)
        with contextlib.suppress(ConnectionError):  # The parent was killed.
            waiting: list[Call] = []
            share: list[Call] = []
            while calls.add_to(waiting):
                share = take_share(waiting, share)
                line.sendall(b"".join(child.answers(share)))
        to_its_end(db.close())


if __name__ == "__main__":
    main(*sys.argv[1:])
