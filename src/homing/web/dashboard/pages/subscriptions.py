"""Subscriptions: create, change, delete, test, rotate; filters tried before they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from homing.errors import FieldProblem, HomingError, Invalid, NotFound
from homing.model import Connector, Format, Subscription, read_id, show_id
from homing.policy.admission import DEFAULT_TENANT, SubscriptionDraft, check_subscription
from homing.policy.exact import decoder, encode
from homing.policy.filters import Filters, read_affordable
from homing.policy.filters_run import Verdict
from homing.policy.rotation import OVERLAP_MS
from homing.web import commands
from homing.web.answer import Answer
from homing.web.dashboard.visit import Page, Right, Shown, Visit
from homing.web.query import show_cursor
from homing.web.show import SUBSCRIPTION

ROWS = 50
TRIED_EVENTS = 10
KEPT = "****"  # a secret field that was not touched


async def subscriptions(visit: Visit) -> Shown:
    before_id = visit.query.cursor()
    rows, after = await visit.parts.views.subscriptions(
        tenant=visit.tenant(), before_id=before_id, limit=ROWS
    )
    cursor = show_cursor(after)
    return visit.show(
        "subscriptions.html",
        rows=rows,
        first=before_id is None,
        older="" if cursor is None else f"?cursor={cursor}",
    )


async def there(visit: Visit) -> Subscription:
    """Raises NotFound."""
    found = await visit.parts.views.subscription(visit.number(SUBSCRIPTION))
    if found is None or found.deleted_at is not None:
        raise NotFound("There is no such subscription.")
    visit.sees(found.tenant)
    return found


async def subscription(visit: Visit) -> Shown:
    found = await there(visit)
    endpoint = await visit.parts.views.endpoint(found.endpoint_id)
    filters = msgspec.json.format(found.filters, indent=2) if found.filters != "[]" else ""
    return visit.show("subscription.html", it=found, endpoint=endpoint, filters=filters, secret="")


# --- create and change -----------------------------------------------------------------------


async def new(visit: Visit) -> Shown:
    fields = {"types": "*", "format": Format.STANDARD.value, "active": "on", "url": ""}
    return _form(visit, fields, {}, None)


async def edit(visit: Visit) -> Shown:
    found = await there(visit)
    return _form(visit, _fields_of(found), {}, found)


def _form(
    visit: Visit,
    fields: Mapping[str, str],
    problems: Mapping[str, str],
    before: Subscription | None,
    *,
    status: int = 200,
) -> Shown:
    return visit.show(
        "subscription_form.html",
        status=status,
        fields=fields,
        problems=problems,
        before=before,
        formats=[it.value for it in Format if it is not Format.WORKFRONT],
        policies=sorted(visit.parts.options.policies),
        connectors=[it.value for it in Connector],
    )


def _fields_of(it: Subscription) -> dict[str, str]:
    """What the form shows of it: secrets never."""
    return {
        "tenant": it.tenant,
        "url": it.url,
        "types": " ".join(it.types),
        "format": it.format.value,
        "token": KEPT if it.token is not None else "",
        "headers": "\n".join(f"{name}: {KEPT}" for name, _ in it.headers),
        "policy": it.policy or "",
        "deadline_s": "" if it.deadline_ms is None else f"{it.deadline_ms / 1000:g}",
        "active": "on" if it.active else "",
        "description": it.description,
        "filters": "" if it.filters == "[]" else msgspec.json.format(it.filters, indent=2),
        "connector": it.connector.value,
    }


def _draft(visit: Visit, before: Subscription | None) -> SubscriptionDraft:
    """The subscription as the form has it, checked as the API checks it; raises Invalid."""
    problems: list[FieldProblem] = []
    tenant = before.tenant if before else visit.who.tenant or visit.field("tenant")
    token: str | None = visit.field("token") or None
    if before is not None and token == KEPT:
        token = before.token
    draft = SubscriptionDraft(
        tenant=tenant or DEFAULT_TENANT,
        url=visit.field("url"),
        types=tuple(visit.field("types").replace(",", " ").split()),
        format=_format(visit.field("format"), before, problems),
        token=token,
        headers=_headers(visit.field("headers"), before, problems),
        policy=visit.field("policy") or None,
        deadline_ms=_deadline(visit.field("deadline_s"), problems),
        rate_per_second=None if before is None else before.rate_per_second,
        active=visit.field("active") == "on",
        description=visit.field("description"),
        filters=_filters(visit.field("filters"), problems),
        connector=Connector.OR if visit.field("connector") == Connector.OR else Connector.AND,
        workfront=None if before is None else before.workfront,
    )
    options = visit.parts.options
    known = before is not None and before.url == draft.url
    try:
        draft = check_subscription(
            draft,
            policies=options.policies,
            refuses=None if known else options.refuses,
            before=before,
        )
    except Invalid as error:
        problems.extend(error.problems)
    if problems:
        raise Invalid(problems=tuple(problems))
    return draft


def _format(text: str, before: Subscription | None, problems: list[FieldProblem]) -> Format:
    if not text and before is not None:
        return before.format
    try:
        return Format(text or Format.STANDARD)
    except ValueError:
        problems.append(FieldProblem("format", f"must be one of {', '.join(Format)}"))
        return Format.STANDARD


def _deadline(text: str, problems: list[FieldProblem]) -> int | None:
    if not text:
        return None
    try:
        return int(float(text) * 1000)
    except (ValueError, OverflowError):
        problems.append(FieldProblem("deadline_ms", "must be a number of seconds"))
        return None


def _headers(
    text: str, before: Subscription | None, problems: list[FieldProblem]
) -> tuple[tuple[str, str], ...]:
    """``name: value`` line by line; a masked value is the one that was there."""
    kept = {} if before is None else {name.lower(): value for name, value in before.headers}
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not line.strip():
            continue
        if not colon:
            problems.append(FieldProblem("headers", "must be lines like name: value"))
            continue
        if value == KEPT:
            value = kept.get(name.lower(), KEPT)
        found.append((name, value))
    return tuple(found)


def _filters(text: str, problems: list[FieldProblem]) -> str:
    if not text:
        return "[]"
    try:
        return encode(decoder(list[dict[str, Any]]).decode(text)).decode()
    except (msgspec.DecodeError, RecursionError) as error:
        problems.append(FieldProblem("filters", f"must be a JSON list of conditions: {error}"))
        return "[]"


async def create(visit: Visit) -> Shown | Answer:
    try:
        draft = _draft(visit, None)
        made = await commands.subscribe(visit.parts, visit.who.caller, draft)
    except Invalid as error:
        return _again(visit, error, None)
    endpoint = await visit.parts.views.endpoint(made.endpoint_id)
    secret = made.secrets[0].value
    return visit.show("subscription.html", it=made, endpoint=endpoint, filters="", secret=secret)


async def change(visit: Visit) -> Shown | Answer:
    before = await there(visit)
    try:
        await visit.parts.engine.change(before.id, lambda stored: _draft(visit, stored))
    except Invalid as error:
        return _again(visit, error, before)
    return visit.done("Changed. What is pending goes by the new values.", to=_at(before.id))


def _again(visit: Visit, error: Invalid, before: Subscription | None) -> Shown:
    """The form as it was sent, with what is wrong beside each field."""
    problems: dict[str, str] = {}
    for it in error.problems:
        name = it.field.partition("[")[0].partition(".")[0]
        name = "deadline_s" if name == "deadline_ms" else name
        told = it.field.removeprefix(name).lstrip(".")
        problems[name] = f"{problems.get(name, '')} {told} {it.reason}.".strip()
    return _form(visit, visit.form(), problems, before, status=422)


async def check(visit: Visit) -> Answer:
    """What is wrong with the form so far, field by field, as one types."""
    number = visit.field("id")
    before = None
    if number:
        before = await visit.parts.views.subscription(read_id(SUBSCRIPTION, number) or 0)
        if before is not None:
            visit.sees(before.tenant)
    try:
        _draft(visit, before)
    except Invalid as error:
        shown = _again(visit, error, before)
        return visit.json({"problems": shown.values["problems"]})
    return visit.json({"problems": {}})


# --- what can be done with one ---------------------------------------------------------------


async def delete(visit: Visit) -> Answer:
    await visit.parts.engine.unsubscribe((await there(visit)).id)
    return visit.done("Deleted; what was pending is cancelled.", to="/subscriptions")


async def rotate(visit: Visit) -> Shown:
    before = await there(visit)
    after = await visit.parts.engine.rotate(before.id, None, overlap_ms=OVERLAP_MS)
    endpoint = await visit.parts.views.endpoint(after.endpoint_id)
    filters = msgspec.json.format(after.filters, indent=2) if after.filters != "[]" else ""
    secret = after.secrets[0].value
    return visit.show(
        "subscription.html", it=after, endpoint=endpoint, filters=filters, secret=secret
    )


async def test(visit: Visit) -> Answer:
    found = await there(visit)
    attempt = await visit.parts.engine.test_send(found.id)
    took = f"in {attempt.phases.total_us / 1000:.0f} ms"
    if attempt.code is not None:
        return visit.done(f"The receiver answered {attempt.code} {took}.", to=_at(found.id))
    return visit.done(f"No answer: {attempt.detail} ({took}).", to=_at(found.id))


async def try_filters(visit: Visit) -> Shown:
    """The filters of the form on the latest events: which would match, and what decided."""
    problem = ""
    tried: list[tuple[str, str, Verdict]] = []
    tenant = visit.who.tenant or visit.field("tenant") or DEFAULT_TENANT
    try:
        filters = _filters_of(visit)
        rows, _ = await visit.parts.views.events(
            tenant=tenant, event_type=None, before_id=None, limit=TRIED_EVENTS
        )
        run = visit.parts.slices.run
        tried = [
            (row.event.key, row.event.type, await run(filters, row.event.data)) for row in rows
        ]
    except HomingError as error:
        problem = " ".join(f"{it.field} {it.reason}." for it in error.problems) or error.detail
    return visit.show("tried.html", tried=tried, problem=problem, tenant=tenant)


def _filters_of(visit: Visit) -> Filters:
    """Raises Invalid."""
    problems: list[FieldProblem] = []
    text = _filters(visit.field("filters"), problems)
    if problems:
        raise Invalid(problems=tuple(problems))
    connector = Connector.OR if visit.field("connector") == Connector.OR else Connector.AND
    return read_affordable(text, connector)


def _at(number: int) -> str:
    return f"/subscriptions/{show_id(SUBSCRIPTION, number)}"


_ONE = "/subscriptions/{id}"

PAGES = (
    Page(path="/subscriptions", handler=subscriptions),
    Page(path="/subscriptions", handler=create, method="POST", right=Right.MANAGE),
    Page(path="/subscriptions/new", handler=new, right=Right.MANAGE),
    Page(path="/subscriptions/check", handler=check, method="POST", right=Right.MANAGE),
    Page(path="/subscriptions/try", handler=try_filters, method="POST", right=Right.MANAGE),
    Page(path=_ONE, handler=subscription),
    Page(path=_ONE, handler=change, method="POST", right=Right.MANAGE),
    Page(path=_ONE + "/edit", handler=edit, right=Right.MANAGE),
    Page(path=_ONE + "/delete", handler=delete, method="POST", right=Right.MANAGE),
    Page(path=_ONE + "/rotate", handler=rotate, method="POST", right=Right.MANAGE),
    Page(path=_ONE + "/test", handler=test, method="POST", right=Right.MANAGE),
)
