"""The file of the encryption key: made once, for its owner only, and never replaced in silence."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

import pytest

from homing.cli.doctor_checks import CheckStatus, check_machine
from homing.errors import BadSetting
from homing.policy.encryption_keys import key_id
from homing.server.database import open_stores
from homing.server.encryption_key import keys_of
from homing.server.settings import ENCRYPTION_KEY_FILE, Settings, load_settings

KEYS = [b64encode(bytes([fill]) * 32).decode() for fill in (1, 2)]


def settings_at(place: Path, **more: str) -> Settings:
    return Settings.of(data=str(place), writer="inline", **more)


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    settings = settings_at(tmp_path / "data")
    first = keys_of(settings)
    file = tmp_path / "data" / ENCRYPTION_KEY_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert keys_of(settings).ids == first.ids
    assert [path.name for path in file.parent.iterdir()] == [ENCRYPTION_KEY_FILE]
    assert keys_of(settings_at(tmp_path / "other")).ids != first.ids


def test_a_mode_that_lets_others_read_is_mended(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    ids = keys_of(settings).ids
    (tmp_path / ENCRYPTION_KEY_FILE).chmod(0o644)
    assert keys_of(settings).ids == ids
    assert (tmp_path / ENCRYPTION_KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_damaged_key_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / ENCRYPTION_KEY_FILE
    file.write_text("damaged\n")
    with pytest.raises(BadSetting, match="damaged") as caught:
        keys_of(settings_at(tmp_path))
    assert file.read_text() == "damaged\n"
    assert "Put back" in str(caught.value)


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(KEYS[0])
    os.symlink(tmp_path / "elsewhere", tmp_path / ENCRYPTION_KEY_FILE)
    with pytest.raises(BadSetting, match="cannot be used"):
        keys_of(settings_at(tmp_path))


def test_a_set_key_is_used_and_never_repeated(tmp_path: Path) -> None:
    key_ring = keys_of(settings_at(tmp_path, secret_key=",".join(KEYS)))
    assert key_ring.ids == (key_id(bytes([1]) * 32), key_id(bytes([2]) * 32))
    assert not (tmp_path / ENCRYPTION_KEY_FILE).exists()
    with pytest.raises(BadSetting) as caught:
        load_settings({}, config=None, environ={"HOMING_SECRET_KEY": KEYS[0][:-4]})
    assert KEYS[0][:-4] not in str(caught.value)
    assert "base64 of 32 bytes" in str(caught.value)


async def test_a_database_with_other_keys_stops_the_start(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    await (await open_stores(settings)).close()
    kept = (tmp_path / ENCRYPTION_KEY_FILE).read_text()
    (tmp_path / ENCRYPTION_KEY_FILE).unlink()
    with pytest.raises(BadSetting, match="encrypted with the key") as caught:
        await open_stores(settings)
    assert kept.strip() not in str(caught.value)
    assert not (tmp_path / ENCRYPTION_KEY_FILE).exists()  # What was made for nothing is not left.
    (tmp_path / ENCRYPTION_KEY_FILE).write_text(
        f"{KEYS[0]}\n{kept}"
    )  # a new one first, the old one after
    await (await open_stores(settings)).close()
    (tmp_path / ENCRYPTION_KEY_FILE).write_text(KEYS[0])
    await (await open_stores(settings)).close()


def test_the_doctor_looks_at_the_key(tmp_path: Path) -> None:
    settings = settings_at(tmp_path / "data")

    def status() -> CheckStatus:
        (check,) = [one for one in check_machine(settings) if one.name == "encryption"]
        return check.status

    assert status() is CheckStatus.UNKNOWN
    keys_of(settings)
    assert status() is CheckStatus.OK
    file = tmp_path / "data" / ENCRYPTION_KEY_FILE
    file.chmod(0o640)
    assert status() is CheckStatus.ERROR
    file.chmod(0o600)
    file.write_text("?")
    assert status() is CheckStatus.ERROR
    file.unlink()
    (tmp_path / "data" / "homing.db").touch()
    (check,) = [one for one in check_machine(settings) if one.name == "encryption"]
    assert check.status is CheckStatus.WARNING
