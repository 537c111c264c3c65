"""A short run of schemathesis over every operation; the long one is in ``make security``."""

from __future__ import annotations

from homing.testing import KEY, running_server
from security.fuzzing import EVERY, fuzz


def test_no_operation_responds_with_a_5xx_or_with_what_is_not_written_down() -> None:
    with running_server() as server:
        tally = fuzz(server.url, KEY, examples=1, number=1)
    assert tally.wrong == []
    assert set(tally.operations) == {f"{one.method} {one.path}" for one in EVERY}
