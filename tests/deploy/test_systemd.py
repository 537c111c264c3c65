"""The systemd units: systemd itself reads them and rates the sandbox of the service."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from deploy.programs import DEPLOY, needs, output_of

UNIT = DEPLOY / "systemd" / "homing.service"
SOCKET = DEPLOY / "systemd" / "homing.socket"
EXPOSURE_MAX = 1.5  # of 10; systemd calls less than 2 "OK"


@needs("systemd-analyze")
def test_systemd_reads_every_line(tmp_path: Path) -> None:
    unit, socket = tmp_path / UNIT.name, tmp_path / SOCKET.name
    unit.write_text(UNIT.read_text().replace("/opt/homing/bin/homing", sys.executable))
    socket.write_text(SOCKET.read_text())
    said = output_of("systemd-analyze", "verify", "--man=no", unit, socket)
    assert "homing" not in said


@needs("systemd-analyze")
def test_the_sandbox_leaves_little_exposed() -> None:
    said = output_of("systemd-analyze", "security", "--offline=true", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for homing.service: ([0-9.]+)", said)
    assert found is not None
    print(f"systemd-analyze security: {found.group(1)} of 10")
    assert float(found.group(1)) <= EXPOSURE_MAX


def test_a_stop_has_more_time_than_the_default_grace_period() -> None:
    from homing.server.settings import DeliverySettings

    found = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    assert int(found.group(1)) * 1000 > DeliverySettings().grace_ms + 5_000
