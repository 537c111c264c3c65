"""The responses of a server that waits for its database: alive, but not ready."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from homing.errors import StoreUnavailable
from homing.web.problems import problem_response
from homing.web.response import json_response, send_response
from homing.web.schemas import Well

ALIVE_PATH = "/healthz"
_ALIVE = json_response(Well(True))
_NOT_YET = problem_response(
    StoreUnavailable("The server is waiting for its database. Try again soon.")
)


async def waiting(scope: Scope, _receive: Receive, send: Send) -> None:
    """An ASGI application that refuses everything but the liveness check."""
    if scope["type"] == "http":
        await send_response(send, _ALIVE if scope["path"] == ALIVE_PATH else _NOT_YET)
