"""A Homing and a relay as real programs, for applications that publish in their transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cli.terminal import Going, Terminal
from homing_client import Homing

KEY = "hk_outbox-test-key-0123"


class House:
    """A running server, and what can be asked of it."""

    def __init__(self, terminal: Terminal, client: Homing) -> None:
        self.terminal, self.client = terminal, client

    def relay(self, address: str) -> str:
        """Everything that waits is relayed; what the program said."""
        done = self.terminal.run("relay", "--database", address, "--until-empty")
        assert done.code == 0, done.err
        return done.out

    @contextlib.contextmanager
    def relaying(self, address: str) -> Iterator[Going]:
        with self.terminal.going("relay", "--database", address) as going:
            yield going

    def events(self) -> dict[str, str]:
        """Type by id."""
        return {event.id: event.type for event in self.client.events()}


@contextlib.contextmanager
def house(place: Path, **more: str) -> Iterator[House]:
    terminal = Terminal(place, more={"HOMING_ADMIN_KEY": KEY, **more})
    with terminal.serving(), Homing(f"http://127.0.0.1:{terminal.port}", KEY) as client:
        yield House(terminal, client)
