"""The protocol without I/O: what is sent, what is read, and what errors say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_args

import pytest
from msgspec import Raw

from client.both import methods
from homing.cli import notices as cli_notices
from homing.languages.language import LANGUAGES
from homing.policy.notices import NoticeKind, TargetKind
from homing.web.routes import OPERATIONS
from homing_client import (
    AsyncHoming,
    BadResponse,
    Conflict,
    Event,
    Homing,
    Invalid,
    NewSubscription,
    NotAuthorized,
    NotFound,
    Receipt,
    Refused,
    Unavailable,
    values,
)
from homing_client import protocol as p
from homing_client.http1 import Response
from homing_client.retries import RetryRule
from homing_client.time_and_random import new_id


def ids() -> Callable[[], str]:
    numbers = iter(range(100_000))
    return lambda: f"made-{next(numbers)}"


def read(call: p.Call[Any], status: int, document: Any, **headers: str) -> Any:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return p.read_response(call, Response(status, headers, body), maybe_done=False)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    assert dict(methods(Homing)) == dict(methods(AsyncHoming))


def test_there_is_a_call_for_every_operation_of_the_server() -> None:
    calls: list[p.Call[Any]] = [
        p.publish(Event(type="a", data=1), new_id),
        p.events({}).page(None),
        p.event("X", None),
        p.subscribe("u", ["*"], {}, "7d", 5),
        p.subscriptions({}).page(None),
        p.subscription("X"),
        p.change_subscription("X", {}),
        p.delete_subscription("X"),
        p.rotate_secret("X", None, None),
        p.signing_keys(None),
        p.rotate_signing_keys(None, None),
        p.jwks(None),
        p.verify_subscription("X"),
        p.pause_subscription("X"),
        p.count_past("X", "7d"),
        p.backfill("X", "7d", 5),
        p.resume_subscription("X"),
        p.test_subscription("X"),
        p.read_events("X", reader="r", after=None, from_now=True, limit=9, wait_s=1.5),
        p.acknowledge("X", "c", reader="r"),
        p.readers("X"),
        p.remove_reader("X", "r"),
        p.try_filters({}, None),
        p.endpoints({}).page(None),
        p.endpoint("X"),
        p.enable_endpoint("X"),
        p.freeze_endpoint("X"),
        p.deliveries({}).page(None),
        p.delivery("X"),
        p.replay_delivery("X"),
        p.try_delivery("X"),
        p.cancel_delivery("X"),
        p.attempts({}, None),
        p.start_replay({}),
        p.replay_job("X"),
        p.cancel_replay("X"),
        p.erase({}),
        p.erasures({}).page(None),
        p.erasure("X"),
        p.create_event_type({}),
        p.event_types({}).page(None),
        p.event_type("X", None),
        p.change_event_type("X", {}, None),
        p.delete_event_type("X", None),
        p.event_types_openapi(None),
        p.create_notice_target({}),
        p.notice_targets({}).page(None),
        p.notice_target("X"),
        p.change_notice_target("X", {}),
        p.rotate_notice_target_secret("X"),
        p.send_notice_target_link("X"),
        p.delete_notice_target("X"),
        p.test_notice_target("X"),
        p.notices({}).page(None),
        p.create_portal_link({}),
        p.portal_links({}).page(None),
        p.revoke_portal_link("X"),
        p.portal(None),
        p.change_portal(None, {}),
        p.create_key("n", "viewer", None, None),
        p.keys({}).page(None),
        p.revoke_key("X"),
        p.audit({}).page(None),
        p.verify_audit(None),
        p.causes({}).page(None),
        p.endpoint_attempts("X", {}).page(None),
        p.search("X", None),
        p.ledger(None),
        p.egress(),
        p.status(),
        p.lost_commits(),
        p.confirm_lost_commits(),
        p.healthz(),
        p.readyz(),
        p.metrics(),
    ]
    ours = {(one.method, one.path.partition("?")[0].replace("X", "{id}")) for one in calls}
    theirs = {(one.method, one.path) for one in OPERATIONS}
    assert ours == theirs - {  # The client reads pages instead.
        ("GET", "/v1/audit/export"),
        ("GET", "/v1/subscriptions/{id}/stream"),
    }


def test_an_event_always_has_an_id_and_the_publishers_own_comes_first() -> None:
    one = p.publish(Event(type="a.b", data={"n": 1}), ids())
    assert json.loads(one.body) == {"type": "a.b", "id": "made-0", "data": {"n": 1}}
    mine = Event(type="a", data=None, id="mine", tenant="t", time="2026-01-01T00:00:00Z")
    assert json.loads(p.publish(mine, ids()).body) == {
        "type": "a",
        "id": "mine",
        "data": None,
        "tenant": "t",
        "time": "2026-01-01T00:00:00Z",
    }


def test_raw_data_goes_out_byte_for_byte() -> None:
    call = p.publish(Event(type="a", data=Raw(b'{ "n":1.50 }')), ids())
    assert b'"data":{ "n":1.50 }' in call.body


def test_made_ids_fit_the_servers_rule_differ_and_are_in_order_of_time() -> None:
    made = [new_id() for _ in range(1_000)]
    assert len(set(made)) == 1_000
    assert all(len(one) == 32 and one.isalnum() for one in made)
    assert [one[:12] for one in made] == sorted(one[:12] for one in made)


def test_any_number_of_events_goes_in_batches_of_lines_within_the_limits() -> None:
    few = list(p.publish_lines((Event(type="a", data=n) for n in range(2_500)), ids()))
    assert [one.body.count(b"\n") for one in few] == [1_000, 1_000, 500]
    assert {one.content_type for one in few} == {"application/x-ndjson"}
    large = Event(type="a", data="x" * 1_000_000)
    sizes = [len(one.body) for one in p.publish_lines([large] * 20, ids())]
    assert len(sizes) == 3
    assert max(sizes) <= p.BATCH_BYTES_MAX
    assert list(p.publish_lines([], ids())) == []


def test_a_response_with_fields_that_are_not_known_yet_is_read() -> None:
    call = p.publish(Event(type="a", data=1), ids())
    document = {"events": [{"id": "i", "deliveries": 2, "new": {}}], "also": []}
    assert read(call, 202, document) == Receipt("i", 2)


def test_a_receipt_says_whether_the_id_was_published_before() -> None:
    call = p.publish(Event(type="a", data=1), ids())
    document = {"events": [{"id": "i", "deliveries": 2, "duplicate": True}]}
    assert read(call, 202, document).duplicate is True


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"events": [{}]}', b'{"events": []}', b"\xff"])
def test_a_response_that_is_not_homings_is_told_as_such(body: bytes) -> None:
    with pytest.raises(BadResponse):
        read(p.publish(Event(type="a", data=1), ids()), 202, body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (401, NotAuthorized),
        (404, NotFound),
        (409, Conflict),
        (422, Invalid),
        (429, Unavailable),
        (503, Unavailable),
        (500, Refused),
        (302, Refused),
    ],
)
def test_a_refusal_is_an_error_with_its_problem_document(status: int, kind: type[Refused]) -> None:
    document = {
        "title": "A field of the request is wrong.",
        "detail": "types must …",
        "code": "invalid",
        "problems": [{"field": "types", "reason": "must hold one"}],
        "new": 1,
    }
    with pytest.raises(kind) as caught:
        read(p.delivery("X"), status, document)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code) == (status, "invalid")
    assert [(one.field, one.reason) for one in error.problems] == [("types", "must hold one")]
    assert "types must hold one" in str(error)
    said = f"{status} invalid: A field of the request is wrong. types must hold one."
    assert str(error) == said, "a thing is said once"


def test_a_refusal_by_somebody_else_has_its_status_and_says_so() -> None:
    with pytest.raises(Unavailable, match="not from Homing") as caught:
        read(p.delivery("X"), 502, b"<h1>Bad Gateway</h1>")
    assert caught.value.code == ""


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)]
)
def test_retry_after_is_read_in_seconds(text: str, seconds: float | None) -> None:
    with pytest.raises(Unavailable) as caught:
        read(p.delivery("X"), 503, {}, **{"retry-after": text})
    assert caught.value.retry_after_s == seconds


def test_a_deletion_whose_response_was_lost_is_done_when_nothing_is_left() -> None:
    call = p.delete_subscription("sub_1")
    gone = Response(404, {}, b"{}")
    assert p.read_response(call, gone, maybe_done=True) is None
    with pytest.raises(NotFound):
        p.read_response(call, gone, maybe_done=False)


def test_ids_are_one_part_of_a_path_and_conditions_are_quoted() -> None:
    assert p.event("a/b?c", "t&u").path == "/v1/events/a%2Fb%3Fc?tenant=t%26u"
    assert p.events({"type": None, "tenant": "t"}).page("c=").path == (
        "/v1/events?tenant=t&limit=200&cursor=c%3D"
    )
    with pytest.raises(ValueError, match="must not be empty"):
        p.delivery("")


def test_one_type_may_be_given_as_a_text() -> None:
    assert json.loads(p.subscribe("u", "order.*", {}).body)["types"] == ["order.*"]
    assert json.loads(p.change_subscription("s", {"types": "a"}).body) == {"types": ["a"]}


def test_what_makes_something_new_is_not_sent_twice() -> None:
    for call in (p.subscribe("u", [], {}), p.replay_delivery("d"), p.start_replay({})):
        assert call.retry is RetryRule.UNSENT
    assert p.count_replay({}).retry is RetryRule.ALWAYS


def test_a_new_subscription_does_not_show_its_secret_by_accident() -> None:
    made = NewSubscription(
        id="x",
        tenant="x",
        endpoint="x",
        url="x",
        types=(),
        secrets=(),
        created_at="",
        updated_at="",
        secret="whsec_hidden",
    )
    assert "hidden" not in repr(made)


def test_importing_the_client_imports_msgspec_and_nothing_else_from_outside() -> None:
    """msgspec takes typing_extensions along where it is installed."""
    code = (
        "import sys; import homing_client\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "ours = {'__main__', 'homing_client', 'typing_extensions'}\n"
        "print(sorted(tops - set(sys.stdlib_module_names) - ours))"
    )
    ran = subprocess.run(
        [sys.executable, "-Sc", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "['msgspec']"


def test_a_traceparent_is_sent_as_a_header_and_nothing_else_is() -> None:
    given = f"00-{'a' * 32}-{'b' * 16}-01"
    for call in (
        p.publish(Event(type="a", data=1), ids(), given),
        p.publish_many([Event(type="a", data=1)], ids(), given),
    ):
        assert call.trace == given
    assert p.publish(Event(type="a", data=1), ids()).trace == ""
    with pytest.raises(ValueError, match="is not a traceparent"):
        p.publish(Event(type="a", data=1), ids(), "x\r\nauthorization: y")


def test_the_client_and_the_command_line_know_every_kind_and_language_of_notices() -> None:
    kinds, languages = list(NoticeKind), list(LANGUAGES)
    assert [list(get_args(values.NoticeKind)), [*cli_notices.NoticeKind]] == [kinds, kinds]
    assert [list(get_args(values.LanguageCode)), [*cli_notices.Language]] == [languages] * 2
    assert [list(get_args(values.TargetKind)), [*cli_notices.Kind]] == [list(TargetKind)] * 2
