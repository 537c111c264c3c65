"""Everything that reads input, and the input that makes it work hardest: one line for each.

``make test`` counts the steps of each line at sizes that double; ``make security`` measures its
CPU time. A new reader gets a line here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from homing.errors import HomingError
from homing.model import SPEC, Format, Subscription, read_id
from homing.net.response import ResponseReader
from homing.policy.admission import (
    SubscriptionDraft,
    check_events,
    check_subscription,
    is_type,
    merge_pairs,
    read_time,
)
from homing.policy.chains import weigh
from homing.policy.changed_text import line_changes
from homing.policy.event_schema import _is_simple
from homing.policy.exact import JsonWalk
from homing.policy.filters import read_affordable
from homing.policy.filters_reading import SLICE_STEPS, OutOfSteps, Reading
from homing.policy.filters_run import compiled, read_data
from homing.policy.keys import read_key
from homing.policy.match import Index
from homing.policy.moments import moment
from homing.policy.payload_fields import PayloadFields
from homing.policy.portal import (
    PortalDraft,
    Use,
    check_logo,
    check_settings,
    origin_problem,
    read_token,
)
from homing.policy.retry import retry_after_at
from homing.policy.search import read_query
from homing.policy.signature import read_secret
from homing.policy.url import parse_url
from homing.policy.workfront import collapse
from homing.sim.read import read_scenario
from homing.web.api.publish import read_drafts
from homing.web.body import decode
from homing.web.dashboard.characters import visible
from homing.web.dashboard.cookies import read_cookie
from homing.web.dashboard.forms import read_form
from homing.web.dashboard.pages.deliveries import pretty
from homing.web.dashboard.request import read_message
from homing.web.dashboard.search import read_search
from homing.web.dashboard.security_headers import check_host
from homing.web.dashboard.targets import Targets
from homing.web.query import Query, read_cursor
from homing.web.schemas import FilterTryIn, SubscriptionIn
from homing.web.workfront.schemas import WorkfrontSubscriptionIn
from homing_client import verify
from homing_client.errors import BadResponse, HomingClientError
from homing_client.http1 import ResponseReader as ClientReader

EVENT = b'{"type":"a.b","data":1}'
URL = "https://a.example/"


class Input(NamedTuple):
    """A reader, and a function that makes its input of about so many parts."""

    name: str
    read: Callable[[Any], object]
    make: Callable[[int], Any]
    size: int = 200

    def of(self, size: int) -> Callable[[], object]:
        """The reader with an input of this size, made beforehand."""
        given = self.make(size)

        def run() -> None:
            with contextlib.suppress(HomingError, HomingClientError, BadResponse, EOFError):
                self.read(given)

        return run


# --- how a reader is called ------------------------------------------------------------------


def _published(body: bytes) -> None:
    check_events(read_drafts(body, "default", lines=not body.startswith((b"[", b"{"))))


def _command(headers: bytes) -> object:
    body = b'{"url":"https://a.example","types":["*"],"headers":' + headers + b"}"
    return decode(body, SubscriptionIn)


def _subscribed(changes: dict[str, Any]) -> object:
    draft = SubscriptionDraft(tenant="a", url=URL, types=("*",))
    draft = msgspec.structs.replace(draft, **changes)
    return check_subscription(draft, policies=("standard",), refuses=lambda _: "")


def _filtered(data: bytes) -> object:
    text = '[{"fieldName":"f","fieldValue":"x","comparison":"contains","state":"newState"}]'
    matches, reading = compiled(read_affordable(text)), Reading(read_data(data))
    while True:
        try:
            return matches(reading.data, reading)
        except OutOfSteps:  # Others have their turn, then it goes on.
            reading.left = SLICE_STEPS


def _opened(text: str) -> object:
    return read_token(b"key", Use.LINK, text)


def _looks(size: int) -> PortalDraft:
    sites = tuple(f"https://{'a' * 60}.example" for _ in range(size))
    return PortalDraft(name="n" * size, accent_color="#" * size, frame_ancestors=sites)


def _found(text: str) -> object:
    field = read_query(text, fields=_FIELDS.paths).field
    return field and _FIELDS.wanted(*field)


def _indexed(data: bytes) -> object:
    slices = _FIELDS.reading(data, SLICE_STEPS)
    with contextlib.suppress(StopIteration):
        next(slices)
        while True:  # Others have their turn, then it goes on.
            slices.send(SLICE_STEPS)
    return None


def _read_in_slices(data: bytes) -> object:
    slices = JsonWalk(data)
    while not slices.complete:
        slices.read(SLICE_STEPS)
    return slices.value


def _changed(texts: tuple[str, str]) -> object:
    return line_changes(*texts)


def _responded(data: bytes) -> None:
    reader = ResponseReader()
    reader.feed(data)


def _responded_to_client(data: bytes) -> None:
    reader = ClientReader()
    for at in range(0, len(data), 1_000):
        reader.feed(data[at : at + 1_000])


def _matched(event_type: str) -> object:
    return is_type(event_type) and _INDEX.match("a", event_type)


def _index() -> Index:
    index = Index()
    index.add(
        Subscription(
            id=1,
            tenant="a",
            endpoint_id=1,
            url=URL,
            types=("b.*",),
            format=Format.STANDARD,
            secrets=(),
            created_at=0,
            updated_at=0,
            version=1,
        )
    )
    return index


def _scenario(text: str) -> object:
    return read_scenario(text, source="a.toml")


# --- inputs ----------------------------------------------------------------------------------


def _names(count: int, *more: bytes) -> bytes:
    return b"{" + b",".join([b'"n%d":"1"' % n for n in range(count)] + list(more)) + b"}"


def _list(item: bytes) -> Callable[[int], bytes]:
    return lambda count: b"[" + b",".join([item] * count) + b"]"


def _signed(count: int) -> dict[str, str]:
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1",
        "webhook-signature": "v1,AAAA " * count,
    }


def _endpoints(count: int, to: str = "") -> str:
    places = "".join(f'[[endpoints]]\nname = "e{n}"\n' for n in range(count))
    traffic = "".join(f'[[traffic]]\nto = "{to or f"e{n}"}"\nevery = "1h"\n' for n in range(count))
    return f'run_for = "1h"\n{places}{traffic}'


_INDEX = _index()
_FIELDS = PayloadFields(("data.a", "data.b.c"), (b"k" * 32,))
_TARGETS = Targets(["/", "/deliveries/{id}", "/events/{tenant}/{id:path}"])
_HEAD = b"HTTP/1.1 200 OK\r\n"

INPUTS = (
    # Heads of requests.
    Input("cookies", lambda it: read_cookie(it, "z"), lambda n: b'a="\\"; ' * n),
    Input("a quoted cookie", lambda it: read_cookie(it, "a"), lambda n: b'a="' + b"\\" * n),
    Input("keys", read_key, lambda n: b"hk_" + b"a_" * n),
    Input("portal links", _opened, lambda n: "plk_" + "a." * n),
    Input("logos", check_logo, lambda n: "data:image/png;base64," + "iVBO" * n),
    Input("framing sites", origin_problem, lambda n: "https://" + "a-." * n),
    Input("looks of a portal", check_settings, _looks),
    Input("host names", lambda it: check_host(it, frozenset()), lambda n: "a." * n),
    Input("addresses as host", lambda it: check_host(it, frozenset()), lambda n: "[" + "1:" * n),
    Input("where to go after sign-in", _TARGETS.own, lambda n: "/deliveries" + "/a" * n),
    Input("messages in a cookie", read_message, lambda n: "61" * n),
    # Query strings.
    Input("query strings", lambda it: Query(it, {"a"}), lambda n: b"a=" + b"%41" * n),
    Input("many parameters", lambda it: Query(it, ()), lambda n: b"a=b&" * n),
    Input("cursors", read_cursor, lambda n: "QUFB" * n),
    Input("ids", lambda it: read_id("dlv", it), lambda n: "dlv_" + "0" * n),
    Input("times", lambda it: moment(it, "since", now=0), lambda n: "1" * n + "h"),
    Input("RFC 3339", read_time, lambda n: "2026-01-01T00:00:00." + "0" * n + "Z"),
    Input("searches", lambda it: read_search(it, now=0), lambda n: "a:b " * n, 50),
    Input("find anything", _found, lambda n: "a." * n, 50),
    Input("find a URL", _found, lambda n: "https://" + "é" * n),
    Input("find a payload field", _found, lambda n: "data.a:" + "9" * n),
    Input("a quote in a search", lambda it: read_search(it, now=0), lambda n: '"' * n),
    # Bodies.
    Input("forms", read_form, lambda n: b"a=" + b"%41%" * n),
    Input("a name twice", _command, lambda n: _names(n, b'"n0":"1"')),
    Input("a name twice, at the end", _command, lambda n: _names(n, b'"z":"1"', b'"z":"2"')),
    Input("names of an object", _command, _names),
    Input("objects within objects", _command, lambda n: b'{"a":' * n),
    Input("a batch", _published, _list(EVENT)),
    Input("payload fields", _indexed, lambda n: b'{"b":{"c":' + _list(b'{"a":1}')(n) + b"}}"),
    Input("a long payload field", _indexed, lambda n: b'{"a":' + b"9" * n + b"}"),
    Input("a batch in which all is wrong", _published, _list(b"1")),
    Input("lines", _published, lambda n: b"\n".join([EVENT] * n)),
    Input("lines that are wrong", _published, lambda n: b" 1\n" * n),
    Input("long types", _published, lambda n: b'{"type":"' + b"a." * n + b'","data":1}'),
    Input("lists within data", _published, lambda n: b'{"type":"a","data":' + b"[" * n),
    Input("filters that are tried", lambda it: decode(it, FilterTryIn), lambda n: b'{"a":[' * n),
    Input(
        "Workfront's subscriptions",
        lambda it: decode(it, WorkfrontSubscriptionIn),
        lambda n: b'{"objCode":"' + b"a" * n + b'"}',
    ),
    # Subscriptions.
    Input("URLs", parse_url, lambda n: URL + "%2f" * n),
    Input("hosts of URLs", parse_url, lambda n: "https://" + "a." * n),
    Input("international hosts", parse_url, lambda n: "https://" + "é" * n + ".example", 100),
    Input("international labels", parse_url, lambda n: "https://" + "éééé." * n + "example", 10),
    Input("addresses in URLs", parse_url, lambda n: "https://[" + "1:" * n + "]"),
    Input("patterns", _subscribed, lambda n: {"types": tuple(f"a.b{k}.*" for k in range(n))}),
    Input("a long pattern", _subscribed, lambda n: {"types": ("a." * n + "*",)}),
    Input("headers", _subscribed, lambda n: {"headers": tuple((f"x{k}", "v") for k in range(n))}),
    Input("a long header", _subscribed, lambda n: {"headers": (("x", "a\t " * n),)}),
    Input("tokens", _subscribed, lambda n: {"token": "a" * n}),
    Input("secrets", read_secret, lambda n: "whsec_" + "QUFB" * n),
    Input("descriptions", _subscribed, lambda n: {"description": "a\u2028" * n}),
    Input(
        "changed headers",
        lambda it: merge_pairs(SPEC["headers"], (), it),
        lambda n: dict.fromkeys(map(str, range(n)), ""),
    ),
    Input("filters", read_affordable, lambda n: _list(b"{}")(n).decode(), 10),
    Input(
        "values of a filter", _filtered, lambda n: b'{"newState":{"f":' + _list(b'"y"')(n) + b"}}"
    ),
    # Events on their way.
    Input("types of events", _matched, lambda n: "a" + ".a" * n, 30),
    Input("states within states", collapse, lambda n: b'{"a":["x"],"b":' * n),
    Input("states of one text", collapse, lambda n: _list(b'{"a":["1"]}')(n)[1:-1]),
    Input("lists in a state", collapse, lambda n: b'{"a":["1"],"b":' + _list(b"[[]]")(n) + b"}"),
    Input("data read in slices", _read_in_slices, _list(b'{"a":[1.5,"b"]}')),
    Input("data of any depth", _read_in_slices, lambda n: b"[" * n + b"]" * n),
    Input("data on a page", pretty, _list(b"[[1]]")),
    Input("lines that changed", _changed, lambda n: ("a\nb\n" * n, "a\nc\n" * n)),
    Input("a few lines that changed", _changed, lambda n: ("a\n" * n + "b", "a\n" * n + "c")),
    Input("hidden characters on a page", visible, lambda n: "\xad" * n),
    Input("a pattern of a schema", _is_simple, lambda n: "^" + "[^a]" * n + "("),
    Input("certificates", weigh, lambda n: bytes.fromhex("551d1e048201005a") * n),
    Input("deep data on a page", pretty, lambda n: b"[" * n + b"]" * n),
    # Responses of receivers, and of this server to the client.
    Input("headers of a response", _responded, lambda n: _HEAD + b"a: b\r\n" * n),
    Input(
        "a long header of a response", _responded, lambda n: _HEAD + b"a: " + b"b" * n + b"\r\n\r\n"
    ),
    Input(
        "keep-alive", _responded, lambda n: _HEAD + b"keep-alive: " + b" timeout " * n + b"\r\n\r\n"
    ),
    Input("interim responses", _responded, lambda n: b"HTTP/1.1 100 C\r\n\r\n" * n),
    Input(
        "chunks of a response",
        _responded,
        lambda n: _HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * n,
    ),
    Input("Retry-After", lambda it: retry_after_at(it, now=0, wall=0), lambda n: "0" * n),
    Input(
        "Retry-After as a date", lambda it: retry_after_at(it, now=0, wall=0), lambda n: "Sun, " * n
    ),
    Input(
        "what the client reads", _responded_to_client, lambda n: _HEAD + b"a: b\r\n" * n + b"\r\n"
    ),
    Input(
        "chunks for the client",
        _responded_to_client,
        lambda n: _HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * n,
    ),
    Input("signatures", lambda it: verify(it, b"{}", "whsec_QUFB"), _signed),
    # Scenarios.
    Input("endpoints of a scenario", _scenario, _endpoints, 50),
    Input("unknown endpoints", _scenario, lambda n: _endpoints(n, "nobody"), 50),
    Input("dotted keys", _scenario, lambda n: "a" + ".a" * n + " = 1\n"),
    Input("dotted tables", _scenario, lambda n: "[a" + ".a" * n + "]\n"),
    Input("lists of a scenario", _scenario, lambda n: "a = [" + "1," * n + "]"),
    Input("lists within lists", _scenario, lambda n: "a = " + "[" * n + "]" * n),
    Input(
        "tables of a scenario",
        _scenario,
        lambda n: "a = {" + ", ".join(f"b{k} = 1" for k in range(n)) + "}",
    ),
    Input("unknown keys", _scenario, lambda n: "".join(f"run_forr{k} = 1\n" for k in range(n)), 50),
    Input("strings of a scenario", _scenario, lambda n: 'a = """' + '\\"' * n + '"""'),
    Input("comments", _scenario, lambda n: "# a\n" * n),
    Input("numbers of a scenario", _scenario, lambda n: "seed = " + "1" * n),
    Input("durations", _scenario, lambda n: 'run_for = "' + "1s " * n + '"'),
)
