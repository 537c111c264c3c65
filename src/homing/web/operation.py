"""One table describes the API: the routes are made from it, and so is the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field

from homing.errors import HomingError, NotFound
from homing.model import read_id
from homing.policy.keys import Role
from homing.web.answer import JSON, Answer
from homing.web.auth import NOBODY, Caller
from homing.web.body import decode
from homing.web.options import Parts
from homing.web.query import LIMIT_DEFAULT, LIMIT_MOST, Query
from homing.web.texts import check_texts

_T = TypeVar("_T")


class Call:
    """One request on its way through a handler. Raises Invalid for a path that is no text."""

    __slots__ = ("_body", "_path", "parts", "query", "site", "who")

    def __init__(
        self, parts: Parts, *, path: dict[str, str], query: Query, body: bytes, who: Caller
    ) -> None:
        self.site = ""  # scheme and host that it came to
        self.parts, self.query, self.who = parts, query, who
        self._path, self._body = path, body
        check_texts(path.items())

    @property
    def now(self) -> int:
        return self.parts.options.now()

    def content(self, kind: type[_T], *, empty: bytes = b"") -> _T:
        """The body, or what stands for an empty one; raises BadRequest or Invalid."""
        return decode(self._body or empty, kind)

    def key(self) -> str:
        """The ``{id}`` of the path, as text."""
        return self._path["id"]

    def number(self, prefix: str) -> int:
        """The number behind the ``{id}`` of the path; raises NotFound."""
        number = read_id(prefix, self.key())
        if number is None:
            raise NotFound(f"Ids of this kind begin with {prefix}_.")
        return number

    async def own_endpoint(self, endpoint_id: int | None) -> int | None:
        """The same id; for an endpoint of another tenant, one that does not exist."""
        if endpoint_id is None or self.who.tenant is None:
            return endpoint_id
        endpoint = await self.parts.views.endpoint(endpoint_id)
        return endpoint_id if endpoint is not None and self.who.sees(endpoint.tenant) else 0


Handler = Callable[[Call], Awaitable[Answer]]


class Manners(Struct, frozen=True):
    """How a door that is not of our own making takes keys, and refuses."""

    key: Callable[[Mapping[bytes, bytes]], bytes | None]  # as Authorization: Bearer has it
    refusal: Callable[[HomingError], Answer]
    problem: type[Struct]  # what a refusal holds
    key_headers: tuple[str, ...] = ()  # that may carry a key, besides Authorization


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
    handler: Handler | None  # None: publishing, which has a way of its own
    status: int = 200
    answer: type[Struct] | None = None
    each: type[Struct] | None = None  # of an answer that is a bare list
    also: dict[int, type[Struct]] = {}  # other good answers, by status
    request: type[Struct] | None = None
    request_types: tuple[str, ...] = (JSON.decode(),)
    answer_type: str = JSON.decode()
    params: tuple[Param, ...] = ()
    errors: tuple[type[HomingError], ...] = ()
    manners: Manners | None = None  # None: ours
    open: bool = False  # needs no key
    roles: frozenset[Role] = NOBODY  # whose keys it takes: who is not named is refused


TENANT = Param("tenant", "Only of this tenant; default: all that the key may see.")
TENANT_ONE = Param("tenant", "Whose it is; default: the key's tenant, or `default`.")
CURSOR = Param("cursor", "The next_cursor of an earlier answer.")
LIMIT = Param(
    "limit",
    f"How many at most; default {LIMIT_DEFAULT}.",
    {"type": "integer", "minimum": 1, "maximum": LIMIT_MOST, "default": LIMIT_DEFAULT},
)
PAGE = (CURSOR, LIMIT)


def choice(name: str, sentence: str, choices: type[Any]) -> Param:
    """A parameter that takes one of these words."""
    return Param(name, sentence, {"type": "string", "enum": [str(one) for one in choices]})
