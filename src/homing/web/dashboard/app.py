"""``DashboardApp``: checks host, session, role and form token of a request, then calls its page.

An error is shown as a page, or as a toast if a script of a page sent the request. Every response
has the same security headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from secrets import token_urlsafe
from urllib.parse import quote

from msgspec.structs import replace
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from homing.app.access import ADMINS, MANAGERS, PUBLISHERS, READERS, Caller
from homing.app.sessions import SESSION_LIFE_MS, Sessions
from homing.errors import Forbidden, FormOutdated, HomingError, NotAuthorized, TooMany
from homing.languages.language import LANGUAGES, Language
from homing.languages.sentences import say
from homing.policy.admission import tenant_problem
from homing.policy.keys import Role
from homing.policy.sent_form import OUT_OF_DATE
from homing.ports import KeySession
from homing.web.body import ClientGone, read_body
from homing.web.connections import client_address, mark_verified
from homing.web.dashboard.cookies import read_cookie
from homing.web.dashboard.files import Files
from homing.web.dashboard.forms import SIGN_IN_BYTES_MAX, read_form
from homing.web.dashboard.live import STREAM_TYPE, Live
from homing.web.dashboard.render import Renderer
from homing.web.dashboard.request import (
    HTML,
    LANGUAGE_COOKIE,
    TENANT_COOKIE,
    Page,
    PageRequest,
    Shown,
    is_secure,
    other_tenant,
    toast_headers,
)
from homing.web.dashboard.routes import PAGES
from homing.web.dashboard.security_headers import HEADERS, Forged, check_host, check_origin
from homing.web.dashboard.sessions import COOKIE, SessionCookies
from homing.web.dashboard.targets import Targets
from homing.web.options import WebParts
from homing.web.problems import (
    MethodNotAllowed,
    NoSuchPath,
    Unexpected,
    log_unexpected,
    reasons_text,
    refusal_headers,
)
from homing.web.query import Query
from homing.web.response import Response, send_response

SIGN_IN = "/sign-in"
CONFIRM = "/confirm"
SEE_LOG = say("See the server log for details.")
FALLBACK_PAGE = f"<!doctype html><title>Homing</title><p>{Unexpected.__doc__} {SEE_LOG}".encode()
SIGNED_OUT = Caller("", Role.PUBLISHER, "")  # the caller of pages without a session
ROLES = {"ADMINS": ADMINS, "MANAGERS": MANAGERS, "PUBLISHERS": PUBLISHERS, "READERS": READERS}


class DashboardApp:
    """Responds to the requests for pages."""

    def __init__(self, parts: WebParts) -> None:
        self.app, self.options, self._body_budget = parts.app, parts.options, parts.body_budget
        self.files = Files()
        self.live = Live(parts.app.status.fingerprint, parts.options.leaving)
        self._cookies = SessionCookies(parts.app.sessions.cookie_key)
        paths = [page.path for page in PAGES if page.method == "GET"]
        self.targets = Targets(paths)  # after a sign-in
        self.readable = Targets((*paths, SIGN_IN, CONFIRM))  # in another language
        self.renderer = Renderer(
            self.files, frozenset(page.path for page in PAGES), parts.app.work.turn
        )

    def routes(self) -> Iterator[BaseRoute]:
        by_path: dict[str, dict[str, Page]] = {}
        for page in PAGES:
            by_path.setdefault(page.path, {})[page.method] = page
        for path, pages in by_path.items():
            yield Route(path, _Paths(self, pages))
        yield Route(SIGN_IN, _SignIn(self))
        yield Route("/sign-out", _SignOut(self))
        yield Route(CONFIRM, _Confirm(self))
        yield Route("/language", _ChooseLanguage(self))
        yield Route("/live", _Stream(self))
        yield Route("/static/{digest}/{name:path}", _Static(self))

    # --- sessions ----------------------------------------------------------------------------

    def session(self, headers: Mapping[bytes, bytes]) -> KeySession | None:
        value = read_cookie(headers.get(b"cookie", b""), COOKIE)
        return self._cookies.read(value, now=self.app.now()) if value else None

    def cookie(self, session: KeySession, *, secure: bool) -> tuple[bytes, bytes]:
        life = SESSION_LIFE_MS // 1000
        text = (
            f"{COOKIE}={quote(self._cookies.write(session))}; Path=/; Max-Age={life}; "
            f"HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
        )
        return (b"set-cookie", text.encode())

    def check_form(self, request: PageRequest, session: KeySession | None, page: Page) -> None:
        """Raises Forged for a form of another session, or FormOutdated for another tenant."""
        if session is None:
            raise Forged(OUT_OF_DATE)
        try:
            caller = request.caller
            made_for = self._cookies.chosen_of(
                session, caller.tenant, request.field("csrf"), now=request.now
            )
        except ValueError:
            raise Forged(OUT_OF_DATE) from None
        shown = caller.chosen
        if made_for != shown and not page.any_tenant:
            raise FormOutdated(other_tenant(made_for, shown))

    # --- responses ---------------------------------------------------------------------------

    async def send(self, send: Send, response: Response | Shown, request: PageRequest) -> None:
        await send_response(send, await self._rendered(response, request), security_headers=HEADERS)

    async def _rendered(self, response: Response | Shown, request: PageRequest) -> Response:
        """The response as HTML; if a template fails, an error page."""
        for shown in (response, self.refused(Unexpected(SEE_LOG), request)):
            if isinstance(shown, Response):
                return shown
            try:
                return await self._render(shown, request)
            except Exception as error:  # noqa: BLE001 - the details belong in the log
                log_unexpected(error, method="", path=request.target)
        return Response(500, FALLBACK_PAGE, HTML)

    async def _render(self, response: Shown, request: PageRequest) -> Response:
        message, deletion = request.message()
        values = {
            "request": request,
            "user": request.caller,
            "csrf": request.token,
            "once": token_urlsafe(12),
            "here": request.target,
            "now": request.now,
            "message": message,
            **ROLES,
            **response.values,
        }
        body = await self.renderer.render(
            response.template, values, request.language, payer=request.caller.payer
        )
        spoken = (b"content-language", request.language.code.encode())
        return Response(response.status, body, HTML, (*response.headers, *deletion, spoken))

    def refused(self, error: HomingError, request: PageRequest) -> Response | Shown:
        """The response to an error: a redirect to the sign-in page, a toast or an error page."""
        title, detail = error_texts(error, request.language)
        if isinstance(error, NotAuthorized):
            to = f"{SIGN_IN}?to={quote(request.target)}" if request.target != "/" else SIGN_IN
            name = b"hx-redirect" if request.is_partial else b"location"
            return Response(401 if request.is_partial else 303, b"", HTML, ((name, to.encode()),))
        if request.is_partial:
            message = f"{title} {detail}".strip()
            headers = (*toast_headers(message, bad=True), *refusal_headers(error))
            return Response(error.http_status, b"", HTML, headers)
        values = {"title": title, "detail": detail, "status": error.http_status}
        return Shown("error.html", values, error.http_status, refusal_headers(error))

    def _request(
        self, scope: Scope, caller: Caller = SIGNED_OUT, session: KeySession | None = None
    ) -> PageRequest:
        """The request before its path, query and form are read, as an error page needs it."""
        return PageRequest(
            self.app,
            caller,
            path={},
            target=_target(scope),
            query=Query(b"", ()),
            form={},
            headers=dict(scope["headers"]),
            session=session,
            cookies=self._cookies,
            source=client_address(scope.get("client")),
        )

    async def respond(self, scope: Scope, receive: Receive, send: Send, page: Page) -> None:
        """Calls the page and sends its response; an error becomes a response too."""
        request = self._request(scope)
        try:
            check_host(_host(request.headers), self.options.hosts)
            caller, session = await self._caller(scope, request, page)
            request = self._request(scope, caller, session)
            if not page.open:
                request.caller.must_be(page.roles)  # before the form is read
                request = self._request(scope, _with_chosen_tenant(request), session)
            form: dict[str, str] = {}
            if page.method == "POST":
                form = await self._form(request, receive, page.form_bytes)
            full = PageRequest(
                self.app,
                request.caller,
                path=scope.get("path_params", {}),
                target=request.target,
                query=Query(scope["query_string"], None),
                form=form,
                headers=request.headers,
                session=session,
                cookies=self._cookies,
                source=request.source,
            )
            if page.method == "POST" and not page.open:
                self.check_form(full, session, page)
                full.caller = full.with_form(target=request.target)
            response = await page.handler(full)
        except ClientGone:
            raise
        except HomingError as error:
            if isinstance(error, Forbidden) and request.caller is not SIGNED_OUT:
                self.app.audit.counted.refused(request.caller, page.use_case, str(error.detail))
            response = self.refused(error, request)
        except Exception as error:  # noqa: BLE001 - the details belong in the log
            log_unexpected(error, method=scope["method"], path=scope["path"])
            response = self.refused(Unexpected(SEE_LOG), request)
        await self.send(send, response, request)

    async def _caller(
        self, scope: Scope, request: PageRequest, page: Page
    ) -> tuple[Caller, KeySession | None]:
        """The person whom the proxy names, or the caller of the session; raises NotAuthorized."""
        session = self.session(request.headers)
        caller = self.app.people.caller_of(request.headers, request.source)
        if caller is not None:
            session = session_of(caller)
        elif page.open and session is None:
            return SIGNED_OUT, None
        else:
            caller = await self.app.sessions.caller_of(session, request.source)
        mark_verified(scope)
        return caller, session

    async def missing(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The response for an unknown path: a page for browsers, a problem document for others."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        if b"text/html" not in dict(scope["headers"]).get(b"accept", b""):
            raise NoSuchPath
        await self.respond(scope, receive, send, _refusing(NoSuchPath(), "GET"))

    async def _form(self, request: PageRequest, receive: Receive, bytes_max: int) -> dict[str, str]:
        check_origin(request.headers)
        declared = request.headers.get(b"content-length")
        share = self._body_budget.of(request.caller.tenant)
        bytes_max = SIGN_IN_BYTES_MAX if request.caller is SIGNED_OUT else bytes_max
        body = await read_body(
            receive, declared=declared, bytes_max=bytes_max, share=share, caller=request.caller
        )
        try:
            return read_form(body)
        finally:
            share.release(body)


class _Paths:
    """One path and its methods."""

    def __init__(self, dashboard: DashboardApp, pages: dict[str, Page]) -> None:
        self._dashboard, self._pages = dashboard, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        page = self._pages.get(method)
        if page is None:
            page = _refusing(MethodNotAllowed(tuple(self._pages)), scope["method"])
        await self._dashboard.respond(scope, receive, send, page)


def _refusing(error: HomingError, method: str) -> Page:
    async def refuse(_request: PageRequest) -> Shown | Response:
        raise error

    return Page(path="", handler=refuse, method=method, open=True)


class _SignIn:
    """The sign-in page: a valid key opens a session."""

    def __init__(self, dashboard: DashboardApp) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._sign_in if scope["method"] == "POST" else self._form
        page = Page(path=SIGN_IN, handler=handler, method=scope["method"], open=True)
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            page = _refusing(MethodNotAllowed(("GET", "POST")), scope["method"])
        scope = {**scope, "headers": _without_session(scope["headers"])}
        await self._dashboard.respond(scope, receive, send, page)

    async def _form(self, request: PageRequest) -> Shown:
        to = self._dashboard.targets.own(request.query.text("to"))
        return request.show("sign_in.html", problem="", to=to)

    async def _sign_in(self, request: PageRequest) -> Shown | Response:
        to = self._dashboard.targets.own(request.form().get("to", ""))
        try:
            session = await self._dashboard.app.sessions.sign_in(
                request.field("key").encode(), request.source
            )
        except (NotAuthorized, Forbidden, TooMany) as error:
            status = error.http_status
            problem = request.language.text(error.detail)
            return request.show("sign_in.html", status=status, problem=problem, to=to)
        cookie = self._dashboard.cookie(session, secure=is_secure(request.headers))
        return Response(303, b"", HTML, ((b"location", to.encode()), cookie))


class _ChooseLanguage:
    """Keeps the language that a person has chosen; on the sign-in page there is no session yet."""

    def __init__(self, dashboard: DashboardApp) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = Page(path="/language", handler=self._choose, method="POST", open=True)
        if scope["method"] != "POST":
            page = _refusing(MethodNotAllowed(("POST",)), scope["method"])
        scope = {**scope, "headers": _without_session(scope["headers"])}
        await self._dashboard.respond(scope, receive, send, page)

    async def _choose(self, request: PageRequest) -> Response:
        return request.choose_language(self._dashboard.readable.own(request.form().get("to", "")))


class _Confirm:
    """The page of the link that confirms an e-mail address; its owner needs no key.

    Programs that open the links of e-mails confirm nothing: only the button does.
    """

    def __init__(self, dashboard: DashboardApp) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._confirm if scope["method"] == "POST" else self._ask
        page = Page(path=CONFIRM, handler=handler, method=scope["method"], open=True)
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            page = _refusing(MethodNotAllowed(("GET", "POST")), scope["method"])
        scope = {**scope, "headers": _without_session(scope["headers"])}
        await self._dashboard.respond(scope, receive, send, page)

    async def _ask(self, request: PageRequest) -> Shown:
        return request.show("confirm.html", confirmed=False, token=request.query.text("token"))

    async def _confirm(self, request: PageRequest) -> Shown:
        target = await self._dashboard.app.notice_targets.confirm(
            request.field("token"), request.source
        )
        return request.show(
            "confirm.html", confirmed=True, tenant=target.tenant, address=target.address
        )


class _SignOut:
    """Ends the session."""

    def __init__(self, dashboard: DashboardApp) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = Page(
            path="/sign-out",
            handler=self._sign_out,
            method="POST",
            use_case=Sessions.sign_out,
            any_tenant=True,
        )
        if scope["method"] != "POST":
            page = _refusing(MethodNotAllowed(("POST",)), scope["method"])
        await self._dashboard.respond(scope, receive, send, page)

    async def _sign_out(self, request: PageRequest) -> Response:
        session = self._dashboard.session(request.headers)
        if session is not None:
            await self._dashboard.app.sessions.sign_out(request.caller, session)
        deleted = f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
        headers = ((b"location", SIGN_IN.encode()), (b"set-cookie", deleted.encode()))
        return Response(303, b"", HTML, headers)


class _Stream:
    """The live stream of a tab."""

    def __init__(self, dashboard: DashboardApp) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        dashboard, headers = self._dashboard, dict(scope["headers"])
        try:
            check_host(_host(headers), dashboard.options.hosts)
            session = dashboard.session(headers)
            source = client_address(scope.get("client"))

            caller = dashboard.app.people.caller_of(headers, source)
            caller = caller or await dashboard.app.sessions.caller_of(session, source)
            mark_verified(scope)
        except HomingError as error:
            await send_response(
                send, Response(error.http_status, b"", HTML), security_headers=HEADERS
            )
            return
        if scope["method"] == "HEAD":
            await send_response(send, Response(200, b"", STREAM_TYPE), security_headers=HEADERS)
        elif scope["method"] != "GET":
            refusal = Response(405, b"", HTML, ((b"allow", b"GET, HEAD"),))
            await send_response(send, refusal, security_headers=HEADERS)
        elif dashboard.live.full:  # After a 204 the browser does not reconnect: the page polls.
            await send_response(send, Response(204), security_headers=HEADERS)
        else:
            await dashboard.live.stream(send, HEADERS, caller)


class _Static:
    """A static file; open to everyone, because the sign-in page needs styles."""

    def __init__(self, dashboard: DashboardApp) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        files, params = self._dashboard.files, scope["path_params"]
        file = files.get(params["name"])
        if file is None or scope["method"] not in {"GET", "HEAD"}:
            page = _refusing(NoSuchPath(), scope["method"])
            await self._dashboard.respond(scope, receive, send, page)
            return
        # A page from before an update asks with the old digest: it gets the new file, uncached.
        current = files.root == f"/static/{params['digest']}"
        caching = b"public, max-age=31536000, immutable" if current else b"no-store"
        body = file.content
        head = [
            *HEADERS,
            (b"cache-control", caching),
            (b"content-type", file.content_type),
            (b"vary", b"accept-encoding"),
        ]
        # Pages are not compressed: their size would tell about a secret beside an echoed text.
        if b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b""):
            body = files.compressed(params["name"])
            head.append((b"content-encoding", b"gzip"))
        head.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": head})
        body = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": body})


def _with_chosen_tenant(request: PageRequest) -> Caller:
    """The caller; one of all tenants may have chosen whose lists to see."""
    caller = request.caller
    chosen = read_cookie(request.headers.get(b"cookie", b""), TENANT_COOKIE)
    if caller.tenant is not None or not chosen or any(tenant_problem(chosen)):
        return caller
    return replace(caller, chosen=chosen)


def session_of(person: Caller) -> KeySession:
    """The session of a person whom the proxy names; it is not stored, and gives forms a token."""
    return KeySession("", f"person {person.person}", 0)


def error_texts(error: HomingError, language: Language) -> tuple[str, str]:
    """The title and the text of an error, for people."""
    reasons = reasons_text(error.problems, language)
    return language.message(error.title), reasons or language.text(error.detail)


def _host(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"host", b"").decode("latin-1")


def _target(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    path = quote(scope["path"])
    return f"{path}?{query}" if query else path


def _without_session(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers without the session: on the sign-in page an old one does not count."""
    kept = [(name, value) for name, value in headers if name != b"cookie"]
    language = read_cookie(dict(headers).get(b"cookie", b""), LANGUAGE_COOKIE)
    if language in LANGUAGES:
        kept.append((b"cookie", f"{LANGUAGE_COOKIE}={language}".encode()))
    return kept
