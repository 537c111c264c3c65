"""The SQLite writer process: commits do not share a GIL with the event loop.

apsw releases the GIL and takes it again with every statement; beside a busy event loop that takes
longer than the statement itself. So the server sends each call of a port to a worker process, which
runs it inline. Calls that wait together share one COMMIT, and get their replies after it; publishes
go first and wait only for the call that is running.

The server has the lock file, the worker has none. If the worker ends after it has committed a
settle batch and before it has replied, the next worker recognises the batch by its number.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from homing.errors import HomingError, StoreUnavailable
from homing.store.admin import Admin
from homing.store.audit import Audit
from homing.store.clock_marks import ClockMarks
from homing.store.encryption import EncryptionKeys
from homing.store.flow import Flow
from homing.store.keys import Keys
from homing.store.notices import Notices
from homing.store.portal import Portal
from homing.store.process.codec import START, Call, Frames, encode_error, encode_reply
from homing.store.process.worker import (
    RECEIVE_BYTES,
    WorkerProcess,
    begin_worker,
    encode_failure,
)
from homing.store.pull import Pulls
from homing.store.sqlite import Lock, SqliteDb
from homing.store.tx import run_sync

LARGE = {
    "settle",
    "due",
    "run_cleanup_job",
    "erase_events",
    "erase_rest_of_tenant",
    "empty_log",
    "remove_history",
    "remove_history_of",
    "forget_erased",
    "fold_rollups",
}  # methods that write many rows
SMALL_CALLS_MAX = 16  # other calls that share a COMMIT


class SqliteWriterProcess(WorkerProcess):
    """The server's side. Made by ``open``."""

    def __init__(self, path: Path, *, node: int) -> None:
        self._lock = Lock(Path(f"{path}.lock"))
        super().__init__("homing.store.process.sqlite_writer", str(path), node)

    @classmethod
    async def open(cls, path: Path, *, node: int) -> SqliteWriterProcess:
        """Lock the file and start the worker; raises DataInUse if another process has the file."""
        writer = cls(path, node=node)
        try:
            await writer.call("flow", "last_id")
        except BaseException:
            await writer.close()
            raise
        return writer

    async def close(self) -> None:
        """Let the worker finish its calls, checkpoint the log and end."""
        try:
            await super().close()
        finally:
            self._lock.release()


class RemoteStore:
    """A store port whose methods run in the writer process."""

    def __init__(self, writer: SqliteWriterProcess, port: str) -> None:
        self._writer, self._port = writer, port

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._writer.call(self._port, method, *args, **kwargs)

        setattr(self, method, call)  # The next call finds it directly.
        return call


# --- the worker's side ----------------------------------------------------------------------


class _Receiver:
    """Takes calls off the connection."""

    def __init__(self, connection: socket.socket, frames: Frames) -> None:
        self._socket, self._frames = connection, frames

    def add_to(self, waiting: list[Call]) -> bool:
        """Append the arrived calls; waits for one if none waits. False if the parent closed."""
        waiting += self._frames.calls()  # Some may have come with the worker's arguments.
        while True:
            data = self._available() if waiting else self._socket.recv(RECEIVE_BYTES)
            if not data and not waiting:
                return False
            while data:
                self._frames.add(data)
                data = self._available()
            waiting += self._frames.calls()
            if waiting:
                return True

    def _available(self) -> bytes:
        try:
            return self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""


class _Ports:
    """Runs calls on the database; calls given together share a COMMIT."""

    def __init__(self, db: SqliteDb, node: int) -> None:
        self._db, self._node = db, node
        self._ports = self._fresh_ports()

    def _fresh_ports(self) -> dict[str, Any]:
        return {
            "flow": Flow(self._db, node=self._node),
            "admin": Admin(self._db, node=self._node),
            "keys": Keys(self._db),
            "portal": Portal(self._db),
            "encryption": EncryptionKeys(self._db),
            "clock": ClockMarks(self._db),
            "notices": Notices(self._db, node=self._node),
            "audit": Audit(self._db),
            "pull": Pulls(self._db),
        }

    def run(self, calls: list[Call]) -> list[bytes]:
        """Run the calls, commit, and return their replies."""
        if len(calls) == 1:
            return [self._reply(calls[0], grouped=False)]
        try:
            return self._db.grouped(lambda: [self._reply(call, grouped=True) for call in calls])
        except StoreUnavailable as error:
            self._ports = self._fresh_ports()  # The old ones remember rolled back results.
            return [encode_error(call.number, error) for call in calls]
        except apsw.Error:  # A bug in one call: run each alone, so that the others succeed.
            self._ports = self._fresh_ports()
            return [self._reply(call, grouped=False) for call in calls]

    def _reply(self, call: Call, *, grouped: bool) -> bytes:
        try:
            method = getattr(self._ports[call.port], call.method)
            return encode_reply(call, run_sync(method(*call.args, **call.kwargs)))
        except Exception as error:
            if grouped and isinstance(error, apsw.Error):
                raise  # The whole group is rolled back.
            return encode_failure(call, error, driver_error=apsw.Error)


def _is_publish(call: Call) -> bool:
    return call.method == "publish"


def take_share(waiting: list[Call], before: list[Call]) -> list[Call]:
    """Take the calls of the next COMMIT off ``waiting``; ``before`` are those of the last one.

    Publishes go first, all of them. Of the rest some small calls share a commit, or one large call
    has its own. Commits of the two kinds alternate while both wait: a publish waits for one
    bounded commit, and publishers that never pause cannot keep outcomes from being written.
    """
    share = [call for call in waiting if _is_publish(call)]
    rest = len(waiting) - len(share)
    if share and not (rest and before and _is_publish(before[0])):
        waiting[:] = [call for call in waiting if not _is_publish(call)]
        return share
    if share:
        waiting.sort(key=_is_publish)
    first = enumerate(waiting[:SMALL_CALLS_MAX], 1)
    count = next((n for n, call in first if call.method in LARGE), 0)
    count = count or min(rest, SMALL_CALLS_MAX)
    share = waiting[:count]
    del waiting[:count]
    return share


def main(fd: str) -> None:
    """Run calls until the parent closes the connection."""
    connection, frames, (path, node) = begin_worker(fd)
    try:
        db = run_sync(SqliteDb.open(path, locked=True))
    except HomingError as error:
        connection.sendall(encode_error(START, error))
        return
    receiver, ports = _Receiver(connection, frames), _Ports(db, node)
    with contextlib.suppress(ConnectionError):  # The parent was killed.
        waiting: list[Call] = []
        share: list[Call] = []
        while receiver.add_to(waiting):
            share = take_share(waiting, share)
            connection.sendall(b"".join(ports.run(share)))
    run_sync(db.close())


if __name__ == "__main__":
    main(*sys.argv[1:])
