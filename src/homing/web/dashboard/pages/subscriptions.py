"""Subscriptions: create, change, delete, test, rotate; filters tried before they are kept."""

from __future__ import annotations

from collections.abc import Mapping

from homing.errors import FieldProblem, HomingError, Invalid, NotFound
from homing.model import SPEC, Connector, Subscription, read_id, show_id
from homing.policy.admission import DEFAULT_TENANT, SubscriptionDraft, check_subscription
from homing.policy.filters import Filters, read_affordable
from homing.policy.filters_run import Verdict
from homing.policy.rotation import OVERLAP_MS
from homing.web import commands
from homing.web.answer import Answer
from homing.web.dashboard.subscription_form import (
    form_choices,
    form_rows,
    form_texts,
    page_facts,
    read_filters_text,
    read_form,
)
from homing.web.dashboard.visit import Page, Right, Shown, Visit
from homing.web.query import show_cursor
from homing.web.show import SUBSCRIPTION

ROWS = 50
TRIED_EVENTS = 10


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
    return await _page(visit, await there(visit))


async def _page(visit: Visit, found: Subscription, *, secret: str = "") -> Shown:
    endpoint = await visit.parts.views.endpoint(found.endpoint_id)
    return visit.show(
        "subscription.html", it=found, facts=page_facts(found), endpoint=endpoint, secret=secret
    )


# --- create and change -----------------------------------------------------------------------


async def new(visit: Visit) -> Shown:
    return _form(visit, form_texts(None), {}, None)


async def edit(visit: Visit) -> Shown:
    found = await there(visit)
    return _form(visit, form_texts(found), {}, found)


def _form(
    visit: Visit,
    texts: Mapping[str, str],
    problems: Mapping[str, str],
    before: Subscription | None,
    *,
    status: int = 200,
) -> Shown:
    return visit.show(
        "subscription_form.html",
        status=status,
        texts=texts,
        problems=problems,
        before=before,
        rows=form_rows(),
        connector=SPEC["filter_connector"],
        choices=form_choices(sorted(visit.parts.options.policies)),
    )


def _draft(visit: Visit, before: Subscription | None) -> SubscriptionDraft:
    """The subscription as the form has it, checked as the API checks it; raises Invalid."""
    tenant = before.tenant if before else visit.who.tenant or visit.field("tenant")
    values, problems = read_form(visit.form(), before)
    draft = SubscriptionDraft(
        tenant=tenant or DEFAULT_TENANT,
        workfront=None if before is None else before.workfront,
        **values,
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


async def create(visit: Visit) -> Shown | Answer:
    try:
        draft = _draft(visit, None)
        made = await commands.subscribe(visit.parts, visit.who.caller, draft)
    except Invalid as error:
        return _again(visit, error, None)
    return await _page(visit, made, secret=made.secrets[0].value)


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
        name = "filter_connector" if name == "filterConnector" else name
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
    return await _page(visit, after, secret=after.secrets[0].value)


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
    try:
        text = read_filters_text(visit.field("filters"))
    except ValueError as error:
        raise Invalid(problems=(FieldProblem("filters", str(error)),)) from None
    return read_affordable(text, visit.field("filter_connector") or Connector.AND)


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
