"""Every command of the pages is run: blocks of ``sh``, in order, as a reader types them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.terminal import Terminal
from net.receiver import a_free_port

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


class Reader:
    """Follows a page: what goes on has a terminal of its own, the rest is typed and must end."""

    def __init__(self, place: Path) -> None:
        bin_first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.terminal = Terminal(place, more={"PATH": bin_first})
        self._port = str(a_free_port())
        self._listening: subprocess.Popen[str] | None = None
        self.stack = contextlib.ExitStack()
        self.said = ""

    def follow(self, page: str) -> None:
        for block in blocks(page):
            script = block.replace("127.0.0.1:9000", f"127.0.0.1:{self._port}")
            script = script.replace("--port 9000", f"--port {self._port}")
            script = script.replace('("127.0.0.1", 9000)', f'("127.0.0.1", {self._port})')
            script = script.replace("127.0.0.1:8700", f"127.0.0.1:{self.terminal.port}")
            if script.startswith("homing serve"):
                self._go_on(script)
            elif script.startswith(("homing listen", "python3 receiver.py")):
                self._stop_listening()
                self._listening = self._go_on(script)
            else:
                self._type(script)

    def _go_on(self, script: str) -> subprocess.Popen[str]:
        process = self.terminal.start(["bash", "-euc", f"exec {script}"])
        self.stack.callback(self._stop, process)
        assert process.stdout is not None
        for line in process.stdout:
            if "serves" in line or "Ctrl-C ends it" in line:
                return process
        raise AssertionError(script)

    def _type(self, script: str) -> None:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.terminal.place,
            env=self.terminal.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        self.said += ran.stdout + ran.stderr

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._stop(self._listening)
            self._listening = None

    def _stop(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            # Where a shell runs us in its background, a plain program ignores SIGINT.
            ours = "homing" in str(process.args)
            process.send_signal(signal.SIGINT if ours else signal.SIGTERM)
            process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("page", "told"),
    [
        pytest.param(
            "tutorial/your-first-delivery.md",
            (
                "Published invoice-17-paid: it goes to 1 subscription.",
                "invoice-17-paid was published before: nothing new is sent.",
                "its first attempt succeeded",
                "Waiting: 1 attempt so far, without success; retry 1 of 11 is due at",
                "✗ 503",
                "No errors found.",
            ),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "tutorial/transactional-outbox.md",
            (
                "The outbox is installed.",
                "paid 17: published",
                "paid 18: undone",
                "1 row waiting",
                "Published 1 row; 0 refused.",
                "Django paid 19",
                "No rows are waiting.",
                "invoice.paid",
            ),
            marks=pytest.mark.long,
        ),
        (
            "howto/back-up-and-restore.md",
            ("Backed up homing-data/homing.db to homing-backup.db", "to restored/homing.db"),
        ),
        pytest.param(
            "howto/pause-deliveries-during-maintenance.md",
            (
                "Paused: the deliveries of sub_",
                "Waiting: its subscription has been paused since",
                "Resumed: the deliveries of sub_",
                "by a person; nothing is attempted until a person enables it",
                "Enabled (was frozen)",
                "0 deliveries would be replayed",
            ),
            marks=pytest.mark.long,
        ),
        (
            "howto/deliver-past-events-to-a-new-subscription.md",
            (
                "delivers 1 past event.",
                "1 past event would be delivered.",
                "Deliveries made: 1.",
            ),
        ),
        pytest.param(
            "howto/use-a-client-certificate.md",
            ('"status":"delivered"', "'subject': 'CN=homing', 'issuer': 'CN=my authority'"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "howto/develop-a-workfront-integration.md",
            (
                '"version":"v2"}',
                "Adobe cannot filter DOCU by groups",
                '"objCode":"PROJ"',
                "Published 3 events",
                "Published launch-1: it goes to 1 subscription.",
                "Published launch-2: no subscription with a URL matches it.",
                'newState.status equals "CUR"',
                'status has changed: yes, it was "CUR" and is "DED"',
                "Published 150 events: 150 deliveries.",
                '"disabled_at":"20',
                '"disabled_at":null',
                "Down for the weekend",
            ),
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_commands_of_a_page_do_what_it_says(
    page: str, told: tuple[str, ...], tmp_path: Path
) -> None:
    reader = Reader(tmp_path)
    with reader.stack:
        if not page.startswith("tutorial"):
            reader.stack.enter_context(reader.terminal.serving())
        reader.follow(page)
    for sentence in told:
        assert sentence in reader.said
