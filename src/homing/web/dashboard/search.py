"""The search field of the deliveries: ``status:dropped type:invoice.* url:acme since:2h``.

Every qualifier narrows; a word without one is looked for in the URL. What the store can answer by
an index goes to it, the rest (parts of a URL, patterns of a type) is looked at row by row, a
bounded number of them for a page.
"""

from __future__ import annotations

import shlex

from msgspec import Struct

from homing.errors import FieldProblem, Invalid
from homing.model import Status, read_id
from homing.policy.admission import is_key, is_type, tenant_problem
from homing.ports import DeliveryFilter, DeliveryRow, ReplayFilter, ViewStore
from homing.web.query import moment

CHARS_MOST = 1_000
ROWS_LOOKED = 4_000
ROWS_AT_ONCE = 200
QUALIFIERS = ("status", "type", "url", "since", "endpoint", "subscription", "event", "tenant")


class Search(Struct, frozen=True):
    """A search that was understood."""

    text: str = ""
    conditions: DeliveryFilter = DeliveryFilter()
    url: str = ""  # a part of it
    prefix: str = ""  # of the type, from ``invoice.*``
    event: str = ""  # its id

    def fits(self, row: DeliveryRow) -> bool:
        return (
            self.url in row.url.lower()
            and row.event_type.startswith(self.prefix)
            and (not self.event or row.event_key == self.event)
        )

    @property
    def plain(self) -> bool:
        """Whether the store alone can answer it."""
        return not (self.url or self.prefix or self.event)

    def replay(self) -> ReplayFilter | None:
        """The finished ones among them; None where a bulk replay cannot say it."""
        it = self.conditions
        if not self.plain or it.status is Status.PENDING:
            return None
        return ReplayFilter(
            tenant=it.tenant,
            status=it.status,
            endpoint_id=it.endpoint_id,
            subscription_id=it.subscription_id,
            type=it.type,
            since=it.since,
        )


def read_search(text: str, *, tenant: str | None, now: int) -> Search:
    """Raises Invalid with every qualifier that is wrong. ``tenant``: the visitor's own."""
    if len(text) > CHARS_MOST:
        raise Invalid(problems=(FieldProblem("q", f"must be at most {CHARS_MOST:,} characters"),))
    problems: list[FieldProblem] = []
    given: dict[str, str] = {}
    for word in _words(text):
        name, colon, value = word.partition(":")
        if not colon or name in {"http", "https"}:
            name, value = "url", word
        if name not in QUALIFIERS:
            problems.append(FieldProblem(name[:64], f"is not one of {', '.join(QUALIFIERS)}"))
        elif not value:
            problems.append(FieldProblem(name, "must have a value"))
        given[name] = value
    values = _Values(given, problems, now)
    search = Search(
        text=text,
        conditions=DeliveryFilter(
            tenant=values.tenant(tenant),
            status=values.status(),
            endpoint_id=values.number("endpoint", "ep"),
            subscription_id=values.number("subscription", "sub"),
            type=values.type(),
            since=values.since(),
        ),
        url=given.get("url", "").lower(),
        prefix=values.prefix(),
        event=values.event(),
    )
    if problems:
        raise Invalid(problems=tuple(problems))
    return search


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # A quote that does not end.
        return text.split()


class _Values:
    """Reads the values of qualifiers; what is wrong is gathered."""

    def __init__(self, given: dict[str, str], problems: list[FieldProblem], now: int) -> None:
        self._given, self._problems, self._now = given, problems, now

    def _wrong(self, name: str, reason: str) -> None:
        self._problems.append(FieldProblem(name, reason))

    def tenant(self, own: str | None) -> str | None:
        value = self._given.get("tenant")
        if value is not None:
            self._problems.extend(tenant_problem(value))
        if own is None:
            return value
        return own if value in {None, own} else " "  # No tenant has this name.

    def status(self) -> Status | None:
        value = self._given.get("status")
        if value is not None and value not in list(Status):
            self._wrong("status", f"must be one of {', '.join(Status)}")
            return None
        return None if value is None else Status(value)

    def number(self, name: str, prefix: str) -> int | None:
        value = self._given.get(name)
        found = None if value is None else read_id(prefix, value)
        if value is not None and found is None:
            self._wrong(name, f"must be an id that begins with {prefix}_")
        return found

    def type(self) -> str | None:
        value = self._given.get("type")
        if value is None or value.endswith("*"):
            return None
        if not is_type(value):
            self._wrong("type", "must be a type like invoice.paid, or invoice.*")
        return value

    def prefix(self) -> str:
        value = self._given.get("type", "")
        if not value.endswith("*"):
            return ""
        prefix = value[:-1]
        if prefix and not is_type(prefix):
            self._wrong("type", "must be a type like invoice.paid, or invoice.*")
        return prefix

    def since(self) -> int | None:
        value = self._given.get("since")
        try:
            return None if value is None else moment(value, "since", now=self._now)
        except Invalid as error:
            self._problems.extend(error.problems)
            return None

    def event(self) -> str:
        value = self._given.get("event", "")
        if value and not is_key(value):
            self._wrong("event", "must be the id of an event")
        return value


async def find(
    views: ViewStore, search: Search, *, before_id: int | None, limit: int
) -> tuple[list[DeliveryRow], int | None]:
    """A page of what fits, newest first, and where the next begins."""
    if search.plain:
        return await views.deliveries(search.conditions, before_id=before_id, limit=limit)
    found: list[DeliveryRow] = []
    looked = 0
    while True:
        rows, after = await views.deliveries(
            search.conditions, before_id=before_id, limit=ROWS_AT_ONCE
        )
        for row in rows:
            if search.fits(row):
                found.append(row)
                if len(found) == limit:
                    return found, row.delivery.id
        looked += ROWS_AT_ONCE
        before_id = after
        if before_id is None or looked >= ROWS_LOOKED:
            return found, before_id
