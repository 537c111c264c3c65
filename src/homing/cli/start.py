"""The entry point of ``homing``: Ctrl-C ends it quietly even while modules are imported."""

from __future__ import annotations

import sys


def main() -> None:
    """The ``homing`` command."""
    try:
        from homing.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
