"""The chaos runs in short, each with a broken build that it must find; ``make chaos`` is long."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from chaos.broken import build
from chaos.errors import sweep
from chaos.filling import fill_again_and_again
from chaos.orphaning import kill_the_writer
from chaos.power import cut_everywhere
from chaos.repeating import publish_the_same
from chaos.syscalls import kill_at_every_call
from chaos.upgrading import upgrade_over_kills


@pytest.mark.long
async def test_a_power_cut_at_any_point_loses_nothing_acknowledged_and_leaves_nothing_half() -> (
    None
):
    toll = await cut_everywhere(steps=25, seed=1, every=12, again=0.15)
    print(toll)
    assert not toll.first
    assert toll.cuts > 200
    assert toll.unsynced > 100
    assert toll.twice > 10
    assert toll.kept > 0  # An unacknowledged commit may be there, whole.


@pytest.mark.parametrize("synchronous", ["normal", "off"])
async def test_a_build_that_syncs_less_is_found(synchronous: str) -> None:
    toll = await cut_everywhere(steps=12, seed=1, every=6, synchronous=synchronous, until_lost=True)
    print(toll)
    assert toll.lost > 0


@pytest.mark.long
async def test_a_disk_that_fails_at_any_operation_costs_nothing_but_time() -> None:
    toll = await sweep(steps=10, seed=2, every=11)
    print(toll)
    assert not toll.first
    assert toll.fired == toll.runs > 50
    assert toll.refused > 100


async def test_a_build_that_takes_a_failed_commit_for_a_commit_is_found() -> None:
    toll = await sweep(steps=4, seed=2, every=25, careless=True)
    print(toll)
    assert toll.lost > 0


@pytest.mark.long
async def test_one_id_published_by_many_at_once_over_kills_is_one_event(tmp_path: Path) -> None:
    toll = await publish_the_same(tmp_path, ids=3, copies=100, kills=2, seed=3)
    print(toll)
    assert toll.bad == 0
    assert toll.fired_enough
    assert (toll.events_per_id_most, toll.publishes) == (1, 300)
    assert toll.repeated > 0


async def test_a_build_that_forgets_ids_is_found(tmp_path: Path) -> None:
    broken = build("forgets_ids")
    toll = await publish_the_same(tmp_path, ids=2, copies=50, kills=0, seed=3, argv=broken)
    print(toll)
    assert toll.doubled > 0


async def test_a_writer_killed_alone_loses_nothing_and_sends_nothing_twice(tmp_path: Path) -> None:
    toll = await kill_the_writer(tmp_path, kills=3, seed=4)
    print(toll)
    assert toll.bad == 0
    assert toll.fired_enough


async def test_a_disk_that_fills_up_and_has_space_again_needs_no_restart(tmp_path: Path) -> None:
    toll = await fill_again_and_again(tmp_path, rounds=1)
    print(toll)
    assert toll.bad == 0
    assert toll.refused > 0


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
async def test_a_kill_at_a_write_a_sync_a_send_or_a_connect_loses_nothing(tmp_path: Path) -> None:
    toll = await kill_at_every_call(tmp_path, events=10, seed=5, most=2)
    print(toll)
    assert toll.bad == 0, toll.first
    assert toll.fired > 0


@pytest.mark.long
async def test_an_old_database_is_upgraded_over_a_kill_at_every_statement(tmp_path: Path) -> None:
    toll = await upgrade_over_kills("sqlite", tmp_path, rows=20_000)
    print(toll)
    assert toll.bad == 0
    assert toll.fired_enough


async def test_a_build_that_commits_each_statement_alone_is_found(tmp_path: Path) -> None:
    toll = await upgrade_over_kills("sqlite", tmp_path, rows=100, torn=True)
    assert toll.stuck == 1
