"""What is let in, and which words a refusal uses."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from homing.errors import Invalid, TooLarge
from homing.model import SPEC
from homing.policy.admission import (
    EventDraft,
    SubscriptionDraft,
    check_events,
    check_subscription,
    draft_of,
    is_time,
    is_type,
    mask,
    merge_pairs,
    read_time,
)
from homing.policy.reach import Reach
from policy.build import a_subscription

GOOD = EventDraft(tenant="default", type="order.paid", data=b"{}")
WANTED = SubscriptionDraft(tenant="default", url="https://Receiver.example", types=("order.*",))
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def refused(*drafts: EventDraft) -> list[str]:
    with pytest.raises(Invalid) as caught:
        check_events(drafts)
    return [problem.field for problem in caught.value.problems]


def admitted(**changes: Any) -> SubscriptionDraft:
    draft = replace(WANTED, **changes)
    return check_subscription(draft, policies=("workfront",), refuses=None)


def complaints(**changes: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        admitted(**changes)
    return dict(caught.value.problems)


# --- events ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a", "a.b-c_d.E9", "x" * 256, "homingx.a", "homing"])
def test_a_type_of_the_allowed_characters_is_taken(kind: str) -> None:
    check_events([replace(GOOD, type=kind)])


@pytest.mark.parametrize("kind", ["", "a b", "ä", "x" * 257, "a/b", "a\n", "homing.a"])
def test_another_type_is_refused(kind: str) -> None:
    assert refused(replace(GOOD, type=kind)) == ["events[0].type"]


@pytest.mark.parametrize("key", ["a", "!" * 128, "a/b~c", "evt_0000"])
def test_an_id_of_visible_ascii_is_taken(key: str) -> None:
    check_events([replace(GOOD, key=key)])


@pytest.mark.parametrize("key", ["", "a.b", "a b", "é", "x" * 129, "a\t"])
def test_another_id_is_refused(key: str) -> None:
    assert refused(replace(GOOD, key=key)) == ["events[0].id"]


@pytest.mark.parametrize("tenant", ["", "a.b", "x" * 65, "a b"])
def test_another_tenant_is_refused(tenant: str) -> None:
    assert refused(replace(GOOD, tenant=tenant)) == ["events[0].tenant"]


@pytest.mark.parametrize(
    "text",
    [
        "2025-01-31T12:00:00Z",
        "2025-01-31t12:00:00.123456789z",
        "2024-02-29T23:59:60+05:30",
        "0001-01-01T00:00:00-23:59",
    ],
)
def test_a_time_after_rfc_3339_is_taken(text: str) -> None:
    assert is_time(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-01-31",
        "2025-01-31 12:00:00Z",
        "2025-01-31T12:00:00",
        "2025-02-29T12:00:00Z",
        "2025-13-01T12:00:00Z",
        "2025-01-31T24:00:00Z",
        "2025-01-31T12:60:00Z",
        "2025-01-31T12:00:61Z",
        "2025-01-31T12:00:00+24:00",
        "٢٠٢٥-01-31T12:00:00Z",
        "2025-01-31T12:00:00Z\n",
        "0000-01-01T00:00:00Z",
        "20250131T120000Z",
    ],
)
def test_another_time_is_refused(text: str) -> None:
    assert not is_time(text)
    assert refused(replace(GOOD, time=text)) == ["events[0].time"]


def test_times_are_read_to_the_millisecond() -> None:
    assert read_time("1970-01-01T00:00:01.5Z") == 1_500
    assert read_time("1970-01-01T01:00:00+01:00") == 0
    assert read_time("1970-01-01T00:00:60z") == 59_000
    assert read_time("2025-01-31T12:00:00.123456789Z") == 1_738_324_800_123
    assert read_time("yesterday") is None


def test_every_bad_item_is_named_with_its_index() -> None:
    bad = EventDraft(tenant="ä", type="", data=b"1", key="", time="x")
    fields = ["type", "id", "tenant", "time"]
    assert refused(GOOD, bad, GOOD, bad) == [
        f"events[{index}].{field}" for index in (1, 3) for field in fields
    ]


def test_a_refusal_names_at_most_100_fields() -> None:
    assert len(refused(*[replace(GOOD, type="")] * 101)) == 100


def test_an_event_of_one_mib_is_taken_and_one_byte_more_is_too_large() -> None:
    check_events([replace(GOOD, data=b"1" * 1024 * 1024)])
    with pytest.raises(TooLarge) as caught:
        check_events([GOOD, replace(GOOD, data=b"1" * (1024 * 1024 + 1))])
    assert [problem.field for problem in caught.value.problems] == ["events[1].data"]


def test_a_thousand_events_are_taken_and_one_more_is_too_many() -> None:
    check_events([GOOD] * 1000)
    with pytest.raises(TooLarge):
        check_events([GOOD] * 1001)


# --- subscriptions --------------------------------------------------------------------------


def test_the_url_comes_back_in_its_normal_form() -> None:
    assert admitted().url == "https://receiver.example/"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://10.0.0.1/", "allow_networks and allow_hosts"),
        ("http://127.0.0.1/", "allow_loopback"),
        ("http://a.localhost/", "allow_loopback"),
        ("http://a.example:22/", "port 22 is not in allow_ports"),
        ("http://a.example:6379/", "port 6379 is in deny_ports"),
        ("http://[fe80::1]/", "allow_metadata"),
        ("http://[::ffff:169.254.169.254]/", "allow_metadata"),
        ("http://0.0.0.0/", "no setting allows it"),
    ],
)
def test_a_refusal_names_the_rule_and_the_setting(url: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_subscription(replace(WANTED, url=url), policies=(), refuses=Reach().refuses)
    (problem,) = caught.value.problems
    assert problem.field == "url"
    assert why in problem.reason


def test_everything_wrong_is_named_at_once() -> None:
    found = complaints(
        tenant="a b",
        url="ftp://x",
        types=(),
        token="",
        headers=(("Host", "x"),),
        secret="s",
        policy="never",
        deadline_ms=999,
        description="x" * 1025,
    )
    assert set(found) == {
        "tenant",
        "url",
        "types",
        "token",
        "headers.Host",
        "secret",
        "policy",
        "deadline_ms",
        "description",
    }


@pytest.mark.parametrize("pattern", ["*", "a", "a.b", "a.*", "a.b.*", "homing.endpoint.*"])
def test_a_pattern_is_exact_or_a_prefix_or_all(pattern: str) -> None:
    assert admitted(types=(pattern, pattern)).types == (pattern,)


@pytest.mark.parametrize("pattern", ["", "**", "a*", "*.a", "a.*.b", ".*a", "a b"])
def test_another_pattern_is_refused(pattern: str) -> None:
    assert set(complaints(types=("a", pattern))) == {"types[1]"}


def test_at_most_100_patterns() -> None:
    assert set(complaints(types=tuple(f"a{n}" for n in range(101)))) == {"types"}


@pytest.mark.parametrize(
    "name",
    [
        "Content-Type",
        "content-length",
        "HOST",
        "connection",
        "transfer-encoding",
        "te",
        "upgrade",
        "trailer",
        "expect",
        "keep-alive",
        "proxy-authorization",
        "user-agent",
        "webhook-id",
        "Homing-Delivery",
    ],
)
def test_reserved_headers_are_refused(name: str) -> None:
    assert set(complaints(headers=((name, "x"),))) == {f"headers.{name}"}


def test_own_headers_are_taken_also_authorization_without_a_token() -> None:
    headers = (("X-Own", "a b\tc"), ("Authorization", "Basic abc"))
    assert admitted(headers=headers).headers == headers
    assert set(complaints(headers=headers, token="t")) == {"headers.Authorization"}


@pytest.mark.parametrize("value", ["a\r\nb", "\0", "é", "\x7f", "x" * 4097, "****abcd"])
def test_a_header_value_that_could_do_harm_is_refused_and_not_repeated(value: str) -> None:
    found = complaints(headers=(("x-own", value),))
    assert set(found) == {"headers.x-own"}
    assert value not in found["headers.x-own"]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\n", "é", "\u212aey", "x" * 129])
def test_a_header_name_is_a_token(name: str) -> None:
    assert set(complaints(headers=(("x-own", "1"), (name, "x")))) == {"headers.1"}


def test_a_wrong_header_is_named_by_its_name_if_that_can_be_shown() -> None:
    assert set(complaints(headers=(("x" * 128, "\0"),))) == {f"headers.{'x' * 128}"}
    assert set(complaints(headers=(("x" * 129, "1"),))) == {"headers.0"}


def test_a_header_is_given_once_and_there_are_at_most_32() -> None:
    assert set(complaints(headers=(("x-a", "1"), ("X-A", "2")))) == {"headers.X-A"}
    assert set(complaints(headers=tuple((f"x-{n}", "1") for n in range(33)))) == {"headers"}


@pytest.mark.parametrize("token", ["a b", "", "é", "a\n", "x" * 4097, "****abcd"])
def test_a_token_is_visible_ascii(token: str) -> None:
    assert set(complaints(token=token)) == {"token"}


def test_good_values_at_their_limits_are_taken() -> None:
    for deadline_ms in (1_000, 30_000):
        admitted(deadline_ms=deadline_ms)
    for deadline_ms in (999, 30_001):
        assert set(complaints(deadline_ms=deadline_ms)) == {"deadline_ms"}
    for rate in (0.01, 1_000.0):
        admitted(rate_per_second=rate)
    for rate in (0.009, 1_000.1, float("nan")):
        assert set(complaints(rate_per_second=rate)) == {"rate_per_second"}
    admitted(types=tuple(f"a{n}" for n in range(100)))
    admitted(headers=tuple((f"x-{n}", "1") for n in range(32)))
    admitted(headers=(("x" * 128, "y" * 4096),))
    admitted(description="x" * 1024)
    assert set(complaints(description="x" * 1025)) == {"description"}
    admitted(token="x" * 4096, secret=SECRET, policy="workfront", description="two\nlines\t")
    assert set(complaints(description="a\0")) == {"description"}


@pytest.mark.parametrize(
    ("pairs", "field", "reason"),
    [
        ([(f"n{n}", "") for n in range(23)], "metadata", "must have at most 20 pairs: remove 3"),
        ([("", "x")], "metadata.0", "name of 1 to 40 characters"),
        ([("a", "1"), ("n" * 41, "x")], "metadata.1", "name of 1 to 40 characters"),
        ([("a\nb", "x")], "metadata.0", "without control characters: choose another name"),
        ([("team", "x" * 501)], "metadata.team", "at most 500 characters"),
        ([("team", "a\tb")], "metadata.team", "control characters: shorten or change it"),
    ],
)
def test_metadata_past_its_limits_is_refused(
    pairs: list[tuple[str, str]], field: str, reason: str
) -> None:
    found = complaints(metadata=tuple(pairs))
    assert set(found) == {field}
    assert reason in found[field]


def test_metadata_at_its_limits_is_taken() -> None:
    pairs = tuple((f"{n:040}", "é" * 500) for n in range(20))
    assert admitted(metadata=pairs).metadata == pairs
    assert draft_of(a_subscription(metadata=pairs)).metadata == pairs


def test_masking_shows_the_last_four_of_long_values_only() -> None:
    assert [mask(text) for text in ("", "12345678", "123456789")] == ["****", "****", "****6789"]


def test_headers_merge_by_name_in_any_case() -> None:
    before = (("X-A", "1"), ("X-B", "2"))
    merged = merge_pairs(
        SPEC["headers"], before, {"x-a": "3", "x-b": None, "x-c": "4", "x-d": None}
    )
    assert merged == (("x-a", "3"), ("x-c", "4"))


def test_a_draft_never_shows_its_secrets() -> None:
    assert "tok" not in repr(replace(WANTED, token="tok", secret=SECRET))


def test_a_draft_of_a_subscription_leaves_it_as_it_is() -> None:
    one = a_subscription(token="t", headers=(("x-a", "1"),), filters="[]", deadline_ms=2_000)
    draft = draft_of(one)
    assert draft.secret is None
    for name in set(SubscriptionDraft.__struct_fields__) - {"secret"}:
        assert getattr(draft, name) == getattr(one, name)


def test_wrong_filters_are_named_with_all_else() -> None:
    assert set(complaints(filters="[1]", description="\0")) == {"filters[0]", "description"}


@pytest.mark.parametrize(("kind", "fine"), [("a.b", True), ("homing.x", True), ("a b", False)])
def test_a_type_can_be_told_from_other_text(kind: str, fine: bool) -> None:
    assert is_type(kind) is fine
