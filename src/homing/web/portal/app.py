"""``PortalApp``: opens links, checks the session, role and form token of a request, calls its page.

The pages are made to be shown in a frame of another site, where browsers keep third-party cookies
from a site. The session cookie is partitioned (CHIPS): the browser keeps one for each site that
shows the portal, and sends it to no other frame. It is sent with requests from other sites, too
(``SameSite=None``), so every form has a token, and its origin is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from secrets import token_urlsafe

from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from homing.app.access import MANAGERS, READERS, Caller
from homing.app.portal import PortalLinks, PortalSession
from homing.errors import Forbidden, HomingError, NotFound, PortalClosed, TooMany
from homing.languages.language import Language
from homing.languages.sentences import Sentence, say
from homing.model import show_id
from homing.policy.keys import Role
from homing.policy.portal import (
    LINK,
    PortalLink,
    PortalSettings,
    ink_on,
    is_color,
    palette,
    policy_sources,
)
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
    Jar,
    Page,
    PageRequest,
    Shown,
    is_secure,
    toast_headers,
)
from homing.web.dashboard.security_headers import (
    Forged,
    check_host,
    check_origin,
    headers_for,
    is_local,
)
from homing.web.dashboard.sessions import SessionCookies
from homing.web.dashboard.targets import Targets
from homing.web.options import WebParts
from homing.web.portal.pages import HOME, PAGES
from homing.web.problems import (
    MethodNotAllowed,
    NoSuchPath,
    log_unexpected,
    reasons_text,
    refusal_headers,
)
from homing.web.query import Query
from homing.web.response import Headers, Response, send_response

COOKIE = "__Host-homing_portal"
LOCAL_COOKIE = "homing_portal"  # over http on this machine, where browsers refuse the prefix
PROBE = "homing_portal_probe"  # shows whether the browser keeps cookies here
PROBE_LIFE_S = 3_600
ATTRIBUTES = "Secure; SameSite=None; Partitioned"
JAR = Jar(
    "homing_portal_message",
    "homing_portal_language",
    "homing_portal_secret",
    ATTRIBUTES,
    is_always_secure=True,
)
ANYBODY = b"*"  # may frame a page that shows nothing and does nothing
STREAMS_OF_TENANT_MAX = 20  # the pages of further tabs poll
NOBODY = Caller("", Role.PUBLISHER, "")
PATHS = frozenset(page.path for page in PAGES)
NO_SESSION = say("There is no open session.")
AGAIN = say("Open it again from the application in which you found it.")
TROUBLE = (say("This page does not work at the moment."), say("Try again in a minute."))
# What a person reads instead of the words of the API.
TEXTS: dict[int, tuple[Sentence, ...]] = {
    403: (
        say("Your access does not allow this."),
        say(
            "You can look at everything here. "
            "To change something, ask for access that allows changes."
        ),
    ),
    405: (say("This page does not exist."),),
    421: TROUBLE,
}
OUT_OF_DATE = (say("This page is out of date."), say("Reload it and try again."))


class PortalApp:
    """Responds to the requests for pages of the portal."""

    def __init__(self, parts: WebParts, files: Files, renderer: Renderer) -> None:
        self.app, self.options, self._body_budget = parts.app, parts.options, parts.body_budget
        self._files, self._renderer = files, renderer
        self._cookies = SessionCookies(parts.app.portal_links.key)
        self.live = Live(parts.app.status.fingerprint, parts.options.leaving)
        self.streams: Counter[str] = Counter()
        self._targets = Targets((page.path for page in PAGES if page.method == "GET"), home=HOME)

    def routes(self) -> Iterator[BaseRoute]:
        by_path: dict[str, dict[str, Page]] = {}
        for page in PAGES:
            by_path.setdefault(page.path, {})[page.method] = page
        for path, pages in by_path.items():
            yield Route(path, _Paths(self, pages))
        yield Route("/portal", _Home(self))
        yield Route("/portal/open/{token}", _Open(self))
        leave = Page(
            path="/portal/leave", handler=self._leave, method="POST", use_case=PortalLinks.leave
        )
        yield Route(leave.path, _Paths(self, {"POST": leave}))
        spoken = Page(
            path="/portal/language",
            handler=self._choose_language,
            method="POST",
            use_case=PAGES[0].use_case,
        )
        yield Route(spoken.path, _Paths(self, {"POST": spoken}))
        yield Route("/portal/live", _Stream(self))
        logo = Page(path="/portal/logo/{id}", handler=self._logo, use_case=PAGES[0].use_case)
        yield Route(logo.path, _Paths(self, {"GET": logo}))
        yield Route("/portal/style/{colors}.css", _Style())
        yield Route("/portal/{rest:path}", _Paths(self, {}))

    # --- sessions ----------------------------------------------------------------------------

    async def session(self, scope: Scope) -> PortalSession:
        """The session of a request; raises PortalClosed, or WrongHost."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        check_host(host, self.options.hosts)
        given = headers.get(b"cookie", b"")
        text = read_cookie(given, COOKIE)
        if not text and is_local(host):
            text = read_cookie(given, LOCAL_COOKIE)
        if not text:
            raise PortalClosed(NO_SESSION)
        source = client_address(scope.get("client"))
        session = await self.app.portal_links.session_of(text, source)
        mark_verified(scope)
        return session

    def request(self, scope: Scope, session: PortalSession | None = None) -> PageRequest:
        """The request before its path, query and form are read, as an error page needs it."""
        return self._request(scope, session, path={}, query=Query(b"", ()), form={})

    def _request(
        self,
        scope: Scope,
        session: PortalSession | None,
        *,
        path: Mapping[str, str],
        query: Query,
        form: Mapping[str, str],
    ) -> PageRequest:
        text = scope["query_string"].decode("latin-1")
        return PageRequest(
            self.app,
            NOBODY if session is None else session.caller,
            path=path,
            target=f"{scope['path']}?{text}" if text else scope["path"],
            query=query,
            form=form,
            headers=dict(scope["headers"]),
            session=None if session is None else key_session(session.link),
            cookies=self._cookies,
            source=client_address(scope.get("client")),
            jar=JAR,
        )

    async def read_form(
        self, request: PageRequest, receive: Receive, bytes_max: int
    ) -> dict[str, str]:
        check_origin(request.headers)
        declared = request.headers.get(b"content-length")
        share = self._body_budget.of(request.caller.tenant)
        body = await read_body(
            receive, declared=declared, bytes_max=bytes_max, share=share, caller=request.caller
        )
        try:
            return read_form(body)
        finally:
            share.release(body)

    def _check_form(self, session: PortalSession, token: str) -> None:
        try:
            now, holder = self.app.now(), key_session(session.link)
            self._cookies.chosen_of(holder, session.caller.tenant, token, now=now)
        except ValueError:
            raise Forged from None

    # --- responses ---------------------------------------------------------------------------

    async def respond(self, scope: Scope, receive: Receive, send: Send, page: Page) -> None:
        """Calls the page of an open session and sends its response; an error becomes one too."""
        request, session, looks = self.request(scope), None, None
        try:
            session = await self.session(scope)
            looks = await self.app.portal_looks.of(session.link.tenant)
            request = self.request(scope, session)
            session.caller.must_be(page.roles)
            form: dict[str, str] = {}
            if page.method == "POST":
                form = await self.read_form(request, receive, page.form_bytes)
                self._check_form(session, form.get("csrf", ""))
            full = self._request(
                scope,
                session,
                path=scope.get("path_params", {}),
                query=Query(scope["query_string"], None),
                form=form,
            )
            if page.method == "POST":
                full.caller = full.with_form(target=full.target)
            response = await page.handler(full)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            if isinstance(error, Forbidden) and session is not None:
                self.app.audit.counted.refused(session.caller, page.use_case, error.detail)
            response, looks = await self.refused(error, scope, request, looks)
        await self.send(send, response, request, session, looks)

    async def refused(
        self, error: Exception, scope: Scope, request: PageRequest, looks: PortalSettings | None
    ) -> tuple[Response | Shown, PortalSettings | None]:
        """The response to an error: a page, a toast, or the page that says that access is over."""
        if isinstance(error, PortalClosed):
            if request.is_partial:
                return Response(401, b"", HTML, ((b"hx-redirect", HOME.encode()),)), looks
            looks = await self.app.portal_looks.of(error.tenant) if error.tenant else None
            return closed(error, status=401), looks
        if not isinstance(error, HomingError):
            log_unexpected(error, method=scope["method"], path="/portal")  # The path may be secret.
            error = HomingError()
        title, detail = texts_of(error, request.language)
        if request.is_partial:
            headers = (
                *toast_headers(f"{title} {detail}".strip(), bad=True),
                *refusal_headers(error),
            )
            return Response(error.http_status, b"", HTML, headers), looks
        values = {"title": title, "detail": detail, "status": error.http_status}
        shown = Shown("portal/error.html", values, error.http_status, refusal_headers(error))
        return shown, looks

    async def send(
        self,
        send: Send,
        response: Response | Shown,
        request: PageRequest,
        session: PortalSession | None,
        looks: PortalSettings | None,
    ) -> None:
        """Sends a response with the security headers of the tenant's portal."""
        if isinstance(response, Shown):
            response = await self._render(response, request, session, looks)
        sites = ANYBODY if looks is None else policy_sources(looks.frame_ancestors).encode()
        await send_response(send, response, security_headers=headers_for(sites))

    async def _render(
        self,
        shown: Shown,
        request: PageRequest,
        session: PortalSession | None,
        looks: PortalSettings | None,
    ) -> Response:
        message, deletion = request.message()
        values = {
            "request": request,
            "user": request.caller,
            "subject": "" if session is None else session.link.subject,
            "has_session": session is not None,
            "csrf": request.token,
            "once": token_urlsafe(12),
            "here": request.target,
            "now": request.now,
            "message": message,
            "looks": looks or PortalSettings(tenant=""),
            "style": "" if looks is None else style_path(looks),
            "portal_paths": PATHS,
            "MANAGERS": MANAGERS,
            "READERS": READERS,
            **shown.values,
        }
        try:
            body = await self._renderer.render(
                shown.template, values, request.language, payer=request.caller.payer
            )
        except Exception as error:  # noqa: BLE001 - the details belong in the log
            log_unexpected(error, method="", path="/portal")
            text = " ".join(map(request.language.text, TROUBLE))
            return Response(500, text.encode(), b"text/plain; charset=utf-8")
        spoken = (b"content-language", request.language.code.encode())
        return Response(shown.status, body, HTML, (*shown.headers, *deletion, spoken))

    # --- pages that are no use case of their own -----------------------------------------------

    async def _leave(self, request: PageRequest) -> Shown:
        session = await self.app.portal_links.session_of(self._session_text(request))
        await self.app.portal_links.leave(request.caller, session.link)
        name = cookie_name(request.headers)
        deleted = f"{name}=; Path=/; Max-Age=0; HttpOnly; {ATTRIBUTES}"
        left = closed(PortalClosed(say("You have ended your session.")), status=200)
        return Shown(left.template, left.values, 200, ((b"set-cookie", deleted.encode()),))

    async def _choose_language(self, request: PageRequest) -> Response:
        return request.choose_language(self._targets.own(request.field("to")))

    def _session_text(self, request: PageRequest) -> str:
        return read_cookie(request.headers.get(b"cookie", b""), cookie_name(request.headers))

    async def _logo(self, request: PageRequest) -> Response:
        assert request.caller.tenant is not None
        logo = await self.app.portal_looks.logo(request.caller.tenant, request.key())
        caching = (b"cache-control", b"private, max-age=31536000, immutable")
        return Response(200, logo.content, logo.type.encode(), (caching,))


class _Paths:
    """One path and its methods."""

    def __init__(self, portal: PortalApp, pages: dict[str, Page]) -> None:
        self._portal, self._pages = portal, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        page = self._pages.get(method)
        if page is None:
            error = MethodNotAllowed(tuple(self._pages)) if self._pages else NoSuchPath()
            page = _refusing(error, method)
        await self._portal.respond(scope, receive, send, page)


def _check_method(method: str) -> None:
    if method not in {"GET", "HEAD", "POST"}:
        raise MethodNotAllowed(("GET", "POST"))


def _refusing(error: HomingError, method: str) -> Page:
    async def refuse(_request: PageRequest) -> Shown | Response:
        raise error

    return Page(path="", handler=refuse, method=method, use_case=PAGES[0].use_case)


class _Home:
    """The first page, for links without a path."""

    def __init__(self, portal: PortalApp) -> None:
        self._paths = _Paths(
            portal, {"GET": Page(path="", handler=self._home, use_case=PAGES[0].use_case)}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._paths(scope, receive, send)

    async def _home(self, request: PageRequest) -> Response:
        return request.see_other(HOME)


class _Open:
    """The page of a link. Fetching it changes nothing; its form, which a script sends, opens it."""

    def __init__(self, portal: PortalApp) -> None:
        self._portal = portal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        portal = self._portal
        request, looks = portal.request(scope), None
        opening: Callable[[Scope, PageRequest], Awaitable[Response | Shown]] = self._page
        try:
            check_host(request.headers.get(b"host", b"").decode("latin-1"), portal.options.hosts)
            _check_method(scope["method"])
            if scope["method"] == "POST":
                await portal.read_form(request, receive, SIGN_IN_BYTES_MAX)
                opening = self._open
            link = await portal.app.portal_links.look(scope["path_params"]["token"])
            looks = await portal.app.portal_looks.of(link.tenant)
            response = await opening(scope, request)
        except ClientGone:
            raise
        except PortalClosed as error:
            if error.tenant:
                looks = await portal.app.portal_looks.of(error.tenant)
            response = closed(error, status=410, goes_on=await self._has_session(scope))
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            response, looks = await portal.refused(error, scope, request, looks)
        await portal.send(send, response, request, None, looks)

    async def _has_session(self, scope: Scope) -> bool:
        try:
            await self._portal.session(scope)
        except HomingError:
            return False
        return True

    async def _page(self, scope: Scope, request: PageRequest) -> Shown:
        probe = f"{PROBE}=1; Path=/portal; Max-Age={PROBE_LIFE_S}; HttpOnly; {ATTRIBUTES}"
        return request.show(
            "portal/open.html",
            headers=((b"set-cookie", probe.encode()),),
            action=scope["path"],
            keeps_cookies=True,
        )

    async def _open(self, scope: Scope, request: PageRequest) -> Response | Shown:
        if not read_cookie(request.headers.get(b"cookie", b""), PROBE):
            # The link is not used up: it can be opened in a tab of its own.
            return request.show(
                "portal/open.html", status=403, action=scope["path"], keeps_cookies=False
            )
        link, text = await self._portal.app.portal_links.open(
            scope["path_params"]["token"], request.source
        )
        name, life_s = cookie_name(request.headers), link.session_ms // 1000
        cookie = f"{name}={text}; Path=/; Max-Age={life_s}; HttpOnly; {ATTRIBUTES}"
        headers = ((b"location", HOME.encode()), (b"set-cookie", cookie.encode()))
        return Response(303, b"", HTML, headers)


class _Stream:
    """The live stream of a tab; it ends within a second of its session."""

    def __init__(self, portal: PortalApp) -> None:
        self._portal = portal

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        portal = self._portal
        try:
            session = await portal.session(scope)
            looks = await portal.app.portal_looks.of(session.link.tenant)
        except HomingError as error:
            status = 401 if isinstance(error, PortalClosed) else error.http_status
            await send_response(send, Response(status, b"", HTML))
            return
        headers = headers_for(policy_sources(looks.frame_ancestors).encode())
        tenant = session.link.tenant
        if scope["method"] != "GET":
            refusal = Response(405, b"", HTML, ((b"allow", b"GET"),))
            await send_response(send, refusal, security_headers=headers)
        elif portal.live.full or portal.streams[tenant] >= STREAMS_OF_TENANT_MAX:
            await send_response(send, Response(204, b"", STREAM_TYPE), security_headers=headers)
        else:
            portal.streams[tenant] += 1
            try:
                await portal.live.stream(send, headers, session.caller)
            finally:
                portal.streams[tenant] -= 1
                if not portal.streams[tenant]:
                    del portal.streams[tenant]


class _Style:
    """The colours of a portal as a style sheet, which depends on its address only."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        accent, _, header = scope["path_params"]["colors"].partition("-")
        given = [f"#{it}" if it != "none" else "" for it in (accent, header)]
        if scope["method"] not in {"GET", "HEAD"} or any(it and not is_color(it) for it in given):
            raise NoSuchPath
        caching: Headers = ((b"cache-control", b"public, max-age=31536000, immutable"),)
        body = style_sheet(*given).encode()
        await send_response(send, Response(200, body, b"text/css; charset=utf-8", caching))


def style_path(looks: PortalSettings) -> str:
    """The address of the colours of a portal; empty: the defaults."""
    if not looks.accent_color and not looks.header_color:
        return ""
    parts = (looks.accent_color[1:] or "none", looks.header_color[1:] or "none")
    return f"/portal/style/{'-'.join(parts)}.css"


def style_sheet(accent: str, header: str) -> str:
    """Custom properties that take the place of those in tokens.css."""
    rules = []
    if header:
        rules.append(f":root {{ --header: {header}; --header-ink: {ink_on(header)}; }}")
    if accent:
        light, dark = (_properties(accent, dark=it) for it in (False, True))
        rules.append(f":root:root {{ {light} }}")
        rules.append(f':root:root[data-theme="dark"] {{ {dark} }}')
        rules.append(
            "@media (prefers-color-scheme: dark) "
            f'{{ :root:root:not([data-theme="light"]) {{ {dark} }} }}'
        )
    return "\n".join(rules) + "\n"


def _properties(accent: str, *, dark: bool) -> str:
    it = palette(accent, dark=dark)
    return (
        f"--accent: {it.accent}; --accent-ink: {it.ink}; --accent-soft: {it.soft}; "
        f"--focus: {it.accent};"
    )


def closed(error: PortalClosed, *, status: int, goes_on: bool = False) -> Shown:
    """The page that says why there is no access; ``goes_on``: another session is open."""
    values = {
        "reason": error.detail,
        "posted": str(error.detail),  # to the page around this one, whose language is not known
        "advice": AGAIN,
        "goes_on": goes_on,
    }
    return Shown("portal/closed.html", values, status)


def texts_of(error: HomingError, language: Language) -> tuple[str, str]:
    """The title and the text of an error, for people who know nothing of the installation."""
    if sentences := _sentences_of(error):
        title, *rest = map(language.text, sentences)
        return title, "".join(rest)
    reasons = reasons_text(error.problems, language)
    return language.message(error.title), reasons or language.text(error.detail)


def _sentences_of(error: HomingError) -> tuple[Sentence, ...]:
    """What a person reads instead of the texts of the error; empty: nothing else."""
    if isinstance(error, Forged):
        return OUT_OF_DATE
    if error.http_status in TEXTS:
        return TEXTS[error.http_status]
    if error.http_status >= 500:
        return TROUBLE
    if isinstance(error, TooMany):
        seconds = max(1, -(-error.after_ms // 1000))
        return say("That was too much at once."), say("Try again in {seconds} s.", seconds=seconds)
    if isinstance(error, NotFound):
        return say("There is nothing here."), say("It may have been removed.")
    return ()


def key_session(link: PortalLink) -> KeySession:
    """The session as the tokens of forms and the secrets of one page are made for it."""
    assert link.session_hash is not None
    return KeySession(link.session_hash.hex(), show_id(LINK, link.id), link.opened_at or 0)


def cookie_name(headers: Mapping[bytes, bytes]) -> str:
    """The name of the session cookie; every request that needs it is a form with its origin."""
    local = is_local(headers.get(b"host", b"").decode("latin-1"))
    return LOCAL_COOKIE if local and not is_secure(headers) else COOKIE
