"""``PageRequest``: one request for a page, with methods for the responses of a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from secrets import token_bytes
from typing import Any

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from homing.app.access import Caller, roles_of
from homing.app.app import App
from homing.app.status import Condition
from homing.errors import FieldProblem, NotFound
from homing.languages.language import LANGUAGES, choose
from homing.languages.sentences import Sentence, say
from homing.policy.audit import form_path, state_of
from homing.policy.keys import Role
from homing.policy.sent_form import SentForm, refuse_changed, seal_of
from homing.policy.workfront_ids import read_either_id
from homing.ports import KeySession
from homing.web.dashboard.cookies import read_cookie
from homing.web.dashboard.forms import FORM_BYTES_MAX
from homing.web.dashboard.sessions import SECRET_LIFE_S, SessionCookies
from homing.web.problems import reasons_text
from homing.web.query import Query
from homing.web.response import Headers, Response
from homing.web.texts import check_texts

HTML = b"text/html; charset=utf-8"
MESSAGE_LIFE_S = 30
TENANT_COOKIE = "homing_tenant"  # whose lists a caller of all tenants sees; empty: all
LANGUAGE_COOKIE = "homing_language"  # the language that a person has chosen
LANGUAGE_LIFE_S = 365 * 86_400


class Shown(Struct, frozen=True):
    """A page to be rendered: its template and its values."""

    template: str
    values: dict[str, Any]
    status: int = 200
    headers: Headers = ()


class Jar(Struct, frozen=True):
    """The names and attributes of the cookies with which a page tells the next one something."""

    message: str = "homing_message"
    language: str = LANGUAGE_COOKIE
    secret: str = "homing_secret"  # noqa: S105 - a name
    attributes: str = "SameSite=Strict"
    is_always_secure: bool = False  # else Secure is added where the browser uses https

    def set_cookie(self, name: str, value: str, *, path: str, life_s: int) -> tuple[bytes, bytes]:
        """The header that sets a cookie; a life of 0 deletes it."""
        text = f"{name}={value}; Path={path}; Max-Age={life_s}; HttpOnly; {self.attributes}"
        return (b"set-cookie", text.encode())


DASHBOARD_JAR = Jar()


class PageRequest:
    """One request for a page."""

    __slots__ = (
        "_cookies",
        "_form",
        "_jar",
        "_path",
        "_session",
        "app",
        "caller",
        "headers",
        "language",
        "query",
        "source",
        "target",
    )

    def __init__(
        self,
        app: App,
        caller: Caller,
        *,
        path: Mapping[str, str],
        target: str,
        query: Query,
        form: Mapping[str, str],
        headers: Mapping[bytes, bytes],
        session: KeySession | None,
        cookies: SessionCookies,
        source: str,
        jar: Jar = DASHBOARD_JAR,
    ) -> None:
        self.app, self.caller, self.query = app, caller, query
        self.target, self.headers, self.source = target, headers, source
        self._path, self._form = path, form
        self._session, self._cookies, self._jar = session, cookies, jar
        given = headers.get(b"cookie", b"")
        accepted = headers.get(b"accept-language", b"").decode("latin-1")
        self.language = choose(read_cookie(given, jar.language), accepted)
        check_texts(path.items())

    @property
    def now(self) -> int:
        return self.app.now()

    @property
    def token(self) -> str:
        """The token that every form of this session carries now; empty without a session."""
        if self._session is None:
            return ""
        caller = self.caller
        return self._cookies.token(self._session, caller.tenant, caller.chosen, now=self.now)

    @property
    def is_partial(self) -> bool:
        """Whether a script of a page sent the request and uses only a part of the response."""
        return b"hx-request" in self.headers

    # --- what a form was made from -----------------------------------------------------------

    def with_form(self, *, target: str) -> Caller:
        """The caller with the form that was sent to this address."""
        once, at = self.field("once"), target.partition("?")[0]
        form = SentForm(
            self.field("seal"),
            sha256(f"{self.field('csrf')}:{at}:{once}".encode()).digest() if once else b"",
            token_bytes(16),
        )
        return replace(self.caller, form=form)

    def once_id(self) -> str | None:
        """An event id for what a form publishes: a second submit publishes nothing."""
        form = self.caller.form
        return f"form-{form.once.hex()[:32]}" if form is not None and form.once else None

    def seal(self, value: Any, object_id: str, *names: str) -> str:
        """What a form carries of the object that it changes: its values, or these of them."""
        state = state_of(value)
        shown = {name: state.get(name) for name in names} if names else state
        return seal_of(form_path(value.tenant, object_id), shown)

    def refuse_changed(self, value: Any, object_id: str) -> None:
        """Raises FormOutdated if the object is not as the form that edits it was made from.

        The commit of the change refuses it as well; before it, nothing is sent to a changed URL.
        """
        refuse_changed(self.field("seal"), form_path(value.tenant, object_id), state_of(value))

    # --- fields ------------------------------------------------------------------------------

    def field(self, name: str) -> str:
        """A field of the submitted form; empty if it is absent."""
        return self._form.get(name, "").strip()

    def form(self) -> Mapping[str, str]:
        return self._form

    def key(self) -> str:
        """The ``{id}`` of the path, as text."""
        return self._path["id"]

    def part(self, name: str) -> str:
        """Another part of the path."""
        return self._path[name]

    def as_of(self) -> int:
        """The time at which the page with this form was rendered; now if the form does not say."""
        text = self.field("as_of")
        now = self.now
        return min(int(text), now) if text.isascii() and text.isdigit() and len(text) < 16 else now

    def number(self, prefix: str) -> int:
        """The number behind the ``{id}`` of the path; raises NotFound."""
        number = read_either_id(prefix, self.key())
        if number is None:
            raise NotFound(say("Ids of this kind begin with {prefix}_.", prefix=prefix))
        return number

    def condition(self) -> Condition:
        """Problems of this process, for the banners."""
        return self.app.status.condition(self.caller)

    def one_time_secret(self) -> tuple[str, Headers]:
        """The secret that ``done`` left for this page, and the header that deletes it."""
        name = self._jar.secret
        value = read_cookie(self.headers.get(b"cookie", b""), name)
        if not value or self._session is None:
            return "", ()
        secret = self._cookies.decrypt(self._session, value, now=self.now)
        path = self.target.partition("?")[0]
        return secret, (self._jar.set_cookie(name, "", path=path, life_s=0),)

    def message(self) -> tuple[str, Headers]:
        """The message that ``done`` left for this page, and the header that deletes it."""
        name = self._jar.message
        value = read_cookie(self.headers.get(b"cookie", b""), name)
        if not value or self.is_partial:
            return "", ()
        return read_message(value), (self._jar.set_cookie(name, "", path="/", life_s=0),)

    def reasons(self, problems: Iterable[FieldProblem]) -> str:
        """The problems of fields as sentences in the reader's language."""
        return reasons_text(problems, self.language)

    # --- responses ---------------------------------------------------------------------------

    def show(
        self, template: str, *, status: int = 200, headers: Headers = (), **values: Any
    ) -> Shown:
        return Shown(template, values, status, headers)

    def done(self, message: str, *, to: str, secret: str = "") -> Response:
        """A redirect to the page ``to``, which shows the message once.

        If a script of that page sent the form, the page stays and reloads its live parts. Because
        of the redirect, a reload does not send the form again. ``secret`` is shown once as well.
        """
        message = self.language.text(message)
        jar, value = self._jar, message.encode().hex()
        headers: Headers = (jar.set_cookie(jar.message, value, path="/", life_s=MESSAGE_LIFE_S),)
        if secret:
            headers = (*headers, self._secret_cookie(secret, to.partition("?")[0]))
        if not self.is_partial:
            return Response(303, b"", HTML, ((b"location", to.encode()), *headers))
        if self.is_at(to) and not secret:
            return Response(200, b"", HTML, toast_headers(message))
        return Response(200, b"", HTML, ((b"hx-redirect", to.encode()), *headers))

    def choose_language(self, to: str) -> Response:
        """A redirect to the page ``to``, with a cookie that keeps the chosen language."""
        code = LANGUAGES.get(self.field("language"), self.language).code
        cookie = self._jar.set_cookie(self._jar.language, code, path="/", life_s=LANGUAGE_LIFE_S)
        return Response(303, b"", HTML, ((b"location", to.encode()), cookie))

    def see_other(self, to: str) -> Response:
        """A redirect without a message, for a command that continues at another address."""
        return Response(303, b"", HTML, ((b"location", to.encode()),))

    def _secret_cookie(self, secret: str, path: str) -> tuple[bytes, bytes]:
        assert self._session is not None
        value = self._cookies.encrypt(self._session, secret, now=self.now)
        name, line = self._jar.set_cookie(self._jar.secret, value, path=path, life_s=SECRET_LIFE_S)
        adds_secure = is_secure(self.headers) and not self._jar.is_always_secure
        return name, line + (b"; Secure" if adds_secure else b"")

    def is_at(self, to: str) -> bool:
        """Whether a script of the page ``to`` sent the request."""
        at = self.headers.get(b"hx-current-url", b"").decode("latin-1")
        return at.partition("://")[2].partition("/")[2].partition("?")[0] == to.lstrip("/")

    def json(self, content: object) -> Response:
        return Response(200, encode(content))


def toast_headers(message: str, *, bad: bool = False) -> Headers:
    """Headers that make the page show a toast and, after a success, reload its live parts."""
    toast = {"toast": {"text": message, "bad": bad}}
    events = toast if bad else {**toast, "refresh": True}
    return ((b"hx-trigger", _ascii(events)), (b"hx-reswap", b"none"))


def is_secure(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the browser uses https."""
    return headers.get(b"origin", b"").startswith(b"https://")


def other_tenant(made_for: str | None, shown: str | None) -> Sentence:
    """Why a form is refused that was made while another tenant was chosen."""
    if made_for is None:
        return say(
            "This page was made for all tenants, and now the tenant {now} is chosen. "
            "Open the page again.",
            now=str(shown),
        )
    if shown is None:
        return say(
            "This page was made for the tenant {before}, and now all tenants are shown. "
            "Open the page again.",
            before=made_for,
        )
    return say(
        "This page was made for the tenant {before}, and now the tenant {now} is chosen. "
        "Open the page again.",
        before=made_for,
        now=shown,
    )


def read_message(value: str) -> str:
    try:
        return bytes.fromhex(value[:2_000]).decode("utf-8", "replace")
    except ValueError:
        return ""


def _ascii(content: object) -> bytes:
    text = encode(content).decode()
    return "".join(one if one < "\x7f" else _escape(one) for one in text).encode()


def _escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


Handler = Callable[[PageRequest], Awaitable[Shown | Response]]


class Page(Struct, frozen=True, kw_only=True):
    """One method at one path of the dashboard."""

    path: str
    handler: Handler
    method: str = "GET"
    open: bool = False  # needs no session
    use_case: Callable[..., Any] | None = None  # None: no role may use it, unless it is open
    form_bytes: int = FORM_BYTES_MAX
    any_tenant: bool = False  # its form is the same whichever tenant is shown

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that may use it: those of its use case."""
        return frozenset() if self.use_case is None else roles_of(self.use_case)
