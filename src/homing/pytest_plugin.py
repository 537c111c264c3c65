"""The pytest fixture ``homing_server``: a real server in memory, with a clock that a test moves.

Pytest finds it by its entry point. The server is imported by the first test that uses it, so that
other tests do not start more slowly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from homing.testing import HomingServer


@pytest.fixture
def homing_server() -> Iterator[HomingServer]:
    """A server of the test's own, with ``url``, ``key``, ``client`` and ``clock``."""
    from homing.testing import running_server

    with running_server() as server:
        yield server
