"""A client that calls the ASGI app in process and checks every response against the table."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.types import ASGIApp, Message

from homing.web.operation import Operation
from homing.web.problems import Problem
from homing.web.routes import OPERATIONS
from homing.web.workfront.api import BASE
from homing.web.workfront.api import OPERATIONS as DOOR
from homing.web.workfront.schemas import WorkfrontProblem

KEY = "hk_a-key-for-tests-only"


@dataclass
class Got:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def problem(self) -> Problem:
        assert self.headers["content-type"] == "application/problem+json", self.body
        return msgspec.json.decode(self.body, type=Problem)

    @property
    def fields(self) -> list[str]:
        """The fields that a refusal names."""
        return [one.field for one in self.problem.problems]


class Client:
    """Calls the app, with the key unless told otherwise."""

    def __init__(self, app: ASGIApp, *, key: str | None = KEY, address: str | None = None) -> None:
        self.app, self.key = app, key
        self.client = None if address is None else (address, 1)

    async def get(self, path: str, **more: Any) -> Got:
        return await self.call("GET", path, **more)

    async def post(self, path: str, json: Any = None, **more: Any) -> Got:
        return await self.call("POST", path, json=json, **more)

    async def patch(self, path: str, json: Any, **more: Any) -> Got:
        return await self.call("PATCH", path, json=json, **more)

    async def delete(self, path: str, **more: Any) -> Got:
        return await self.call("DELETE", path, **more)

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        chunks: Sequence[bytes] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Got:
        if body is None:
            body = b"" if json is None else msgspec.json.encode(json)
        parts = [body] if chunks is None else list(chunks)
        asked, _, query = path.partition("?")
        lines = [(name.encode(), value.encode()) for name, value in headers]
        if chunks is None and body:
            lines.append((b"content-length", b"%d" % len(body)))
        if self.key is not None:
            lines.append((b"authorization", b"Bearer " + self.key.encode()))
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(asked),
            "query_string": query.encode(),
            "headers": lines,
            "client": self.client,
        }
        sent: list[Message] = []

        async def receive() -> Message:
            if not parts:  # The client waits for the rest of the response.
                await asyncio.get_running_loop().create_future()
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        got = _got(sent)
        check(method, asked, got)
        return got


def _got(sent: list[Message]) -> Got:
    start, *bodies = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    body = b"".join(message["body"] for message in bodies)
    if start["status"] != 204 and headers["content-type"] != "application/x-ndjson":  # streamed
        assert headers["content-length"] == str(len(body))
    return Got(start["status"], headers, body)


def check(method: str, path: str, got: Got) -> None:
    """The document must be exactly what the table promises for this status."""
    if got.status >= 400:
        assert got.problem.status == got.status
        foreign = path.startswith(BASE) and got.status != 405
        _exactly(got.body, WorkfrontProblem if foreign else Problem)
        return
    operation = find(method, path)
    if operation is None:
        return
    kinds = {operation.status: operation.response, **operation.also}
    assert got.status in kinds, f"{operation.id} does not promise {got.status}"
    kind = kinds[got.status]
    if kind is not None:
        assert got.headers["content-type"] == operation.response_type
        is_lines = operation.response_type == "application/x-ndjson"
        for document in got.body.splitlines() if is_lines else [got.body]:
            _exactly(document, kind)


def find(method: str, path: str) -> Operation | None:
    """The operation at this path."""
    for operation in (*OPERATIONS, *DOOR):
        form = re.escape(operation.path).replace(r"\{id\}", "[^/]+")
        if operation.path == "/v1/events/{id}":
            form = "/v1/events/.+"
        if operation.method == method and re.fullmatch(form, path):
            return operation
    return None


def _exactly(body: bytes, kind: type[msgspec.Struct]) -> None:
    """It decodes as this struct, and nothing of it is lost on the way."""
    again = msgspec.json.encode(msgspec.json.decode(body, type=kind))
    assert msgspec.json.decode(again) == msgspec.json.decode(body)
