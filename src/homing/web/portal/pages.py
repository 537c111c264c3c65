"""The pages of the customer portal: endpoints, deliveries, incidents, event types, verification.

An endpoint of the portal is a subscription with a URL: people create it, test it, pause it
and rotate its secret as one thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from homing.app.causes import Causes
from homing.app.deliveries import Deliveries
from homing.app.endpoints import Endpoints
from homing.app.event_types import EventTypes
from homing.app.events import Events
from homing.app.subscriptions import Drafted, Subscriptions
from homing.errors import FieldProblem, FormOutdated, Invalid
from homing.languages.sentences import say
from homing.model import SPEC, Attempt, Outcome, Signature, Status, Subscription, show_id
from homing.policy.admission import SubscriptionDraft
from homing.policy.causes import title
from homing.policy.event_types import TypePlace
from homing.policy.failure_text import failure_text
from homing.policy.sent_form import VERSION
from homing.policy.sent_headers import logged_lines
from homing.ports import DeliveryFilter
from homing.web.dashboard.forms import outdated
from homing.web.dashboard.pages.deliveries import header_lines, pretty
from homing.web.dashboard.pages.endpoints import WAITING_MAX
from homing.web.dashboard.pages.incidents import sample
from homing.web.dashboard.pages.subscriptions import by_field
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.dashboard.subscription_form import (
    form_choices,
    form_rows,
    form_texts,
    open_groups,
    page_facts,
    read_form,
)
from homing.web.query import show_cursor, show_place
from homing.web.response import Response
from homing.web.show import DELIVERY, ENDPOINT, SUBSCRIPTION

ROWS = 50
RECENT_ROWS = 5
INCIDENT_ROWS = 25
ENDED_ROWS = 10
HOME = "/portal/endpoints"
# The fields that the form offers; all others are the operator's or the application's concern.
OFFERED = (
    "url",
    "types",
    "filters",
    "filter_connector",
    "description",
    "token",
    "headers",
    "rate_per_second",
)
# Hints for people who do not know that there are other ways to receive events.
HINTS = {
    "url": say("Where the events go: your http or https URL."),
    "filters": say(
        "Conditions like {example}; without any, the endpoint gets every event of its types.",
        example='{"field": "data.amount", "op": "gt", "value": 100}',
    ),
}
HIDDEN_HEADERS = ("user-agent:",)  # which names the version of the sender
SAMPLES = (
    ("Python", "python"),
    ("JavaScript (Node.js)", "javascript"),
    ("Go", "go"),
    ("Java", "java"),
    ("PHP", "php"),
)
_TYPE = re.compile(r"[A-Za-z0-9._-]{0,256}\*?")
_STATUSES = ("", *(str(it) for it in Status))


# --- endpoints ------------------------------------------------------------------------------


async def endpoints(request: PageRequest) -> Shown:
    before_id = request.query.cursor()
    found, after = await request.app.subscriptions.page(
        request.caller, tenant=None, before_id=before_id, limit=ROWS
    )
    rows = [it for it in found if it.url]
    cursor = show_cursor(after)
    return request.show(
        "portal/endpoints.html",
        rows=rows,
        health=await request.app.endpoints.several(request.caller, [it.endpoint_id for it in rows]),
        first=before_id is None,
        older="" if cursor is None else f"?cursor={cursor}",
    )


async def _subscription(request: PageRequest) -> Subscription:
    """The subscription that the path names; raises NotFound."""
    return await request.app.subscriptions.get(request.caller, request.number(SUBSCRIPTION))


async def endpoint(request: PageRequest) -> Shown:
    found = await _subscription(request)
    secret, headers = request.one_time_secret()
    recent, _ = await request.app.deliveries.page(
        request.caller,
        DeliveryFilter(subscription_id=found.id),
        before_id=None,
        limit=RECENT_ROWS,
    )
    health = await request.app.endpoints.several(request.caller, [found.endpoint_id])
    return request.show(
        "portal/endpoint.html",
        headers=headers,
        it=found,
        endpoint=health.get(found.endpoint_id),
        facts=[(field, text) for field, text in page_facts(found) if field.name in OFFERED],
        recent=recent,
        failure=failure,
        secret=secret,
        public_keys=()
        if found.signature is Signature.HMAC
        else request.app.signing_keys.published(found.tenant),
    )


async def new(request: PageRequest) -> Shown:
    texts = form_texts(None)
    if request.query.text("type"):
        texts["types"] = request.query.text("type")
    return _form(request, texts, {}, None)


async def edit(request: PageRequest) -> Shown:
    found = await _subscription(request)
    return _form(request, form_texts(found), {}, found)


def _form(
    request: PageRequest,
    texts: Mapping[str, str],
    problems: Mapping[str, str],
    before: Subscription | None,
    *,
    status: int = 200,
) -> Shown:
    groups = [
        (name, [(narrow, [it for it in row if it.name in OFFERED]) for narrow, row in rows])
        for name, rows in form_rows()
    ]
    shown = [(name, [it for it in rows if it[1]]) for name, rows in groups]
    return request.show(
        "portal/endpoint_form.html",
        status=status,
        seal="" if before is None else _seal(request, before),
        texts=texts,
        problems=problems,
        before=before,
        groups=[it for it in shown if it[1]],
        open=open_groups(texts, problems),
        connector=SPEC["filter_connector"],
        choices=form_choices([]),
        hints=HINTS,
    )


def _seal(request: PageRequest, before: Subscription) -> str:
    return request.seal(before, show_id(SUBSCRIPTION, before.id), *OFFERED, VERSION)


def _drafted(request: PageRequest, before: Subscription | None) -> Drafted:
    """The subscription as the form describes it; fields that it does not offer stay as they are."""
    assert request.caller.tenant is not None
    if before is not None:
        request.refuse_changed(before, show_id(SUBSCRIPTION, before.id))
    offered = {name: text for name, text in request.form().items() if name in OFFERED}
    values, problems, sent = read_form(offered, before)
    for name, field in SPEC.items():
        if name not in OFFERED:
            values[name] = field.default if before is None else getattr(before, name)
    if before is None and not values["url"]:
        problems.append(FieldProblem("url", say("must be given")))
    draft = SubscriptionDraft(
        tenant=request.caller.tenant if before is None else before.tenant,
        workfront=None if before is None else before.workfront,
        **values,
    )
    return Drafted(draft, tuple(problems), sent=sent)


async def create(request: PageRequest) -> Shown | Response:
    try:
        made, _ = await request.app.subscriptions.create(request.caller, _drafted(request, None))
    except Invalid as error:
        return _with_problems(request, error.problems, None)
    secret = "" if made.signature is Signature.ED25519 else made.secrets[0].value
    return request.done(say("Endpoint created."), to=_at(made.id), secret=secret)


async def change(request: PageRequest) -> Shown | Response:
    number = request.number(SUBSCRIPTION)
    try:
        await request.app.subscriptions.change(
            request.caller, number, lambda before: _drafted(request, before)
        )
    except Invalid as error:
        return _with_problems(request, error.problems, await _subscription(request))
    except FormOutdated as error:
        found = await _subscription(request)
        texts, problems = outdated(request.form(), error, form_texts(found))
        return _form(request, texts, problems, found, status=error.http_status)
    return request.done(say("Saved. Pending deliveries use the new values."), to=_at(number))


def _with_problems(
    request: PageRequest, problems: Sequence[FieldProblem], before: Subscription | None
) -> Shown:
    """The form as it was sent, with a problem next to each wrong field."""
    shown = [it if _is_offered(it) else _not_offered(it) for it in problems]
    return _form(request, request.form(), by_field(shown), before, status=422)


def _is_offered(problem: FieldProblem) -> bool:
    name = re.split(r"[.\[]", problem.field)[0]
    return name in {*OFFERED, *(SPEC[it].api_name for it in OFFERED)}


def _not_offered(problem: FieldProblem) -> FieldProblem:
    """A problem of a field that the form does not have: at the URL, whose change caused it."""
    reason = say(
        "cannot be changed here: {field} {reason}. Ask us to change it",
        field=problem.field,
        reason=problem.reason,
    )
    return FieldProblem("url", reason)


async def delete(request: PageRequest) -> Response:
    await request.app.subscriptions.delete(request.caller, request.number(SUBSCRIPTION))
    return request.done(say("Endpoint deleted. Its pending deliveries are cancelled."), to=HOME)


async def rotate(request: PageRequest) -> Response:
    after = await request.app.subscriptions.rotate(request.caller, request.number(SUBSCRIPTION))
    return request.done(say("Secret rotated."), to=_at(after.id), secret=after.secrets[0].value)


async def pause(request: PageRequest) -> Response:
    after = await request.app.subscriptions.pause(request.caller, request.number(SUBSCRIPTION))
    return request.done(say("Paused. Its deliveries wait until you resume it."), to=_at(after.id))


async def resume(request: PageRequest) -> Response:
    after = await request.app.subscriptions.resume(request.caller, request.number(SUBSCRIPTION))
    return request.done(say("Resumed. Its due deliveries are being sent."), to=_at(after.id))


async def verify(request: PageRequest) -> Response:
    after = await request.app.subscriptions.verify(request.caller, request.number(SUBSCRIPTION))
    if after.is_unverified and after.receiver is not None:
        return request.done(
            say("Not verified. {problem}", problem=after.receiver.why), to=_at(after.id)
        )
    return request.done(say("Verified."), to=_at(after.id))


async def test(request: PageRequest) -> Response:
    number = request.number(SUBSCRIPTION)
    attempt = await request.app.subscriptions.test(request.caller, number)
    took = say("{n} ms", n=round(attempt.phases.total_us / 1000))
    if attempt.outcome is Outcome.DELIVERED:
        code = str(attempt.code)
        message = say("Your endpoint responded with {code} in {took}.", code=code, took=took)
    else:
        why = failure(attempt)
        message = say("The test event failed: {why} ({took}).", why=why, took=took)
    return request.done(message, to=_at(number))


def failure(one: Any) -> str:
    """Why an attempt failed; for a sender-side failure, no more than that."""
    text = failure_text(one.code, one.failure, one.detail)
    return say("a problem on the sender's side") if text.startswith("sender error") else text


def _at(number: int) -> str:
    return f"/portal/endpoints/{show_id(SUBSCRIPTION, number)}"


# --- deliveries -----------------------------------------------------------------------------


async def deliveries(request: PageRequest) -> Shown:
    query, before_id = request.query, request.query.cursor()
    status = query.choice("status", Status) if query.text("status") else None
    event_type = query.text("type") or None
    if event_type is not None and not _TYPE.fullmatch(event_type):
        reason = say("must be like {one} or {several}", one="order.paid", several="order.*")
        raise Invalid(problems=(FieldProblem("type", reason),))
    chosen = None
    if query.text("endpoint"):
        number = query.id("endpoint", SUBSCRIPTION)
        assert number is not None
        chosen = await request.app.subscriptions.get(request.caller, number)
    rows, after = await request.app.deliveries.page(
        request.caller,
        DeliveryFilter(
            status=status,
            type=event_type,
            subscription_id=None if chosen is None else chosen.id,
        ),
        before_id=before_id,
        limit=ROWS,
    )

    def address(**other: str) -> str:
        """The address of this list with other conditions."""
        asked = {name: query.text(name) for name in ("status", "type", "endpoint")} | other
        return "/portal/deliveries?" + urlencode({k: v for k, v in asked.items() if v})

    cursor = show_cursor(after)
    return request.show(
        "portal/deliveries.html",
        rows=rows,
        chosen_status="" if status is None else status.value,
        statuses=_STATUSES,
        chosen=chosen,
        type=query.text("type"),
        address=address,
        failure=failure,
        first=before_id is None,
        older="" if cursor is None else address(cursor=cursor),
    )


async def delivery(request: PageRequest) -> Shown:
    described = await request.app.deliveries.get(request.caller, request.number(DELIVERY))
    row = described.row
    data = await request.app.events.data(request.caller, row.event_key, tenant=row.delivery.tenant)
    return request.show(
        "portal/delivery.html",
        it=row,
        described=described,
        data="" if data is None else pretty(data),
        event_kept=data is not None,
        failure=failure,
        request_lines=request_lines,
        response_lines=lambda it: header_lines(it.response_headers),
    )


def request_lines(attempt: Attempt) -> str:
    """The headers of a request, without those that describe the sender."""
    lines = header_lines(logged_lines(attempt)).split("\n")
    return "\n".join(it for it in lines if not it.lower().startswith(HIDDEN_HEADERS))


async def replay(request: PageRequest) -> Response:
    made = await request.app.deliveries.replay(request.caller, request.number(DELIVERY))
    to = f"/portal/deliveries/{show_id(DELIVERY, made.id)}"
    return request.done(say("Sent again. This page shows the new delivery."), to=to)


# --- incidents ------------------------------------------------------------------------------


async def incidents(request: PageRequest) -> Shown:
    before_id = request.query.cursor()
    found = await request.app.causes.incidents(
        request.caller,
        tenant=None,
        before_id=before_id,
        limit=INCIDENT_ROWS,
        ended_max=ENDED_ROWS,
        waiting_max=WAITING_MAX,
    )
    cursor = show_cursor(found.after)
    return request.show(
        "portal/incidents.html",
        rows=found.open,
        ended=found.ended,
        first=before_id is None,
        older="" if cursor is None else f"?cursor={cursor}",
        waiting_max=WAITING_MAX,
        sample=sample,
        cause_title=title,
        failure=failure,
    )


async def enable(request: PageRequest) -> Response:
    await request.app.endpoints.enable(request.caller, request.number(ENDPOINT))
    message = say("Sending again, slowly in the beginning; overdue deliveries go first.")
    return request.done(message, to="/portal/incidents")


# --- event types ----------------------------------------------------------------------------


async def event_types(request: PageRequest) -> Shown:
    after = request.query.place(TypePlace)
    rows, last = await request.app.event_types.page(
        request.caller, tenant=None, after=after, limit=ROWS
    )
    cursor = show_place(last)
    return request.show(
        "portal/event_types.html",
        rows=rows,
        first=after is None,
        older="" if cursor is None else f"?cursor={cursor}",
    )


async def event_type(request: PageRequest) -> Shown:
    found = await request.app.event_types.get(request.caller, request.key(), tenant=None)
    return request.show(
        "portal/event_type.html",
        it=found,
        schema=pretty(found.schema.encode()),
        sample_data=pretty(found.sample.encode()),
    )


# --- verify requests ------------------------------------------------------------------------


def sample_code(name: str) -> str:
    """A program that verifies the signature of a request."""
    folder = files("homing.web.portal") / "samples"
    return (folder / f"{name}.txt").read_text(encoding="utf-8")


async def verify_code(request: PageRequest) -> Shown:
    return request.show(
        "portal/verify.html", samples=[(shown, sample_code(name)) for shown, name in SAMPLES]
    )


_ONE = "/portal/endpoints/{id}"
_DELIVERY = "/portal/deliveries/{id}"

PAGES = (
    Page(path=HOME, handler=endpoints, use_case=Subscriptions.page),
    Page(path=HOME, handler=create, method="POST", use_case=Subscriptions.create),
    Page(path=f"{HOME}/new", handler=new, use_case=Subscriptions.create),
    Page(path=_ONE, handler=endpoint, use_case=Subscriptions.get),
    Page(path=_ONE, handler=change, method="POST", use_case=Subscriptions.change),
    Page(path=_ONE + "/edit", handler=edit, use_case=Subscriptions.change),
    Page(path=_ONE + "/delete", handler=delete, method="POST", use_case=Subscriptions.delete),
    Page(path=_ONE + "/rotate", handler=rotate, method="POST", use_case=Subscriptions.rotate),
    Page(path=_ONE + "/pause", handler=pause, method="POST", use_case=Subscriptions.pause),
    Page(path=_ONE + "/resume", handler=resume, method="POST", use_case=Subscriptions.resume),
    Page(path=_ONE + "/verify", handler=verify, method="POST", use_case=Subscriptions.verify),
    Page(path=_ONE + "/test", handler=test, method="POST", use_case=Subscriptions.test),
    Page(path="/portal/deliveries", handler=deliveries, use_case=Deliveries.page),
    Page(path=_DELIVERY, handler=delivery, use_case=Deliveries.get),
    Page(path=_DELIVERY + "/replay", handler=replay, method="POST", use_case=Deliveries.replay),
    Page(path="/portal/incidents", handler=incidents, use_case=Causes.incidents),
    Page(
        path="/portal/incidents/{id}/enable",
        handler=enable,
        method="POST",
        use_case=Endpoints.enable,
    ),
    Page(path="/portal/event-types", handler=event_types, use_case=EventTypes.page),
    Page(path="/portal/event-types/{id}", handler=event_type, use_case=EventTypes.get),
    Page(path="/portal/verify", handler=verify_code, use_case=Events.page),
)
