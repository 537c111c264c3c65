"""The ASGI application: publishing without a framework, everything else through a router.

``Front`` gets every request. It calls the publish endpoint for ``POST /v1/events`` directly (the
hot path: no framework object is created for it) and Starlette's router for all other requests. It
turns every exception into a problem document. An unexpected exception is logged, and the response
is a 500 without details. A response that is sent in parts ends when its client has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import cache

import structlog
from msgspec.json import encode
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homing.app.access import ANONYMOUS, Caller
from homing.app.app import App
from homing.errors import Forbidden, HomingError
from homing.policy.built_in_receiver import PREFIX
from homing.policy.people import PeopleOptions
from homing.web.api.publish import Publish
from homing.web.body import COMMAND_BYTES_MAX, ClientGone, read_body
from homing.web.built_in_receiver import ReceiveTestEvents
from homing.web.connections import client_address, mark_verified
from homing.web.dashboard.app import DashboardApp
from homing.web.openapi import openapi
from homing.web.operation import Call, Operation
from homing.web.options import WebOptions, WebParts
from homing.web.portal.app import PortalApp
from homing.web.problems import (
    MethodNotAllowed,
    NoSuchPath,
    refusal,
    unexpected_response,
)
from homing.web.query import Query
from homing.web.response import JSON, Response, send_response
from homing.web.routes import OPERATIONS
from homing.web.workfront.api import OPERATIONS as WORKFRONT

log = structlog.get_logger("homing.web")

PUBLISH_PATH = "/v1/events"
OPENAPI_PATH = "/openapi.json"
# The operations that every process has, whatever its role.
OF_EVERY_PROCESS = tuple(
    it for it in OPERATIONS if it.path in {"/healthz", "/readyz", "/metrics", "/v1/status"}
)
EVERY = (*OPERATIONS, *WORKFRONT)


def identity_headers(people: PeopleOptions) -> frozenset[bytes]:
    """The headers that say who asks, or for which host, in lower case: each may come once."""
    of_keys = {name for it in EVERY if it.auth_scheme for name in it.auth_scheme.key_headers}
    named = {"authorization", "cookie", "host", people.user_header, people.groups_header}
    return frozenset(it.lower().encode() for it in named | of_keys if it)


@cache
def _openapi_json() -> bytes:
    """The same for all servers of a process: it takes a tenth of a second to make."""
    return encode(openapi(EVERY))


def asgi_app(app: App, options: WebOptions | None = None) -> ASGIApp:
    """The ASGI application of a process."""
    parts = WebParts(app, options or WebOptions())
    if not parts.options.api:
        routes = [*_routes(parts, OF_EVERY_PROCESS), _receiver(parts)]
        return Front(None, Router(routes=routes, redirect_slashes=False, default=_not_here))
    dashboard = DashboardApp(parts)
    portal = PortalApp(parts, dashboard.files, dashboard.renderer)
    routes = [*_routes(parts, EVERY), _receiver(parts), *dashboard.routes(), *portal.routes()]
    routes.append(Route(OPENAPI_PATH, _OpenApi()))
    router = Router(routes=routes, redirect_slashes=False, default=dashboard.missing)
    return Front(Publish(parts), router)


class Front:
    """Calls the publish endpoint or the router, and turns errors into problem documents."""

    def __init__(self, publish: Publish | None, router: ASGIApp) -> None:
        self._publish, self._router = publish, router

    @property
    def publish(self) -> Publish:
        """The publish endpoint; only for a process that accepts events."""
        assert self._publish is not None
        return self._publish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        async with _Sending(receive, send) as sending:
            try:
                await self._call(scope, receive, sending.send)
            except ClientGone:
                return
            except HomingError as error:
                if sending.started:  # Its end is missing, so nobody takes it for the whole.
                    log.info("a response was cut off", path=scope["path"], reason=str(error))
                    return
                await send_response(send, refusal(error, scope["method"], scope["path"]))
            except Exception as error:
                if sending.started:
                    raise
                response = unexpected_response(error, method=scope["method"], path=scope["path"])
                await send_response(send, response)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        publishes = scope["path"] == PUBLISH_PATH and scope["method"] == "POST"
        if publishes and self._publish is not None:
            await self._publish(scope, receive, send)
        else:
            await self._router(scope, receive, send)


class _Sending:
    """A response while it is sent. One that is sent in parts ends when its client has gone.

    Uvicorn ignores what is sent to a client that has gone, so a stream would go on for ever.
    """

    __slots__ = ("_receive", "_send", "_serving", "_watching", "started")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send, self._serving = receive, send, asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self.started = False

    async def send(self, message: Message) -> None:
        self.started = True
        if message.get("more_body"):
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch())
        elif self._watching is not None:
            self._watching.cancel()
        await self._send(message)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        assert self._serving is not None
        self._serving.cancel()

    async def __aenter__(self) -> _Sending:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> bool:
        watching, serving = self._watching, self._serving
        if watching is None or serving is None:
            return False
        has_gone = watching.done() and not watching.cancelled()
        watching.cancel()
        return has_gone and isinstance(error, asyncio.CancelledError) and not serving.uncancel()


async def _not_here(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise NoSuchPath("This process only delivers: use a process with the role api or both.")


def _receiver(parts: WebParts) -> Route:
    receiver = parts.app.built_in_receiver
    return Route(PREFIX + "{path:path}", ReceiveTestEvents(receiver))


def _routes(parts: WebParts, table: Sequence[Operation]) -> Iterator[BaseRoute]:
    by_path: dict[str, list[Operation]] = {}
    for operation in table:
        by_path.setdefault(operation.path, []).append(operation)
    for path, operations in by_path.items():
        # The id of an event may contain a slash.
        shown = path.replace("{id}", "{id:path}") if path.startswith("/v1/events/") else path
        yield Route(shown, _Resource(parts, operations))


class _Resource:
    """One path and its methods."""

    def __init__(self, parts: WebParts, operations: Sequence[Operation]) -> None:
        self._parts, self._authenticator = parts, parts.app.authenticator
        self._operations = {operation.method: operation for operation in operations}
        self._known = {
            operation.method: frozenset(param.name for param in operation.params)
            for operation in operations
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        operation = self._operations.get("GET" if method == "HEAD" else method)
        if operation is None or operation.handler is None:
            raise MethodNotAllowed(tuple(self._operations))
        headers = dict(scope["headers"])
        scheme = operation.auth_scheme
        if scheme is None:
            key = headers.get(b"authorization")
            await self._response(operation, headers, key, scope, receive, send)
            return
        try:
            key = scheme.key(headers)
            await self._response(operation, headers, key, scope, receive, send)
        except HomingError as error:
            if error.http_status == 500:
                raise
            await send_response(send, scheme.refusal(error))

    async def _response(
        self,
        operation: Operation,
        headers: dict[bytes, bytes],
        key: bytes | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        caller = ANONYMOUS
        if not operation.open:
            address = client_address(scope.get("client"))
            listed = None
            if operation.by_address and key is None:
                listed = self._authenticator.caller_at(address)
            caller = listed or await self._authenticator.caller_of(key, address)
            mark_verified(scope)
        try:
            await self._respond_to(operation, headers, caller, scope, receive, send)
        except Forbidden as error:
            self._parts.app.audit.counted.refused(caller, operation.use_case, error.detail)
            raise

    async def _respond_to(
        self,
        operation: Operation,
        headers: dict[bytes, bytes],
        caller: Caller,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        assert operation.handler is not None
        if not operation.open:
            caller.must_be(operation.roles)  # before a body of up to 256 KiB is read
        query = Query(scope["query_string"], self._known[operation.method])
        body, share = b"", self._parts.body_budget.of(caller.tenant)
        if operation.request is not None:
            declared = headers.get(b"content-length")
            body = await read_body(
                receive,
                declared=declared,
                bytes_max=COMMAND_BYTES_MAX,
                share=share,
                caller=caller,
            )
        call = Call(self._parts, path=scope["path_params"], query=query, body=body, caller=caller)
        call.headers = headers
        host = headers.get(b"host", b"").decode("latin-1")
        call.site = f"{scope.get('scheme', 'http')}://{host}" if host else ""
        try:
            await send_response(send, await operation.handler(call))
        finally:
            share.release(body)


class _OpenApi:
    """The OpenAPI document, made when it is first asked for, on a thread."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            raise MethodNotAllowed(("GET",))
        content = await asyncio.to_thread(_openapi_json)
        await send_response(send, Response(200, content, JSON))
