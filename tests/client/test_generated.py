"""The blocking client is what the generator makes of the asynchronous one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).parents[2] / "tools" / "generate_sync_client.py"


def test_the_generated_client_is_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, GENERATOR, "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
