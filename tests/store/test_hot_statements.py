"""Every hot statement names its bucket: it can be sent to one partition, cell or shard."""

from __future__ import annotations

import re

import pytest

from homing.store.statements import statements
from homing.store.tx import Dialect

HOT = (
    "due_heads", "works", "probe_first", "probe_next", "probe_take", "expired_scan",
    "expired_rows", "endpoint_start", "endpoint_settle", "pending_finish",
    "bucket_walk", "recent_work", "lease_fence",
)  # fmt: skip


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_names_its_bucket(name: str, dialect: Dialect) -> None:
    text = statements(dialect)[name].text
    assert re.search(r"\bbucket\b\s*(=|IN\b)", text), text
