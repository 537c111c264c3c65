"""The ASGI application: publishing goes first and by itself, everything else through the table.

One callable stands in front. It sends ``POST /v1/events`` straight to its endpoint (the hot path:
no framework object is made for it) and all else to Starlette's router, and it turns whatever is
raised into a problem document. An exception that nobody expected is logged and told as a 500
without its inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.json import encode
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homing.engine.engine import Engine
from homing.engine.keys import KeyRing
from homing.errors import HomingError
from homing.ports import AdminStore, ViewStore
from homing.web.answer import JSON, Answer, send_answer
from homing.web.api.publish import Publish
from homing.web.auth import STRANGER, Keys, source_of
from homing.web.body import COMMAND_BYTES_MOST, ClientGone, read_body
from homing.web.dashboard.desk import Desk
from homing.web.openapi import openapi
from homing.web.operation import Call, Operation
from homing.web.options import Parts, WebOptions
from homing.web.problems import (
    MethodNotAllowed,
    NoSuchPath,
    refusal,
    unexpected_answer,
)
from homing.web.query import Query
from homing.web.quotas import Quotas
from homing.web.routes import OPERATIONS
from homing.web.workfront.door import OPERATIONS as DOOR

PUBLISH_PATH = "/v1/events"
OPENAPI_PATH = "/openapi.json"
# What every process tells of itself, whatever its role.
OF_EVERYONE = tuple(
    it for it in OPERATIONS if it.path in {"/healthz", "/readyz", "/metrics", "/v1/status"}
)


def create_app(
    engine: Engine, views: ViewStore, admin: AdminStore, ring: KeyRing, options: WebOptions
) -> ASGIApp:
    """The whole HTTP side."""
    quotas = Quotas(views, options.now, default=options.quota, tenants=options.tenant_quotas)
    parts = Parts(
        engine=engine,
        views=views,
        admin=admin,
        ring=ring,
        quotas=quotas,
        options=options,
        started_at=options.now(),
    )
    keys = Keys(options.admin_key, ring, options.now)
    if not options.api:
        routes = [*_routes(parts, keys, OF_EVERYONE)]
        return Front(None, Router(routes=routes, redirect_slashes=False, default=_elsewhere))
    desk = Desk(parts, keys)
    every = (*OPERATIONS, *DOOR)
    routes = [*_routes(parts, keys, every), *desk.routes()]
    routes.append(Route(OPENAPI_PATH, _Document(encode(openapi(every)))))
    router = Router(routes=routes, redirect_slashes=False, default=desk.missing)
    return Front(Publish(parts, keys), router)


class Front:
    """Publishing or the router; errors become problem documents."""

    def __init__(self, publish: Publish | None, router: ASGIApp) -> None:
        self._publish, self._router = publish, router

    @property
    def publish(self) -> Publish:
        """Of a process that takes events."""
        assert self._publish is not None
        return self._publish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if (
                scope["path"] == PUBLISH_PATH
                and scope["method"] == "POST"
                and self._publish is not None
            ):
                await self._publish(scope, receive, watched_send)
            else:
                await self._router(scope, receive, watched_send)
        except ClientGone:
            return
        except HomingError as error:
            if started:
                raise
            await send_answer(send, refusal(error, scope["method"], scope["path"]))
        except Exception as error:
            if started:
                raise
            answer = unexpected_answer(error, method=scope["method"], path=scope["path"])
            await send_answer(send, answer)


async def _elsewhere(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise NoSuchPath("This process only delivers: ask one whose role is api or both.")


def _routes(parts: Parts, keys: Keys, table: Sequence[Operation]) -> Iterator[BaseRoute]:
    by_path: dict[str, list[Operation]] = {}
    for operation in table:
        by_path.setdefault(operation.path, []).append(operation)
    for path, operations in by_path.items():
        # An event's id may hold a slash.
        shown = path.replace("{id}", "{id:path}") if path.startswith("/v1/events/") else path
        yield Route(shown, _Resource(parts, keys, operations))


class _Resource:
    """One path and the methods that it takes."""

    def __init__(self, parts: Parts, keys: Keys, operations: Sequence[Operation]) -> None:
        self._parts, self._keys = parts, keys
        self._operations = {operation.method: operation for operation in operations}
        self._known = {
            operation.method: frozenset(param.name for param in operation.params)
            for operation in operations
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        operation = self._operations.get(method)
        if operation is None or operation.handler is None:
            raise MethodNotAllowed(tuple(self._operations))
        headers = dict(scope["headers"])
        manners = operation.manners
        if manners is None:
            key = headers.get(b"authorization")
            await self._answer(operation, headers, key, scope, receive, send)
            return
        try:
            key = manners.key(headers)
            await self._answer(operation, headers, key, scope, receive, send)
        except HomingError as error:
            if error.http_status == 500:
                raise
            await send_answer(send, manners.refusal(error))

    async def _answer(
        self,
        operation: Operation,
        headers: dict[bytes, bytes],
        key: bytes | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        assert operation.handler is not None
        who = STRANGER
        if not operation.open:
            who = await self._keys.who(key, source_of(scope.get("client")))
            who.must_be(operation.roles)
        method = operation.method
        query = Query(scope["query_string"], self._known[method], only=who.tenant)
        body = b""
        if operation.request is not None:
            declared = headers.get(b"content-length")
            room = self._parts.room
            body = await read_body(receive, declared=declared, most=COMMAND_BYTES_MOST, room=room)
        call = Call(self._parts, path=scope["path_params"], query=query, body=body, who=who)
        host = headers.get(b"host", b"").decode("latin-1")
        call.site = f"{scope.get('scheme', 'http')}://{host}" if host else ""
        try:
            await send_answer(send, await operation.handler(call))
        finally:
            self._parts.room.leave(body)


class _Document:
    """A document that is made once."""

    def __init__(self, content: bytes) -> None:
        self._answer = Answer(200, content, JSON)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            raise MethodNotAllowed(("GET",))
        await send_answer(send, self._answer)
