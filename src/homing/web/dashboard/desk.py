"""The dashboard as the router sees it: host, session, form token and right, then the page.

Whatever a page raises is answered as a page too, or as a message on the page where a script of it
asked. Every answer carries the same headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hmac import compare_digest
from urllib.parse import quote

from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from homing.errors import Forbidden, HomingError, NotAuthorized, TooMany
from homing.policy.keys import Role, read_key
from homing.ports import KeySession
from homing.web.answer import Answer, send_answer
from homing.web.auth import ADMIN, Caller, Keys, source_of
from homing.web.body import ClientGone, read_body
from homing.web.dashboard.cookies import read_cookie
from homing.web.dashboard.files import Files
from homing.web.dashboard.forms import SIGN_IN_BYTES_MOST, read_form
from homing.web.dashboard.live import Live
from homing.web.dashboard.render import Renderer
from homing.web.dashboard.routes import PAGES
from homing.web.dashboard.sessions import COOKIE, LIFE_MS, Sessions, is_young
from homing.web.dashboard.shield import HEADERS, Forged, check_host, check_origin
from homing.web.dashboard.targets import Targets
from homing.web.dashboard.visit import (
    HTML,
    NOBODY,
    SAID,
    Page,
    Right,
    Shown,
    Visit,
    Visitor,
    read_said,
    told,
)
from homing.web.options import Parts
from homing.web.problems import (
    MethodNotAllowed,
    NoSuchPath,
    Unexpected,
    log_unexpected,
    refusal_headers,
)
from homing.web.query import Query

SIGN_IN = "/sign-in"
IN_LOG = "It is in the server's log."
NO_PAGE = f"<!doctype html><title>Homing</title><p>{Unexpected.__doc__} {IN_LOG}".encode()
ADMIN_HOLDER = "admin"  # longer or shorter than every prefix of a key


class Desk:
    """Answers every page."""

    def __init__(self, parts: Parts, keys: Keys) -> None:
        self.parts, self._keys = parts, keys
        self.files = Files()
        self.live = Live(parts.engine, parts.options.leaving)
        self._sessions = Sessions(parts.options.admin_key)
        self.targets = Targets(page.path for page in PAGES if page.method == "GET")
        self._renderer = Renderer(self.files, frozenset(page.path for page in PAGES))

    def routes(self) -> Iterator[BaseRoute]:
        by_path: dict[str, dict[str, Page]] = {}
        for page in PAGES:
            by_path.setdefault(page.path, {})[page.method] = page
        for path, pages in by_path.items():
            yield Route(path, _Paths(self, pages))
        yield Route(SIGN_IN, _SignIn(self))
        yield Route("/sign-out", _SignOut(self))
        yield Route("/live", _Stream(self))
        yield Route("/static/{digest}/{name:path}", _Static(self))

    # --- who ---------------------------------------------------------------------------------

    def session(self, headers: Mapping[bytes, bytes]) -> KeySession | None:
        value = read_cookie(headers.get(b"cookie", b""), COOKIE)
        return self._sessions.read(value, now=self.parts.options.now()) if value else None

    async def visitor(self, session: KeySession | None) -> Visitor:
        """Raises NotAuthorized where nobody is signed in, or the key no longer works."""
        if session is None or not is_young(session, now=self.parts.options.now()):
            raise NotAuthorized("Sign in with a key.")
        if not await self.parts.ring.session_lives(session.id):
            raise NotAuthorized("This session has ended.")
        if session.holder == ADMIN_HOLDER:
            return Visitor(Caller(ADMIN, Role.ADMIN, None))
        key = await self.parts.ring.named(session.holder)
        if key is None:
            raise NotAuthorized("The key no longer works.")
        return Visitor(Caller(key.name, key.role, key.tenant))

    async def sign_in(self, text: bytes, source: str) -> KeySession:
        """Raises NotAuthorized; Forbidden for a key that opens no page; TooMany."""
        caller = await self._keys.who(b"Bearer " + text, source)
        if not Visitor(caller).may(Right.READ):
            raise Forbidden(f"A key with the role {caller.role} opens no page.")
        given = read_key(text)
        is_admin = compare_digest(text, self.parts.options.admin_key.encode())
        holder = ADMIN_HOLDER if is_admin or given is None else given.prefix
        return await self.parts.ring.sessions.open(holder)

    async def sign_out(self, headers: Mapping[bytes, bytes]) -> None:
        """The session of this cookie opens nothing any more, in no process."""
        session = self.session(headers)
        if session is not None:
            await self.parts.ring.sessions.end(session.id)

    def cookie(self, session: KeySession, *, secure: bool) -> tuple[bytes, bytes]:
        life = LIFE_MS // 1000
        text = (
            f"{COOKIE}={quote(self._sessions.write(session))}; Path=/; Max-Age={life}; "
            f"HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
        )
        return (b"set-cookie", text.encode())

    def check_form(self, session: KeySession | None, token: str) -> None:
        if session is None or not self._sessions.fits(session, token):
            raise Forged("The page is too old. Load it again and repeat.")

    def token(self, session: KeySession | None) -> str:
        return "" if session is None else self._sessions.token(session)

    # --- answers -----------------------------------------------------------------------------

    async def say(self, send: Send, answer: Answer | Shown, visit: Visit) -> None:
        await send_answer(send, self._rendered(answer, visit), shield=HEADERS)

    def _rendered(self, answer: Answer | Shown, visit: Visit) -> Answer:
        """A template that fails is told as a page too."""
        for shown in (answer, self.refused(Unexpected(IN_LOG), visit)):
            if isinstance(shown, Answer):
                return shown
            try:
                return self._render(shown, visit)
            except Exception as error:  # noqa: BLE001 - what went wrong is for our log
                log_unexpected(error, method="", path=visit.target)
        return Answer(500, NO_PAGE, HTML)

    def _render(self, answer: Shown, visit: Visit) -> Answer:
        headers = answer.headers
        said = read_cookie(visit.headers.get(b"cookie", b""), SAID)
        if said and not visit.partly:
            headers = (*headers, (b"set-cookie", f"{SAID}=; Path=/; Max-Age=0".encode()))
        values = {
            "visit": visit,
            "who": visit.who,
            "csrf": visit.token,
            "here": visit.target,
            "now": visit.now,
            "said": read_said(said) if not visit.partly else "",
            "Right": Right,
            **answer.values,
        }
        body = self._renderer.render(answer.template, values)
        return Answer(answer.status, body, HTML, headers)

    def refused(self, error: HomingError, visit: Visit) -> Answer | Shown:
        """The answer to what went wrong."""
        detail = " ".join(f"{it.field}: {it.reason}." for it in error.problems) or error.detail
        if isinstance(error, NotAuthorized):
            to = f"{SIGN_IN}?to={quote(visit.target)}" if visit.target != "/" else SIGN_IN
            name = b"hx-redirect" if visit.partly else b"location"
            return Answer(401 if visit.partly else 303, b"", HTML, ((name, to.encode()),))
        if visit.partly:
            said = f"{error.title} {detail}".strip()
            headers = (*told(said, bad=True), *refusal_headers(error))
            return Answer(error.http_status, b"", HTML, headers)
        values = {"title": error.title, "detail": detail, "status": error.http_status}
        return Shown("error.html", values, error.http_status, refusal_headers(error))

    def visit(self, scope: Scope, who: Visitor = NOBODY, token: str = "") -> Visit:
        """The visit as far as it is known before anything can go wrong."""
        return Visit(
            self.parts,
            who,
            path={},
            target=_target(scope),
            query=Query(b"", ()),
            form={},
            headers=dict(scope["headers"]),
            token=token,
            source=source_of(scope.get("client")),
        )

    async def answer(self, scope: Scope, receive: Receive, send: Send, page: Page) -> None:
        """Let a page answer; every refusal is a page."""
        visit = self.visit(scope)
        try:
            check_host(_host(visit.headers), self.parts.options.hosts)
            session = self.session(visit.headers)
            if page.right is not Right.NOTHING or session is not None:
                visit = self.visit(scope, await self.visitor(session), self.token(session))
            visit.need(page.right)
            form: dict[str, str] = {}
            if page.method == "POST":
                form = await self._form(visit, receive, page.form_bytes)
                if page.right is not Right.NOTHING:
                    self.check_form(session, form.get("csrf", ""))
            full = Visit(
                self.parts,
                visit.who,
                path=scope.get("path_params", {}),
                target=visit.target,
                query=Query(scope["query_string"], None),
                form=form,
                headers=visit.headers,
                token=visit.token,
                source=visit.source,
            )
            answer = await page.handler(full)
        except ClientGone:
            raise
        except HomingError as error:
            answer = self.refused(error, visit)
        except Exception as error:  # noqa: BLE001 - what went wrong is for our log
            log_unexpected(error, method=scope["method"], path=scope["path"])
            answer = self.refused(Unexpected(IN_LOG), visit)
        await self.say(send, answer, visit)

    async def missing(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Nothing is at this address: said as a page to who reads pages, else as a problem."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        if b"text/html" not in dict(scope["headers"]).get(b"accept", b""):
            raise NoSuchPath
        await self.answer(scope, receive, send, _refusing(NoSuchPath(), "GET"))

    async def _form(self, visit: Visit, receive: Receive, most: int) -> dict[str, str]:
        check_origin(visit.headers)
        declared = visit.headers.get(b"content-length")
        room = self.parts.room
        most = SIGN_IN_BYTES_MOST if visit.who is NOBODY else most
        body = await read_body(receive, declared=declared, most=most, room=room)
        try:
            return read_form(body)
        finally:
            room.leave(body)


class _Paths:
    """One path and the methods that it takes."""

    def __init__(self, desk: Desk, pages: dict[str, Page]) -> None:
        self._desk, self._pages = desk, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        page = self._pages.get(method)
        if page is None:
            page = _refusing(MethodNotAllowed(tuple(self._pages)), scope["method"])
        await self._desk.answer(scope, receive, send, page)


def _refusing(error: HomingError, method: str) -> Page:
    async def refuse(_visit: Visit) -> Shown | Answer:
        raise error

    return Page(path="", handler=refuse, method=method, right=Right.NOTHING)


class _SignIn:
    """The door: a key is given once and becomes a session."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._enter if scope["method"] == "POST" else self._ask
        page = Page(path=SIGN_IN, handler=handler, method=scope["method"], right=Right.NOTHING)
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            page = _refusing(MethodNotAllowed(("GET", "POST")), scope["method"])
        scope = {**scope, "headers": _without_session(scope["headers"])}
        await self._desk.answer(scope, receive, send, page)

    async def _ask(self, visit: Visit) -> Shown:
        to = self._desk.targets.own(visit.query.text("to"))
        return visit.show("sign_in.html", problem="", to=to)

    async def _enter(self, visit: Visit) -> Shown | Answer:
        to = self._desk.targets.own(visit.form().get("to", ""))
        try:
            session = await self._desk.sign_in(visit.field("key").encode(), visit.source)
        except (NotAuthorized, Forbidden, TooMany) as error:
            status = error.http_status
            return visit.show("sign_in.html", status=status, problem=error.detail, to=to)
        secure = visit.headers.get(b"origin", b"").startswith(b"https://")
        cookie = self._desk.cookie(session, secure=secure)
        return Answer(303, b"", HTML, ((b"location", to.encode()), cookie))


class _SignOut:
    """The way out."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = Page(path="/sign-out", handler=self._leave, method="POST")
        if scope["method"] != "POST":
            page = _refusing(MethodNotAllowed(("POST",)), scope["method"])
        await self._desk.answer(scope, receive, send, page)

    async def _leave(self, visit: Visit) -> Answer:
        await self._desk.sign_out(visit.headers)
        gone = f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
        headers = ((b"location", SIGN_IN.encode()), (b"set-cookie", gone.encode()))
        return Answer(303, b"", HTML, headers)


class _Stream:
    """The live stream of a tab."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk, headers = self._desk, dict(scope["headers"])
        try:
            check_host(_host(headers), desk.parts.options.hosts)
            session = desk.session(headers)
            await desk.visitor(session)
        except HomingError as error:
            await send_answer(send, Answer(error.http_status, b"", HTML), shield=HEADERS)
            return
        if scope["method"] != "GET":
            refusal = Answer(405, b"", HTML, ((b"allow", b"GET"),))
            await send_answer(send, refusal, shield=HEADERS)
        elif desk.live.full:  # 204 tells a browser not to ask again; the page then polls.
            await send_answer(send, Answer(204), shield=HEADERS)
        else:
            await desk.live.stream(receive, send, HEADERS, check=lambda: desk.visitor(session))


class _Static:
    """A file of the dashboard's own; open to all, for the door has styles too."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        files, params = self._desk.files, scope["path_params"]
        file = files.get(params["name"])
        if file is None or scope["method"] not in {"GET", "HEAD"}:
            page = _refusing(NoSuchPath(), scope["method"])
            await self._desk.answer(scope, receive, send, page)
            return
        # Under another digest it is an old page's: it gets the new file, but must not keep it.
        fresh = files.root == f"/static/{params['digest']}"
        keep = b"public, max-age=31536000, immutable" if fresh else b"no-store"
        head = [
            *HEADERS,
            (b"cache-control", keep),
            (b"content-type", file.content_type),
            (b"content-length", b"%d" % len(file.content)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        body = b"" if scope["method"] == "HEAD" else file.content
        await send({"type": "http.response.body", "body": body})


def _host(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"host", b"").decode("latin-1")


def _target(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    path = quote(scope["path"])
    return f"{path}?{query}" if query else path


def _without_session(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """At the door nobody is signed in yet, whatever an old cookie says."""
    return [(name, value) for name, value in headers if name != b"cookie"]
