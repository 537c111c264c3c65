"""Imports structlog without rich, which it would import for a renderer that no command uses.

Rich and what comes with it are a quarter of all that ``homing serve`` would import.
"""

from __future__ import annotations

import sys
from typing import cast


def import_structlog_alone() -> None:
    """Call this before anything imports structlog; a process that has rich already keeps it."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    modules = cast("dict[str, object]", sys.modules)
    modules["rich"] = None  # An import of it fails.
    try:
        import structlog  # noqa: F401
    finally:
        del modules["rich"]
