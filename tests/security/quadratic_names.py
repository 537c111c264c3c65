"""A deliberately broken build: every name of a JSON object is compared with all others."""

from __future__ import annotations

from typing import Any

import security.watched_loop  # noqa: F401 - it watches the loop from its import on
from homing.cli.main import main
from homing.web import body


def _compared_with_all(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    for name in names:
        names.count(name)


body._once = _compared_with_all

if __name__ == "__main__":
    main()
