"""The command line: the admin key, one clear line for what is wrong, and log lines."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from homing.cli.logs import configure_logs, console_line
from homing.errors import BadSetting
from homing.server.admin_key import admin_key
from homing.server.settings import Settings


def run(
    *arguments: str, cwd: Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}
    return subprocess.run(
        [sys.executable, "-m", "homing.cli.main", *arguments],
        cwd=cwd,
        env={**kept, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# --- the admin key --------------------------------------------------------------------------


def test_the_key_is_made_once_and_kept_for_its_owner_only(tmp_path: Path) -> None:
    settings = Settings.of(data=str(tmp_path / "new" / "data"))
    first = admin_key(settings)
    assert first.created
    assert first.value.startswith("hk_")
    assert len(first.value) > 40
    assert first.path is not None
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert first.path.parent.stat().st_mode & 0o777 == 0o700
    assert list(first.path.parent.iterdir()) == [first.path]
    again = admin_key(settings)
    assert (again.value, again.created) == (first.value, False)
    assert first.value not in repr(first)


def test_a_wider_mode_is_mended_with_a_warning(tmp_path: Path) -> None:
    settings = Settings.of(data=str(tmp_path))
    path = tmp_path / "admin.key"
    path.write_text("hk_a-key-of-some-length\n")
    path.chmod(0o644)
    with structlog.testing.capture_logs() as logs:
        assert admin_key(settings).value == "hk_a-key-of-some-length"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(one["log_level"], one["was"]) for one in logs] == [("warning", "0644")]


def test_a_key_that_is_set_is_taken_and_nothing_is_written(tmp_path: Path) -> None:
    key = admin_key(Settings.of(data=str(tmp_path / "none"), admin_key="a-key-of-some-length"))
    assert (key.value, key.path, key.created) == ("a-key-of-some-length", None, False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_filled_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    settings = Settings.of(data=str(tmp_path))
    (tmp_path / "admin.key").write_text("")
    assert admin_key(settings).created
    (tmp_path / "admin.key").write_text("two words")
    with pytest.raises(BadSetting, match="is damaged"):
        admin_key(settings)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("hk_a-key-of-some-length")
    (tmp_path / "admin.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadSetting, match="cannot be used"):
        admin_key(Settings.of(data=str(tmp_path)))


# --- the command ----------------------------------------------------------------------------


def test_the_version_is_shown(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout.startswith("homing 0.")


@pytest.mark.parametrize(
    ("arguments", "environ", "told"),
    [
        (("--fresh-slots", "0"), {}, "fresh_slots = '0' (from --fresh-slots)"),
        (("--listen", "nowhere"), {}, "listen = 'nowhere' (from --listen)"),
        ((), {"HOMING_COLOUR": "red"}, "HOMING_COLOUR (from the environment)"),
        (("--config", "none.toml"), {}, "The file none.toml is not there."),
        (("--data", "/dev/null/x"), {}, "/dev/null/x/admin.key cannot be used"),
    ],
)
def test_a_wrong_setting_is_one_clear_line_and_exit_code_2(
    arguments: tuple[str, ...], environ: dict[str, str], told: str, tmp_path: Path
) -> None:
    done = run("serve", *arguments, cwd=tmp_path, environ=environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("homing: ")
    assert told in done.stderr


# --- logs -----------------------------------------------------------------------------------


@pytest.fixture
def _quiet_after() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.usefixtures("_quiet_after")
def test_a_json_record_is_one_line_also_with_an_exception(
    capfd: pytest.CaptureFixture[str],
) -> None:
    configure_logs(level="info", form="json")
    log = structlog.get_logger("test")
    log.debug("not this")
    try:
        int("two\nlines")
    except ValueError:
        log.exception("it\nfailed", value="\x1b[31m")
    logging.getLogger("library").warning("by %s", "others")
    first, second = capfd.readouterr().err.splitlines()
    record = json.loads(first)
    assert (record["event"], record["level"]) == ("it\nfailed", "error")
    assert "ValueError" in record["exception"]
    assert json.loads(second)["event"] == "by others"


@pytest.mark.usefixtures("_quiet_after")
def test_a_console_record_is_one_line_and_cannot_steer_a_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    configure_logs(level="debug", form="console")
    structlog.get_logger("test").info("made\nup", url="https://a.example/?x=\x1b]0;", n=1)
    (line,) = capfd.readouterr().err.splitlines()
    assert "\x1b" not in line
    assert "made\\nup" in line
    assert line.endswith("n=1")


def test_values_are_quoted_where_they_must_be() -> None:
    record = {"time": "T", "level": "info", "event": "e", "a": "b c", "d": "", "f": 'g"h'}
    assert console_line(None, "info", record) == r'T info    e a="b c" d="" f="g\"h"'
