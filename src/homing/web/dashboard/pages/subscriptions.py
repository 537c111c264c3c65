"""Subscriptions: create, change, delete, test, rotate the secret, try filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from homing.app.events import Events
from homing.app.exports import Exports
from homing.app.pull import Pull
from homing.app.replays import Replays
from homing.app.signing_keys import SigningKeys
from homing.app.subscriptions import Drafted, Subscriptions
from homing.errors import FieldProblem, FormOutdated, HomingError, Invalid, NotFound
from homing.languages.sentences import Sentence, many, say
from homing.model import SPEC, Connector, Signature, Subscription, read_id, show_id
from homing.policy.admission import SubscriptionDraft
from homing.policy.backfill import past_start
from homing.policy.filters_run import Verdict
from homing.policy.moments import moment
from homing.ports import ReplayJob
from homing.web.api.signing_keys import jwks_path
from homing.web.dashboard.export import export_pages, export_response
from homing.web.dashboard.forms import outdated
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.dashboard.subscription_form import (
    form_choices,
    form_rows,
    form_texts,
    open_groups,
    page_facts,
    read_filters_text,
    read_form,
)
from homing.web.query import id_field, show_cursor
from homing.web.response import Response
from homing.web.schemas import SubscriptionView
from homing.web.show import REPLAY, SUBSCRIPTION, subscription_view, time_text

ROWS = 50
TRIED_EVENTS = 10
PAST_MS = 24 * 3_600_000  # how far back past events are counted first
_BY_API_NAME = {field.api_name: name for name, field in SPEC.items()}


async def subscriptions(request: PageRequest) -> Shown:
    before_id = request.query.cursor()
    rows, after = await request.app.subscriptions.page(
        request.caller, tenant=request.query.tenant(), before_id=before_id, limit=ROWS
    )
    cursor = show_cursor(after)
    return request.show(
        "subscriptions.html",
        rows=rows,
        first=before_id is None,
        older="" if cursor is None else f"?cursor={cursor}",
    )


async def export(request: PageRequest, form: str) -> Response:
    keys_of = request.app.signing_keys.published
    pages = await request.app.exports.subscriptions(request.caller, tenant=request.query.tenant())
    return export_response(
        "subscriptions",
        form,
        pages,
        lambda it: subscription_view(it, keys_of, in_list=True),
        SubscriptionView,
    )


async def _subscription(request: PageRequest) -> Subscription:
    """The subscription that the path names; raises NotFound."""
    return await request.app.subscriptions.get(request.caller, request.number(SUBSCRIPTION))


async def subscription(request: PageRequest) -> Shown:
    found = await _subscription(request)
    secret, headers = request.one_time_secret()
    return request.show(
        "subscription.html",
        headers=headers,
        it=found,
        facts=page_facts(found),
        endpoint=await request.app.endpoints.get(request.caller, found.endpoint_id)
        if found.url
        else None,
        readers=[] if found.url else await request.app.pull.readers(request.caller, found.id),
        secret=secret if found.url else None,  # Nothing is signed that is read.
        public_keys=request.app.signing_keys.published(found.tenant),
        jwks=jwks_path(found.tenant),
        past_since=time_text(request.now - PAST_MS),
        past_job=await _past_job(request, found),
    )


async def _past_job(request: PageRequest, found: Subscription) -> ReplayJob | None:
    """The job that began with a new subscription, if the address of the page names it."""
    number = read_id(REPLAY, request.query.text("past"))
    if number is None:
        return None
    try:
        job = await request.app.replays.get(request.caller, number)
    except NotFound:
        return None
    return job if job.filter.backfill and job.filter.subscription_id == found.id else None


# --- create and change -----------------------------------------------------------------------


async def new(request: PageRequest) -> Shown:
    return _form(request, form_texts(None), {}, None)


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
    return request.show(
        "subscription_form.html",
        status=status,
        seal="" if before is None else request.seal(before, show_id(SUBSCRIPTION, before.id)),
        texts=texts,
        problems=problems,
        before=before,
        groups=form_rows(),
        open=open_groups(texts, problems),
        connector=SPEC["filter_connector"],
        choices=form_choices(sorted(request.app.policies)),
    )


def _drafted(request: PageRequest, before: Subscription | None) -> Drafted:
    """The subscription as the form describes it, and the problems of unreadable fields."""
    if before is not None:
        request.refuse_changed(before, show_id(SUBSCRIPTION, before.id))
    given = request.field("tenant") or None
    tenant = before.tenant if before else request.caller.tenant_or_default(given)
    values, problems, sent = read_form(request.form(), before)
    workfront = None if before is None else before.workfront
    draft = SubscriptionDraft(tenant=tenant, workfront=workfront, **values)
    since = None if before else request.field("from").strip() or None
    past, unreadable = past_start(since, None, now=request.now)
    return Drafted(draft, (*problems, *unreadable), past, sent)


async def create(request: PageRequest) -> Shown | Response:
    try:
        made, past = await request.app.subscriptions.create(request.caller, _drafted(request, None))
    except Invalid as error:
        return _form_with_problems(request, error.problems, None)
    secret = "" if made.signature is Signature.ED25519 else made.secrets[0].value
    message = say("Subscription created.")
    if past is not None and past.exact:
        message = many(
            "Subscription created. A job delivers {count} past event.",
            "Subscription created. A job delivers {count} past events.",
            past.count,
        )
    elif past is not None:
        message = say(
            "Subscription created. A job delivers {count}+ past events.", count=past.count
        )
    at = _at(made.id) if past is None else f"{_at(made.id)}?past={show_id(REPLAY, past.job.id)}"
    return request.done(message, to=at, secret=secret)


async def change(request: PageRequest) -> Shown | Response:
    number = request.number(SUBSCRIPTION)
    try:
        await request.app.subscriptions.change(
            request.caller, number, lambda before: _drafted(request, before)
        )
    except Invalid as error:
        return _form_with_problems(request, error.problems, await _subscription(request))
    except FormOutdated as error:
        found = await _subscription(request)
        texts, problems = outdated(request.form(), error, form_texts(found))
        return _form(request, texts, problems, found, status=error.http_status)
    return request.done(say("Saved. Pending deliveries use the new values."), to=_at(number))


def _form_with_problems(
    request: PageRequest, problems: Sequence[FieldProblem], before: Subscription | None
) -> Shown:
    """The form as it was sent, with a problem next to each wrong field."""
    return _form(request, request.form(), by_field(problems), before, status=422)


def by_field(problems: Sequence[FieldProblem]) -> dict[str, str]:
    """The problems of a form by the names of its fields."""
    found: dict[str, str] = {}
    for it in problems:
        name = it.field.partition("[")[0].partition(".")[0]
        name = _BY_API_NAME.get(name, name)
        said = _problem(it.field.removeprefix(name).lstrip("."), it.reason)
        if name in found:
            said = say("{first} {second}", first=found[name], second=said)
        found[name] = said
    return found


def _problem(where: str, reason: str) -> Sentence:
    if not where:
        return say("{reason}.", reason=reason)
    return say("{field} {reason}.", field=where, reason=reason)


async def check(request: PageRequest) -> Response:
    """The problems of the form by field, while a person types."""
    shown = request.field("id")
    number = id_field(shown, "id", SUBSCRIPTION) if shown else None
    problems = await request.app.subscriptions.check(
        request.caller, number, lambda before: _drafted(request, before)
    )
    said = {name: request.language.text(it) for name, it in by_field(problems).items()}
    return request.json({"problems": said})


# --- commands for one -------------------------------------------------------------------------


async def delete(request: PageRequest) -> Response:
    await request.app.subscriptions.delete(request.caller, request.number(SUBSCRIPTION))
    message = say("Subscription deleted. Its pending deliveries are cancelled.")
    return request.done(message, to="/subscriptions")


async def rotate(request: PageRequest) -> Response:
    after = await request.app.subscriptions.rotate(request.caller, request.number(SUBSCRIPTION))
    return request.done(say("Secret rotated."), to=_at(after.id), secret=after.secrets[0].value)


async def rotate_signing_keys(request: PageRequest) -> Response:
    found = await _subscription(request)
    await request.app.signing_keys.rotate(request.caller, tenant=found.tenant)
    return request.done(say("Signing key rotated."), to=_at(found.id))


async def verify(request: PageRequest) -> Response:
    after = await request.app.subscriptions.verify(request.caller, request.number(SUBSCRIPTION))
    if after.is_unverified and after.receiver is not None:
        problem = say("Not verified. {problem}", problem=after.receiver.why)
        return request.done(problem, to=_at(after.id))
    return request.done(say("Verified: the receiver owns the URL."), to=_at(after.id))


async def pause(request: PageRequest) -> Response:
    after = await request.app.subscriptions.pause(request.caller, request.number(SUBSCRIPTION))
    return request.done(say("Paused. Its deliveries wait until you resume it."), to=_at(after.id))


async def resume(request: PageRequest) -> Response:
    after = await request.app.subscriptions.resume(request.caller, request.number(SUBSCRIPTION))
    return request.done(say("Resumed. Its due deliveries are being sent."), to=_at(after.id))


async def test(request: PageRequest) -> Response:
    number = request.number(SUBSCRIPTION)
    attempt = await request.app.subscriptions.test(request.caller, number)
    took = say("{n} ms", n=round(attempt.phases.total_us / 1000))
    message = say("No response: {detail} (in {took}).", detail=attempt.detail, took=took)
    if attempt.code is not None:
        code = str(attempt.code)
        message = say("The receiver responded with {code} in {took}.", code=code, took=took)
    return request.done(message, to=_at(number))


def _since(request: PageRequest, text: str) -> int:
    if not text:
        raise Invalid(problems=(FieldProblem("from", say("must be given")),))
    return moment(text, "from", now=request.now)


async def backfill_count(request: PageRequest) -> Shown:
    found, since = await _subscription(request), _since(request, request.query.text("from"))
    try:
        count, exact = await request.app.replays.count_past(request.caller, found.id, since=since)
    except Invalid as error:
        return request.show("backfill_count.html", count=0, exact=True, problem=error.problems[0])
    return request.show("backfill_count.html", count=count, exact=exact, problem=None)


async def backfill(request: PageRequest) -> Response:
    since = _since(request, request.field("from"))
    job = await request.app.replays.backfill(
        request.caller, request.number(SUBSCRIPTION), since=since
    )
    return request.done(say("Backfill started."), to=f"/replays/{show_id(REPLAY, job.id)}")


async def remove_reader(request: PageRequest) -> Response:
    number, reader = request.number(SUBSCRIPTION), request.field("reader")
    await request.app.pull.remove_reader(request.caller, number, reader)
    return request.done(say("Reader {reader} removed.", reader=reader), to=_at(number))


async def try_filters(request: PageRequest) -> Shown:
    """Shows which of the latest events match the filters of the form, and why."""
    problem = ""
    tried: list[tuple[str, str, Verdict]] = []
    tenant = request.caller.tenant_or_default(request.field("tenant") or None)
    try:
        found = await request.app.events.try_filters_on_latest(
            request.caller,
            _filters(request),
            request.field("filter_connector") or Connector.AND,
            tenant=tenant,
            limit=TRIED_EVENTS,
        )
        tried = [(event.key, event.type, verdict) for event, verdict in found]
    except HomingError as error:
        problem = request.reasons(error.problems) or error.detail
    return request.show("tried.html", tried=tried, problem=problem, tenant=tenant)


def _filters(request: PageRequest) -> str:
    """The filters of the form as JSON; raises Invalid."""
    try:
        return read_filters_text(request.field("filters"))
    except ValueError as error:
        raise Invalid(problems=(FieldProblem("filters", error.args[0]),)) from None


def _at(number: int) -> str:
    return f"/subscriptions/{show_id(SUBSCRIPTION, number)}"


_ONE = "/subscriptions/{id}"

PAGES = (
    Page(path="/subscriptions", handler=subscriptions, use_case=Subscriptions.page),
    Page(path="/subscriptions", handler=create, method="POST", use_case=Subscriptions.create),
    *export_pages("/subscriptions", export, Exports.subscriptions),
    Page(path="/subscriptions/new", handler=new, use_case=Subscriptions.create),
    Page(path="/subscriptions/check", handler=check, method="POST", use_case=Subscriptions.check),
    Page(
        path="/subscriptions/try",
        handler=try_filters,
        method="POST",
        use_case=Events.try_filters_on_latest,
    ),
    Page(path=_ONE, handler=subscription, use_case=Subscriptions.get),
    Page(path=_ONE, handler=change, method="POST", use_case=Subscriptions.change),
    Page(path=_ONE + "/edit", handler=edit, use_case=Subscriptions.change),
    Page(path=_ONE + "/delete", handler=delete, method="POST", use_case=Subscriptions.delete),
    Page(path=_ONE + "/rotate", handler=rotate, method="POST", use_case=Subscriptions.rotate),
    Page(
        path=_ONE + "/readers/remove",
        handler=remove_reader,
        method="POST",
        use_case=Pull.remove_reader,
    ),
    Page(
        path=_ONE + "/signing-keys/rotate",
        handler=rotate_signing_keys,
        method="POST",
        use_case=SigningKeys.rotate,
    ),
    Page(path=_ONE + "/backfill-count", handler=backfill_count, use_case=Replays.count_past),
    Page(path=_ONE + "/backfill", handler=backfill, method="POST", use_case=Replays.backfill),
    Page(path=_ONE + "/pause", handler=pause, method="POST", use_case=Subscriptions.pause),
    Page(path=_ONE + "/resume", handler=resume, method="POST", use_case=Subscriptions.resume),
    Page(path=_ONE + "/verify", handler=verify, method="POST", use_case=Subscriptions.verify),
    Page(path=_ONE + "/test", handler=test, method="POST", use_case=Subscriptions.test),
)
