"""A directory with a server at work in it, and commands typed there as people type them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

from net.receiver import a_free_port

HOMING = (sys.executable, "-m", "homing.cli.main")
WITHIN_S = 60


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> dict[str, Any]:
        (line,) = self.lines
        return line


@dataclass
class Terminal:
    """Where commands are typed."""

    place: Path
    port: int = field(default_factory=a_free_port)
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if "HOMING_" not in name}
        return {**kept, "HOMING_LISTEN": f"127.0.0.1:{self.port}", "COLUMNS": "120", **self.more}

    def run(self, *arguments: str, given: str = "", **environ: str) -> Done:
        """Type it and wait for its end: the same ``main``, without the wait for a new process."""
        from homing.cli.main import main

        out, err = io.StringIO(), io.StringIO()
        code = 0
        with (
            contextlib.chdir(self.place),
            patch.dict(os.environ, {**self.environ, **environ}, clear=True),
            patch.object(sys, "argv", ["homing", *arguments]),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()))),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
        return Done(code, out.getvalue(), err.getvalue())

    def process(self, *arguments: str, given: str = "", **environ: str) -> Done:
        """The same as a process of its own."""
        ended = subprocess.run(
            [*HOMING, *arguments],
            cwd=self.place,
            env={**self.environ, **environ},
            input=given,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        return Done(ended.returncode, ended.stdout, ended.stderr)

    def well(self, *arguments: str, given: str = "") -> Done:
        """The same, and it must go well."""
        done = self.run(*arguments, given=given)
        assert done.code == 0, done.err
        return done

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.place,
            env=self.environ,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @contextlib.contextmanager
    def going(self, *arguments: str, end: signal.Signals | None = signal.SIGINT) -> Iterator[Going]:
        """A command that goes on until it is stopped, once it has said its first line."""
        process = self.start([*HOMING, *arguments])
        assert process.stdout is not None
        going = Going(process, process.stdout, process.stdout.readline())
        try:
            assert going.first, "it ended at once"
            yield going
        finally:
            if end is not None and process.poll() is None:
                process.send_signal(end)
            going.rest = process.stdout.read()
            going.code = process.wait(WITHIN_S)
            process.stdout.close()

    @contextlib.contextmanager
    def serving(self) -> Iterator[Going]:
        with self.going(
            "serve", "--allow-loopback", "--log-level", "error", end=signal.SIGTERM
        ) as server:
            yield server


@dataclass
class Going:
    """A command that goes on."""

    process: subprocess.Popen[str]
    stdout: IO[str]
    first: str
    rest: str = ""
    code: int | None = None

    def line(self) -> dict[str, Any]:
        """Its next line of JSON."""
        document: dict[str, Any] = json.loads(self.stdout.readline())
        return document
