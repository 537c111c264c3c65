"""Operations of the API. Routes and the OpenAPI document are built from tables of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field

from homing.app.access import Caller, roles_of
from homing.app.app import App
from homing.errors import HomingError, NotFound
from homing.policy.causes import CLASSES, CODES
from homing.policy.keys import Role
from homing.policy.workfront_ids import read_either_id
from homing.web.body import decode
from homing.web.options import WebOptions, WebParts
from homing.web.query import LIMIT_DEFAULT, LIMIT_MAX, Query
from homing.web.response import JSON, Response
from homing.web.texts import check_texts

_T = TypeVar("_T")


class Call:
    """One request, as its handler sees it. Raises Invalid for a path that is not valid text."""

    __slots__ = ("_body", "_path", "app", "caller", "headers", "options", "query", "site")

    def __init__(
        self, parts: WebParts, *, path: dict[str, str], query: Query, body: bytes, caller: Caller
    ) -> None:
        self.site = ""  # the scheme and host of the request
        self.headers: Mapping[bytes, bytes] = {}
        self.app: App = parts.app
        self.options: WebOptions = parts.options
        self.query, self.caller = query, caller
        self._path, self._body = path, body
        check_texts(path.items())

    @property
    def now(self) -> int:
        return self.app.now()

    def content(self, kind: type[_T], *, empty: bytes = b"") -> _T:
        """The body, or ``empty`` instead of an empty one; raises BadRequest or Invalid."""
        return decode(self._body or empty, kind)

    def key(self) -> str:
        """The ``{id}`` of the path, as text."""
        return self._path["id"]

    def number(self, prefix: str) -> int:
        """The number behind the ``{id}`` of the path; raises NotFound."""
        number = read_either_id(prefix, self.key())
        if number is None:
            raise NotFound(f"Ids of this kind begin with {prefix}_.")
        return number


Handler = Callable[[Call], Awaitable[Response]]


class AuthScheme(Struct, frozen=True):
    """How an API that is compatible with another product reads keys and refuses requests."""

    key: Callable[[Mapping[bytes, bytes]], bytes | None]  # in the form of Authorization: Bearer
    refusal: Callable[[HomingError], Response]
    problem: type[Struct]  # the body of a refusal
    key_headers: tuple[str, ...] = ()  # that may contain a key, besides Authorization


class Param(Struct, frozen=True):
    """A query parameter."""

    name: str
    sentence: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})


class Operation(Struct, frozen=True, kw_only=True):
    """One method at one path."""

    method: str
    path: str
    id: str
    summary: str
    handler: Handler | None  # None: publishing, which has its own ASGI endpoint
    status: int = 200
    response: type[Struct] | None = None
    each: type[Struct] | None = None  # the items of a response that is a list
    also: dict[int, type[Struct]] = {}  # other successful responses, by status
    request: type[Struct] | None = None
    request_types: tuple[str, ...] = (JSON.decode(),)
    response_type: str = JSON.decode()
    params: tuple[Param, ...] = ()
    errors: tuple[type[HomingError], ...] = ()
    auth_scheme: AuthScheme | None = None  # None: Homing's own
    open: bool = False  # needs no key
    by_address: bool = False  # needs no key from an address of metrics_networks
    use_case: Callable[..., Any] | None = None  # None: no role may use it, unless it is open

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that may use it: those of its use case."""
        return frozenset() if self.use_case is None else roles_of(self.use_case)


TENANT = Param("tenant", "Only of this tenant; default: all tenants that the key may see.")
TENANT_ONE = Param("tenant", "The tenant it belongs to; default: the key's tenant, or `default`.")
CURSOR = Param("cursor", "The next_cursor of an earlier response.")
LIMIT = Param(
    "limit",
    f"The maximum number of items; default {LIMIT_DEFAULT}.",
    {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
)
PAGE = (CURSOR, LIMIT)
FAILURE = (
    Param(
        "failure",
        "Only with this failure class; of a delivery, that of its last failed attempt.",
        {"type": "string", "enum": list(CLASSES)},
    ),
    Param(
        "code",
        "Only with this status code; of a delivery, that of its last failed attempt.",
        {"type": "integer", "minimum": CODES.start, "maximum": CODES.stop - 1},
    ),
)


def choice(name: str, sentence: str, choices: type[Any]) -> Param:
    """A parameter whose value is one of these."""
    return Param(name, sentence, {"type": "string", "enum": [str(one) for one in choices]})
