"""The Python of the documents, taken out of their pages to be run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[str]:
    """The blocks of a page, each with as many empty lines before it as make its lines right."""
    text = (HOWTO / page).read_text()
    found = list(_BLOCK.finditer(text))
    assert found, page
    return ["\n" * text.count("\n", 0, one.start(1)) + one.group(1) for one in found]


def run(code: str, page: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The names that a block leaves behind."""
    names = {"__name__": "recipe"} if names is None else names
    exec(compile(code, str(HOWTO / page), "exec"), names)
    return names
