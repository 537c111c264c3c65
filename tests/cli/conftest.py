"""One server for the tests of a file: starting one takes as long as several commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.terminal import Terminal


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal in a directory where a server is at work."""
    terminal = Terminal(tmp_path_factory.mktemp("town"))
    with terminal.serving():
        yield terminal
