"""The search field of the deliveries: ``status:dropped type:invoice.* url:acme since:2h``.

Every qualifier narrows the search; a word without a qualifier is searched for in the URL. The store
evaluates all conditions, for a list and for a bulk replay alike. A page reads a bounded number of
rows.
"""

from __future__ import annotations

import shlex

from msgspec import Struct

from homing.app.access import Caller
from homing.app.deliveries import Deliveries
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import say
from homing.model import Reason, Status
from homing.policy.admission import is_key, is_type, tenant_problem
from homing.policy.match import ALL
from homing.policy.moments import moment
from homing.policy.workfront_ids import read_either_id
from homing.ports import DeliveryFilter, DeliveryRow, ReplayFilter, Selection
from homing.web.query import url_part_problem

CHARS_MAX = 1_000
PAGES_MAX = 2  # pages of the store per page shown: the store may return fewer rows than its limit
_TOO_LONG = say("must be at most {limit} characters", limit=CHARS_MAX)
QUALIFIERS = (
    "status",
    "reason",
    "type",
    "url",
    "since",
    "until",
    "endpoint",
    "subscription",
    "event",
    "tenant",
)


class Search(Struct, frozen=True):
    """A valid search."""

    text: str = ""
    conditions: DeliveryFilter = DeliveryFilter()

    def replay(self, *, as_of: int) -> ReplayFilter | None:
        """This search for deliveries finished by ``as_of``; None if it asks for pending ones."""
        if self.conditions.status is Status.PENDING:
            return None
        names = Selection.__struct_fields__
        asked = {name: getattr(self.conditions, name) for name in names}
        return ReplayFilter(**asked, as_of=as_of)


def read_search(text: str, *, now: int) -> Search:
    """Parses a search; raises Invalid with every wrong qualifier."""
    if len(text) > CHARS_MAX:
        raise Invalid(problems=(FieldProblem("q", _TOO_LONG),))
    problems: list[FieldProblem] = []
    given: dict[str, str] = {}
    for word in _words(text):
        name, colon, value = word.partition(":")
        if not colon or name in {"http", "https"}:
            name, value = "url", word
        if name not in QUALIFIERS:
            reason = say("is not one of {names}", names=", ".join(QUALIFIERS))
            problems.append(FieldProblem(name[:64], reason))
        elif not value:
            problems.append(FieldProblem(name, say("must have a value")))
        given[name] = value
    values = _Values(given, problems, now)
    search = Search(
        text=text,
        conditions=DeliveryFilter(
            tenant=values.tenant(),
            status=values.status(),
            endpoint_id=values.number("endpoint", "ep"),
            subscription_id=values.number("subscription", "sub"),
            reason=values.reason(),
            event_key=values.event(),
            type=values.type(),
            url=values.url(),
            since=values.time("since"),
            until=values.time("until"),
        ),
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
    """Reads the values of qualifiers and collects their problems."""

    def __init__(self, given: dict[str, str], problems: list[FieldProblem], now: int) -> None:
        self._given, self._problems, self._now = given, problems, now

    def _wrong(self, name: str, reason: str) -> None:
        self._problems.append(FieldProblem(name, reason))

    def tenant(self) -> str | None:
        value = self._given.get("tenant")
        if value is not None:
            self._problems.extend(tenant_problem(value))
        return value

    def status(self) -> Status | None:
        value = self._given.get("status")
        if value is not None and value not in list(Status):
            self._wrong("status", say("must be one of {names}", names=", ".join(Status)))
            return None
        return None if value is None else Status(value)

    def number(self, name: str, prefix: str) -> int | None:
        value = self._given.get(name)
        found = None if value is None else read_either_id(prefix, value)
        if value is not None and found is None:
            self._wrong(name, say("must be an id that begins with {prefix}", prefix=f"{prefix}_"))
        return found

    def type(self) -> str | None:
        value = self._given.get("type")
        if value is None or value == ALL:
            return None
        if not is_type(value.removesuffix("*")):
            self._wrong("type", say("must be a type like invoice.paid, or invoice.*"))
        return value

    def reason(self) -> Reason | None:
        value = self._given.get("reason")
        if value is not None and value not in list(Reason):
            self._wrong("reason", say("must be one of {names}", names=", ".join(Reason)))
            return None
        return None if value is None else Reason(value)

    def url(self) -> str | None:
        value = self._given.get("url") or None
        if value is not None and (reason := url_part_problem(value)):
            self._wrong("url", reason)
        return value

    def time(self, name: str) -> int | None:
        value = self._given.get(name)
        try:
            return None if value is None else moment(value, name, now=self._now)
        except Invalid as error:
            self._problems.extend(error.problems)
            return None

    def event(self) -> str | None:
        value = self._given.get("event") or None
        if value is not None and not is_key(value):
            self._wrong("event", say("must be the id of an event"))
        return value


async def find(
    deliveries: Deliveries,
    caller: Caller,
    search: Search,
    *,
    before_id: int | None,
    limit: int,
) -> tuple[list[DeliveryRow], int | None]:
    """A page of matching deliveries, newest first, and the ``before_id`` of the next page."""
    found: list[DeliveryRow] = []
    for _ in range(PAGES_MAX):
        rows, before_id = await deliveries.page(
            caller, search.conditions, before_id=before_id, limit=limit - len(found)
        )
        found += rows
        if before_id is None or len(found) == limit:
            break
    return found, before_id
