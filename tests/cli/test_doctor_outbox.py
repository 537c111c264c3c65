"""``homing doctor`` looks at the outbox of an application, where one is set."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from homing.cli.doctor_checks import CheckStatus, check_outbox
from homing.server.settings import Settings
from homing.store.outbox import install_sqlite
from homing_client import outbox


def _settings(tmp_path: Path) -> Settings:
    return Settings.of(outbox_url=f"sqlite:{tmp_path / 'shop.db'}")


def test_without_an_outbox_there_is_nothing_to_look_at() -> None:
    assert check_outbox(Settings()) == []


def test_an_outbox_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    (check,) = check_outbox(_settings(tmp_path))

    assert check.status is CheckStatus.ERROR
    assert "homing outbox install" in check.advice


def test_rows_that_wait_are_counted_and_late_ones_are_worth_a_look(tmp_path: Path) -> None:
    install_sqlite(tmp_path / "shop.db")
    (check,) = check_outbox(_settings(tmp_path))
    assert (check.status, check.sentence) == (CheckStatus.OK, "No rows are waiting.")

    with sqlite3.connect(tmp_path / "shop.db") as shop:
        outbox.publish(shop, "invoice.paid", {"id": 7})
    shop.close()
    (check,) = check_outbox(_settings(tmp_path))
    assert check.status is CheckStatus.OK
    assert check.sentence.startswith("1 row waiting, the oldest for ")

    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("UPDATE homing_outbox SET created_at = created_at - 3600000")
    shop.close()
    (check,) = check_outbox(_settings(tmp_path))
    assert check.status is CheckStatus.WARNING
    assert "no relay publishes them" in check.sentence


def test_a_table_from_before_keys_is_worth_a_look_until_it_is_upgraded(tmp_path: Path) -> None:
    before = Path(__file__).parents[1] / "outbox/before_keys/install.sqlite.sql"
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.executescript(before.read_text())
    shop.close()
    (check,) = check_outbox(_settings(tmp_path))
    assert check.status is CheckStatus.WARNING
    assert "no column for the keys" in check.sentence
    assert "homing outbox install" in check.advice

    install_sqlite(tmp_path / "shop.db")
    (check,) = check_outbox(_settings(tmp_path))
    assert check.status is CheckStatus.OK
