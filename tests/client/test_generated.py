"""What is generated in the client is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize("tool", ["generate_sync_client.py", "generate_client_subscription.py"])
def test_the_generated_client_is_up_to_date(tool: str) -> None:
    ran = subprocess.run(
        [sys.executable, TOOLS / tool, "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
