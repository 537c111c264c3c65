"""``kill -9`` while endpoints change: each transition has exactly one record for each target."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acceptance.notice_killing import kill_with_notices
from chaos.broken import build


@pytest.mark.long
def test_a_few_kills_leave_one_record_for_each_transition_and_target(tmp_path: Path) -> None:
    toll = asyncio.run(kill_with_notices(tmp_path, kills=4))
    print(toll)
    assert toll.kills == 4
    assert toll.transitions >= 4  # at least one before each kill
    assert toll.records == 3 * toll.transitions
    assert toll.bad == 0, toll


@pytest.mark.long
def test_a_build_that_writes_records_after_the_commit_is_found(tmp_path: Path) -> None:
    toll = asyncio.run(kill_with_notices(tmp_path, kills=3, argv=build("reports_later")))
    print(toll)
    assert toll.missing > 0
