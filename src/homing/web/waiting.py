"""The responses of a server that waits for its database: alive, not ready, retry soon."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from homing.errors import StoreUnavailable
from homing.web.problems import problem_response
from homing.web.response import json_response, send_response
from homing.web.schemas import Well

ALIVE_PATH = "/healthz"
_ALIVE = json_response(Well(True))
_NOT_YET = problem_response(
    StoreUnavailable("The database does not respond yet; the server waits for it.")
)


async def waiting(scope: Scope, _receive: Receive, send: Send) -> None:
    """An ASGI application without an engine."""
    if scope["type"] == "http":
        await send_response(send, _ALIVE if scope["path"] == ALIVE_PATH else _NOT_YET)
