"""The search field of every page: one hit opens its page, several are listed."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from homing.app.search import Found, Hit, HitKind, Search
from homing.errors import Invalid
from homing.languages.sentences import say
from homing.web.dashboard.pages.events import path as event_path
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.response import Response


async def search(request: PageRequest) -> Shown | Response:
    text, problem, found = request.query.text("q"), "", Found([])
    if not text:
        found = Found([], examples=await request.app.search.examples(request.caller))
    else:
        try:
            found = await request.app.search.find(request.caller, text)
        except Invalid as error:
            problem = say("This text {reason}.", reason=error.problems[0].reason)
            found = Found([], examples=await request.app.search.examples(request.caller))
    if len(found.hits) == 1 and not found.more:
        return request.see_other(address(found.hits[0]))
    return request.show("search.html", searched=text, problem=problem, found=found, address=address)


def address(hit: Hit) -> str:
    """The page of what was found."""
    match hit.kind:
        case HitKind.EVENT:
            assert hit.tenant is not None
            return event_path(hit.tenant, hit.id)
        case HitKind.TYPE:
            return "/events?" + urlencode({"q": hit.id})
        case HitKind.DELIVERY:
            return f"/deliveries/{quote(hit.id)}"
        case HitKind.SUBSCRIPTION:
            return f"/subscriptions/{quote(hit.id)}"
        case HitKind.ENDPOINT:
            return f"/endpoints/{quote(hit.id)}"


PAGES = (Page(path="/search", handler=search, use_case=Search.find),)
