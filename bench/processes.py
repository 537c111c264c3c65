"""The processes of a bench: each is started here, spoken to here, and ended here by its id."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import letter

ROOT = Path(__file__).resolve().parent.parent
KEY = "hk_bench-admin-key"
SEAL = "aG9taW5nIGFjY2VwdGFuY2UgdGVzdCBzZWFsIGtleSE="
STUCK_S = 60.0  # without any progress
POLL_S = 0.02
SETTLED_POLL_S = 0.005
_SESSION = 3  # where /proc/…/stat has it, after the name
ALL_BUCKETS = 256


class BenchFailed(Exception):
    """A part could not be measured."""


class Child:
    """A process of ours; leaving the block ends it, however the block is left."""

    def __init__(self, *argv: str, environ: dict[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self.process = subprocess.Popen(
            [sys.executable, *argv],
            cwd=ROOT,
            env={**_environ(), **(environ or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for us; we end them in order.
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """End it, gently first."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def read(self) -> str:
        """Its next line; BenchFailed with what it complained of if there is none."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        if not line:
            self.process.wait(20)
            self._log.seek(0)
            complaint = self._log.read()[-2000:].decode(errors="replace")
            raise BenchFailed(f"{self.process.args!r} ended:\n{complaint}")
        return line

    def response(self) -> dict[str, Any]:
        """Its next line, which is JSON."""
        document: dict[str, Any] = json.loads(self.read())
        return document

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}


def _ask(port: int, method: str, path: str, document: Any = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body, {"authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status >= 300:
        raise BenchFailed(f"{method} {path}: {response.status} {content[:400]!r}")
    return content


class Receiver(Child):
    """Counts what arrives."""

    def __init__(self) -> None:
        super().__init__("-m", "bench.receiver")
        self.port = int(self.read())

    def count(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(_ask(self.port, "GET", "/count"))
        return document

    def reset(self) -> None:
        _ask(self.port, "GET", "/reset")

    def lags_ms(self) -> list[float]:
        lags: list[float] = json.loads(_ask(self.port, "GET", "/lag"))
        return lags

    def wait_for(self, distinct: int) -> dict[str, Any]:
        """Until so many different ids have come."""
        seen, moved_at = -1, time.monotonic()
        while True:
            found = self.count()
            if found["distinct"] >= distinct:
                return found
            if found["distinct"] != seen:
                seen, moved_at = found["distinct"], time.monotonic()
            elif time.monotonic() - moved_at > STUCK_S:
                raise BenchFailed(f"only {seen:,} of {distinct:,} arrived")
            time.sleep(POLL_S)


class Server(Child):
    """``homing serve`` on a port of its own choice."""

    def __init__(
        self,
        data: Path,
        *,
        database_url: str = "",
        writer: str = "process",
        processes: int = 1,
        search_fields: tuple[str, ...] = (),
        collector: str = "",
        environ: dict[str, str] | None = None,
        argv: tuple[str, ...] = ("homing.cli.main",),
    ) -> None:
        super().__init__(
            *("-m", *argv, "serve", "--data", str(data)),
            *("--listen", "127.0.0.1:0", "--allow-loopback"),
            environ={
                "HOMING_ADMIN_KEY": KEY,
                "HOMING_DATABASE_URL": database_url,
                "HOMING_WRITER": writer,
                "HOMING_PROCESSES": str(processes),
                "HOMING_SEARCH_FIELDS": ",".join(search_fields),
                "HOMING_OTEL_ENDPOINT": collector,
                "HOMING_SECRET_KEY": SEAL,  # shared by all on one database
                **(environ or {}),
            },
        )
        self.port = int(self.read().rpartition(":")[2])

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        return json.loads(_ask(self.port, method, path, document))

    def subscribe(
        self, receiver: Receiver, *, tenant: str = letter.TENANT, order: str = "none"
    ) -> None:
        """The 50 URLs, each with a type of its own."""
        for number in range(letter.URLS):
            document = letter.subscription(receiver.port, number, tenant=tenant, order=order)
            self.ask("POST", "/v1/subscriptions", document)

    def describe_types(self) -> None:
        """Every type with a schema, which each of its events must match."""
        for number in range(letter.URLS):
            self.ask("POST", "/v1/event-types", letter.described_type(number))

    def subscribe_to_all(self, receiver: Receiver) -> None:
        """100 URLs, each for every event."""
        for number in range(letter.FAN_OUT):
            document = letter.subscription_to_all(receiver.port, number)
            self.ask("POST", "/v1/subscriptions", document)

    def subscribe_without_url(self) -> str:
        """A subscription that is read, to every event; its id."""
        made = self.ask("POST", "/v1/subscriptions", {"types": ["*"], "tenant": letter.TENANT})
        return str(made["id"])

    def pending(self, tenant: str = "default") -> int:
        items = self.ask("GET", f"/v1/ledger?tenant={tenant}")["items"]
        return sum(item["pending"] for item in items)

    def wait_until_settled(self, tenant: str = "default") -> float:
        """Until nothing is pending; when that was."""
        give_up_at = time.monotonic() + STUCK_S
        while self.pending(tenant):
            if time.monotonic() > give_up_at:
                raise BenchFailed("what arrived was not settled")
            time.sleep(SETTLED_POLL_S)
        return time.monotonic()

    def pids(self) -> list[int]:
        """Its processes, itself first: those of the session that it leads."""
        mine = self.process.pid
        others = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # It has ended meanwhile.
                if int(_stat(stat)[_SESSION]) == mine and stat.parent.name != str(mine):
                    others.append(int(stat.parent.name))
        return [mine, *sorted(others)]

    def rss_mb(self) -> float:
        """The resident memory of all its processes."""
        found = subprocess.run(
            ["ps", "-o", "rss=", "-p", ",".join(map(str, self.pids()))],  # noqa: S607
            capture_output=True,
            check=True,
        )
        return sum(map(int, found.stdout.split())) / 1024

    def forget_peak(self) -> None:
        """``peak_mb`` counts from now on."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_mb(self) -> float:
        """The most resident memory that each of its processes has had, together."""
        found = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/status").read_text()
                found += int(text.partition("VmHWM:")[2].split(maxsplit=1)[0])
        return found / 1024 or self.rss_mb()

    def commits(self) -> dict[str, int]:
        """How many there have been, by kind."""
        text = _ask(self.port, "GET", "/metrics").decode()
        found = re.findall(r'^homing_commits_total{kind="(\w+)".*} (\S+)$', text, re.MULTILINE)
        kinds = {kind for kind, _ in found}  # Each process has counts of its own.
        return {it: sum(int(float(count)) for kind, count in found if kind == it) for it in kinds}

    def wait_for_processes(self, count: int) -> None:
        """Until so many share the work."""
        give_up_at = time.monotonic() + STUCK_S
        while True:
            text = _ask(self.port, "GET", "/metrics").decode()
            owned = re.findall(r"^homing_buckets(?:{.*})? (\S+)$", text, re.MULTILINE)
            shares = [int(float(it)) for it in owned]
            if len(shares) == count and min(shares) > 0 and sum(shares) == ALL_BUCKETS:
                return
            if time.monotonic() > give_up_at:
                raise BenchFailed(f"{count} processes do not share the work: {shares}")
            time.sleep(POLL_S)

    def cpu_s(self) -> float:
        """The processor time that all its processes have used."""
        return sum(self.cpu_s_each().values())

    def cpu_s_each(self) -> dict[int, float]:
        """The processor time that each of its processes has used, by its id."""
        return {pid: _process_cpu_s(pid) for pid in self.pids()}


def _stat(path: Path) -> list[str]:
    return path.read_text().rpartition(")")[2].split()


def _process_cpu_s(pid: int) -> float:
    """From the clock that Linux has for each process; /proc counts in hundredths of a second."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0  # It has ended, or this is no Linux.


class Publisher(Child):
    """Publishes to a server."""

    def __init__(
        self,
        server: Server,
        run: str,
        *,
        tenant: str = letter.TENANT,
        body_bytes: int = letter.BODY_BYTES,
        objects: int = 0,
    ) -> None:
        argv = (str(server.port), KEY, run, tenant, str(body_bytes), str(objects))
        super().__init__("-m", "bench.publisher", *argv)


def send_without_server(name: str, receiver: Receiver, count: int) -> dict[str, Any]:
    """Run one of ``bench.post``'s senders to its end."""
    with Child("-m", "bench.post", name, str(receiver.port), str(count)) as sender:
        return sender.response()


def read_events(server: Server, subscription: str) -> dict[str, Any]:
    """Read all events of a subscription without a URL with ``bench.reader``."""
    with Child("-m", "bench.reader", str(server.port), KEY, subscription) as reader:
        return reader.response()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for databases, on a disk: /tmp is often memory, /var/tmp never."""
    parent = Path("/var/tmp")
    with tempfile.TemporaryDirectory(
        prefix="homing-bench-", dir=parent if parent.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)
