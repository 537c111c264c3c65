"""What a server answers before its database is there: alive, not ready, and come back soon."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from homing.errors import StoreUnavailable
from homing.web.answer import json_answer, send_answer
from homing.web.problems import problem_answer
from homing.web.schemas import Well

ALIVE_PATH = "/healthz"
_ALIVE = json_answer(Well(True))
_NOT_YET = problem_answer(StoreUnavailable("The database does not answer yet; we wait for it."))


async def waiting(scope: Scope, _receive: Receive, send: Send) -> None:
    """An ASGI application without an engine."""
    if scope["type"] == "http":
        await send_answer(send, _ALIVE if scope["path"] == ALIVE_PATH else _NOT_YET)
