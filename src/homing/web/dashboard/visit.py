"""One request for a page: who asks, what for, and the answers that a page can give."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from homing.errors import Forbidden, NotFound
from homing.model import read_id
from homing.policy.keys import Role
from homing.web.answer import Answer, Headers
from homing.web.auth import Caller
from homing.web.dashboard.forms import FORM_BYTES_MOST
from homing.web.options import Parts
from homing.web.query import Query
from homing.web.texts import check_texts

HTML = b"text/html; charset=utf-8"


class Right(StrEnum):
    """What a page asks of its visitor."""

    NOTHING = "nothing"  # open to all
    READ = "read"
    MANAGE = "manage"  # subscriptions, endpoints, deliveries, replays
    PUBLISH = "publish"  # events
    ADMIN = "admin"  # the whole installation


_RIGHTS: dict[Role, frozenset[Right]] = {
    Role.ADMIN: frozenset(Right),
    Role.MANAGER: frozenset({Right.NOTHING, Right.READ, Right.MANAGE}),
    Role.VIEWER: frozenset({Right.NOTHING, Right.READ}),
    Role.PUBLISHER: frozenset(
        {Right.NOTHING}
    ),  # no page is open to it, so it publishes by the API only
}


class Visitor(Struct, frozen=True):
    """Who is signed in; templates ask it what they may offer."""

    caller: Caller

    @property
    def name(self) -> str:
        return self.caller.name

    @property
    def tenant(self) -> str | None:
        """None: all tenants."""
        return self.caller.tenant

    @property
    def role(self) -> Role:
        return self.caller.role

    def may(self, right: Right) -> bool:
        return right in _RIGHTS[self.caller.role]


NOBODY = Visitor(Caller("", Role.PUBLISHER, ""))


class Shown(Struct, frozen=True):
    """A page to be rendered: its template and what stands in it."""

    template: str
    values: dict[str, Any]
    status: int = 200
    headers: Headers = ()


class Visit:
    """One request on its way through a page."""

    __slots__ = ("_form", "_path", "headers", "parts", "query", "source", "target", "token", "who")

    def __init__(
        self,
        parts: Parts,
        who: Visitor,
        *,
        path: Mapping[str, str],
        target: str,
        query: Query,
        form: Mapping[str, str],
        headers: Mapping[bytes, bytes],
        token: str,
        source: str,
    ) -> None:
        self.parts, self.who, self.query = parts, who, query
        self.target, self.headers, self.token, self.source = target, headers, token, source
        self._path, self._form = path, form
        check_texts(path.items())

    @property
    def now(self) -> int:
        return self.parts.options.now()

    @property
    def partly(self) -> bool:
        """Asked for by a script of the page, which takes out of the answer what it needs."""
        return b"hx-request" in self.headers

    def field(self, name: str) -> str:
        """A field of the form that was sent; empty where there is none."""
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
        """The moment at which the page was made that this form stands on; now if it says none."""
        text = self.field("as_of")
        now = self.now
        return min(int(text), now) if text.isascii() and text.isdigit() and len(text) < 16 else now

    def number(self, prefix: str) -> int:
        """The number behind the ``{id}`` of the path; raises NotFound."""
        number = read_id(prefix, self.key())
        if number is None:
            raise NotFound(f"Ids of this kind begin with {prefix}_.")
        return number

    def tenant(self) -> str | None:
        """The tenant to show: the visitor's own, or the one chosen; None: all."""
        return self.who.tenant or self.query.tenant()

    def sees(self, tenant: str) -> None:
        """Raises NotFound for what belongs to another tenant: it does not even exist."""
        if not self.who.caller.sees(tenant):
            raise NotFound

    def need(self, right: Right) -> None:
        """Raises Forbidden."""
        if not self.who.may(right):
            raise Forbidden(f"A key with the role {self.who.role} may not do this.")

    # --- answers -----------------------------------------------------------------------------

    def show(self, template: str, *, status: int = 200, **values: Any) -> Shown:
        return Shown(template, values, status)

    def done(self, said: str, *, to: str) -> Answer:
        """Something was done: say so on the page ``to``; where that is open already, refresh it."""
        if not self.partly:
            return Answer(303, b"", HTML, ((b"location", to.encode()), said_cookie(said)))
        if self._is_at(to):
            return Answer(200, b"", HTML, told(said))
        return Answer(200, b"", HTML, ((b"hx-redirect", to.encode()), said_cookie(said)))

    def _is_at(self, to: str) -> bool:
        at = self.headers.get(b"hx-current-url", b"").decode("latin-1")
        return at.partition("://")[2].partition("/")[2].partition("?")[0] == to.lstrip("/")

    def json(self, content: object) -> Answer:
        return Answer(200, encode(content))


def told(said: str, *, bad: bool = False) -> Headers:
    """Headers by which the page shows a message, and refreshes what is live on it."""
    words = {"said": {"text": said, "bad": bad}}
    events = words if bad else {**words, "refresh": True}
    return ((b"hx-trigger", _ascii(events)), (b"hx-reswap", b"none"))


SAID = "homing_said"


def said_cookie(said: str) -> tuple[bytes, bytes]:
    """A message for the next page, shown once."""
    value = said.encode().hex()
    return (
        b"set-cookie",
        f"{SAID}={value}; Path=/; Max-Age=30; HttpOnly; SameSite=Strict".encode(),
    )


def read_said(value: str) -> str:
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


Handler = Callable[[Visit], Awaitable[Shown | Answer]]


class Page(Struct, frozen=True, kw_only=True):
    """One method at one path of the dashboard."""

    path: str
    handler: Handler
    method: str = "GET"
    right: Right = Right.READ
    form_bytes: int = FORM_BYTES_MOST
