"""Every test of the network runs on plain asyncio and on uvloop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from homing.net.sender import HttpSender, SenderOptions
from homing.policy.reach import Reach


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def sender(anyio_backend: Any) -> AsyncIterator[HttpSender]:
    sender = HttpSender(SenderOptions(reach=Reach(loopback=True)))
    yield sender
    await sender.close()
