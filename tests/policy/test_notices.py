"""Notices to people: quiet hours, waits, checks of a target, and their texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Invalid
from homing.languages import language
from homing.languages.language import LANGUAGES
from homing.languages.sentences import say
from homing.policy import notice_text
from homing.policy.notice_text import Message, headline, plain_text, sentence, subject
from homing.policy.notices import (
    DAY_MS,
    OPERATORS_ONLY,
    RETRY_FIRST_MS,
    RETRY_MAX_MS,
    TARGET_DELETED,
    Notice,
    NoticeKind,
    NoticeTarget,
    TargetDraft,
    TargetKind,
    check_target,
    is_first_drop,
    masked_address,
    next_due,
    quiet_for_ms,
    retry_wait_ms,
    stored_text,
    text_facts,
)

NOW = 1_800_000_000_000
MINUTE = 60_000


def target(**more: Any) -> NoticeTarget:
    values: dict[str, Any] = {
        "id": 7,
        "tenant": "acme",
        "kind": TargetKind.EMAIL,
        "name": "",
        "address": "ops@a.example",
        "secret": "token",
        "kinds": (),
        "quiet_hours": "",
        "time_zone": "UTC",
        "created_at": NOW,
    }
    return NoticeTarget(**(values | more))


def wall(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("at", "hours", "minutes"),
    [
        ("2027-01-15T21:59:59+00:00", "22:00-07:00", 0),
        ("2027-01-15T22:00:00+00:00", "22:00-07:00", 9 * 60),
        ("2027-01-16T06:59:00+00:00", "22:00-07:00", 1),
        ("2027-01-16T07:00:00+00:00", "22:00-07:00", 0),
        ("2027-01-15T12:30:00+00:00", "12:00-13:00", 30),
        ("2027-01-15T13:00:00+00:00", "12:00-13:00", 0),
        ("2027-01-15T00:00:00+00:00", "00:00-23:59", 23 * 60 + 59),
        ("2027-01-15T12:00:00+00:00", "", 0),
    ],
)
def test_quiet_hours(at: str, hours: str, minutes: int) -> None:
    assert quiet_for_ms(hours, UTC, wall=wall(at)) == minutes * MINUTE


def test_quiet_hours_are_in_the_zone_of_the_target() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert quiet_for_ms("22:00-07:00", berlin, wall=wall("2027-07-01T20:30:00+00:00")) > 0
    assert quiet_for_ms("22:00-07:00", berlin, wall=wall("2027-01-01T20:30:00+00:00")) == 0


@given(st.integers(0, 2**41), st.integers(0, 1439), st.integers(0, 1439), st.integers(-14, 14))
def test_after_the_quiet_hours_it_is_not_quiet(at: int, begin: int, end: int, zone: int) -> None:
    if begin == end:
        return
    hours = f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"
    there = timezone(timedelta(hours=zone))
    left = quiet_for_ms(hours, there, wall=at)
    assert 0 <= left < DAY_MS
    assert quiet_for_ms(hours, there, wall=at + left) == 0


def test_waits_double_up_to_an_hour() -> None:
    waits = [retry_wait_ms(n) for n in range(1, 2_000)]
    assert waits[:4] == [RETRY_FIRST_MS * 2**n for n in range(4)]
    assert set(waits[7:]) == {RETRY_MAX_MS}


def test_a_due_time_from_before_the_clock_was_set_back_does_not_hold() -> None:
    assert next_due(target(due_at=NOW + MINUTE), now=NOW, quiet_until=None) == NOW + MINUTE
    assert next_due(target(due_at=NOW + DAY_MS), now=NOW, quiet_until=None) == NOW
    assert next_due(target(due_at=0), now=NOW, quiet_until=NOW + 9) == NOW + 9


def test_a_drop_is_the_first_after_a_day_without_one() -> None:
    assert is_first_drop(0, now=NOW)
    assert is_first_drop(NOW - DAY_MS, now=NOW)
    assert not is_first_drop(NOW - DAY_MS + 1, now=NOW)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        "a@",
        "@b.example",
        "a b@c.example",
        "a@b@c.example",
        "a@b.example\r\nBcc: c@d.example",
        "Ada <a@b.example>",
        "a@b.example, c@d.example",
        "a@-b.example",
        "é@b.example",
        "a" * 65 + "@b.example",
        "a@" + "b" * 250,
    ],
)
def test_what_is_not_one_address_is_refused(address: str) -> None:
    draft = TargetDraft(kind=TargetKind.EMAIL, address=address, tenant="acme")
    with pytest.raises(Invalid) as caught:
        check_target(draft, refuses=lambda _: "", is_zone=lambda _: True, mail_problem="")
    assert [it.field for it in caught.value.problems] == ["address"]


@pytest.mark.parametrize("code", ["", "EN", "en-GB", "tlh", "../nl"])
def test_a_language_that_homing_has_no_texts_in_is_refused(code: str) -> None:
    draft = TargetDraft(kind=TargetKind.SLACK, address="https://a.example/", language=code)
    with pytest.raises(Invalid) as caught:
        check_target(draft, refuses=lambda _: "", is_zone=lambda _: True, mail_problem="")
    ((field, reason),) = caught.value.problems
    assert (field, reason) == ("language", "must be one of en, nl, it, ja, zh")


def test_an_address_keeps_its_local_part_and_a_url_its_secret() -> None:
    draft = TargetDraft(kind=TargetKind.EMAIL, address=" Ops+1@B.Example ", tenant="acme")
    checked = check_target(draft, refuses=lambda _: "", is_zone=lambda _: True, mail_problem="")
    assert checked.address == "Ops+1@b.example"
    slack = target(kind=TargetKind.SLACK, address="https://hooks.slack.com/services/T/B/x")
    assert masked_address(slack) == "https://hooks.slack.com/****"
    assert masked_address(target()) == "ops@a.example"
    assert "services" not in repr(slack)


FACTS: dict[NoticeKind, dict[str, Any]] = {
    NoticeKind.WARNING: {
        "rule": "failure_rate",
        "numbers": {"failures": 60, "attempts": 103, "limit_percent": 70},
        "last": "503 Service Unavailable",
    },
    NoticeKind.DISABLED: {
        "before": "enabled",
        "after": "disabled",
        "rule": "consecutive_failures",
        "numbers": {"consecutive_failures": 2000, "limit": 2000},
    },
    NoticeKind.FROZEN: {
        "before": "enabled",
        "after": "frozen",
        "rule": "frozen_by_person",
        "by": "ada",
    },
    NoticeKind.REMINDER: {"state": "frozen", "days": 2},
    NoticeKind.RECOVERED: {
        "before": "disabled",
        "after": "enabled",
        "rule": "success",
        "numbers": {"disabled_ms": 600_000},
    },
    NoticeKind.FIRST_DROP: {"count": 3},
    NoticeKind.CERTIFICATE: {"subject": "CN=homing", "expires_at": NOW, "days": 7},
    NoticeKind.GONE: {"subscription": "sub_0000000000005"},
    NoticeKind.OUTAGE: {"why": "8 of 10 endpoints fail to connect"},
    NoticeKind.OUTAGE_OVER: {"outage_ms": 90_000},
    NoticeKind.COMMITS_LOST: {
        "text": "Events of the last second may be missing.",
        "kind": "publish",
    },
}


def notice(kind: NoticeKind, *, url: str = "https://shop.example/hook") -> Notice:
    if kind in OPERATORS_ONLY:
        return Notice(9, kind, NOW, "", facts=FACTS[kind])
    return Notice(9, kind, NOW, "acme", 5, url, FACTS[kind])


def message(*notices: Notice, **more: int) -> Message:
    counts = {NoticeKind(kind): count for kind, count in more.items()}
    return Message(3, target(), notices, counts, "https://homing.example")


@pytest.mark.parametrize("kind", NoticeKind)
def test_every_kind_has_a_subject_a_sentence_and_a_link(kind: NoticeKind) -> None:
    one = notice(kind)
    assert headline(one)
    assert sentence(one).endswith(".")
    assert "None" not in sentence(one)
    text = plain_text(message(one))
    assert "https://homing.example/" in text
    assert "2027-01-15 08:00:00 UTC" in text
    assert subject(message(one)) == f"Homing: {headline(one)}"


def test_a_digest_begins_with_counts_and_lists_the_first_fifty() -> None:
    many = [notice(NoticeKind.DISABLED, url=f"https://{n}.example/") for n in range(60)]
    digest = message(*many, recovered=7)
    assert subject(digest) == "Homing: 67 changes: 60 disabled, 7 recovered"
    text = plain_text(digest)
    assert text.splitlines()[0] == "67 changes: 60 disabled, 7 recovered."
    assert text.count("URL: ") == 50
    assert "17 further changes are in the dashboard." in text


def test_text_of_tenants_is_escaped_for_slack_and_teams() -> None:
    tricky = notice(NoticeKind.DISABLED, url="https://a.example/<!channel>[x](https://evil)_*")
    assert "<!channel>" not in notice_text.slack_text(message(tricky))
    assert "[x](" not in notice_text.teams_text(message(tricky))
    teams = msgspec.json.decode(notice_text.teams_body("hello"))
    card = teams["attachments"][0]["content"]
    assert card["body"][0]["text"] == "hello"


def test_a_webhook_gets_all_notices_as_json() -> None:
    body = msgspec.json.decode(notice_text.webhook_body(message(*map(notice, NoticeKind))))
    assert body["count"] == len(NoticeKind)
    assert [it["kind"] for it in body["notices"]] == list(NoticeKind)
    assert body["notices"][-1]["endpoint"] is None


# --- languages ---------------------------------------------------------------------------------

GONE = (
    "The receiver responded with 410, so the subscription {subscription} is inactive and its "
    "pending deliveries are cancelled. If the URL works again, activate the subscription and "
    "replay what was cancelled."
)
JAPANESE = {
    "Homing: {headline}": ("Homing：{headline}",),
    "{headline}.": ("{headline}。",),
    "{host} is failing": ("{host} への配信が失敗しています",),
    "Last attempt: {failure}.": ("最後の試行：{failure}。",),
    GONE: ("{subscription} は 410 を返しました。",),
    "no answer from {host}": ("{host} から応答がありません",),
    "Homing: {count} change: {kinds}": ("Homing：{count} 件の変更（{kinds}）",),
    "the target was deleted": ("宛先は削除されました",),
    "{first}, {second}": ("{first}、{second}",),
    "{count} disabled": ("{count} 件無効",),
    "{count} recovered": ("{count} 件回復",),
}


def in_language(code: str, *notices: Notice, tenant: str = "acme", **more: int) -> Message:
    counts = {NoticeKind(kind): count for kind, count in more.items()}
    url = "https://homing.example"
    return Message(3, target(language=code, tenant=tenant), notices, counts, url)


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_translations", lambda _: JAPANESE)


@pytest.mark.usefixtures("translated")
def test_a_message_is_in_the_language_of_its_target() -> None:
    one = notice(NoticeKind.WARNING)
    last = text_facts("last", say("no answer from {host}", host="shop.example"))
    one = msgspec.structs.replace(one, facts={**one.facts, **last})
    there = in_language("ja", one)
    assert subject(there) == "Homing：shop.example への配信が失敗しています"
    lines = plain_text(there).splitlines()
    assert lines[0] == "shop.example への配信が失敗しています。"
    assert "最後の試行：shop.example から応答がありません。" in lines
    here = in_language("en", one)
    assert subject(here) == "Homing: shop.example is failing"
    assert "Last attempt: no answer from shop.example." in plain_text(here)


@pytest.mark.usefixtures("translated")
def test_a_stored_reason_is_said_if_it_is_a_message() -> None:
    said = LANGUAGES["ja"].text
    assert said(stored_text("the target was deleted")) == "宛先は削除されました"
    assert said(stored_text("250 {odd} reply")) == "250 {odd} reply"
    assert stored_text("the target was deleted") == TARGET_DELETED


@pytest.mark.usefixtures("translated")
def test_counts_are_a_list_in_the_language_of_the_target() -> None:
    there = in_language("ja", disabled=1200, recovered=7)
    assert subject(there) == "Homing：1,207 件の変更（1,200 件無効、7 件回復）"


@pytest.mark.usefixtures("translated")
def test_the_text_of_a_webhook_is_in_its_language_and_nothing_else_changes() -> None:
    one = notice(NoticeKind.GONE)
    here, there = (
        msgspec.json.decode(notice_text.webhook_body(in_language(it, one))) for it in ("en", "ja")
    )
    assert here["notices"][0].pop("text") == sentence(one)
    assert there["notices"][0].pop("text") == "sub_0000000000005 は 410 を返しました。"
    assert here == there


def test_what_was_stored_as_text_is_shown_as_it_is() -> None:
    """Records from before sentences were stored as such."""
    old = {
        NoticeKind.WARNING: ("last", "503 Service Unavailable"),
        NoticeKind.OUTAGE: ("why", "8 of 10 endpoints fail to connect"),
        NoticeKind.COMMITS_LOST: ("text", "Events of the last second may be missing."),
    }
    for kind, (name, text) in old.items():
        assert FACTS[kind][name] == text
        assert text in plain_text(message(notice(kind)))


class Wordless(Mapping[str, tuple[str, ...]]):
    """Translations without any letter: what a text still says in it is data, or not translated."""

    def __getitem__(self, message: str) -> tuple[str, ...]:
        return ("".join(re.findall(r"\{[a-z_]+\}|[^A-Za-z]", message)),)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


STATES = ("disabled", "frozen")
VARIANTS: tuple[tuple[NoticeKind, dict[str, Any]], ...] = (
    *((kind, facts) for kind, facts in FACTS.items() if kind not in OPERATORS_ONLY),
    (NoticeKind.WARNING, text_facts("last", say("no response in time"))),
    (NoticeKind.WARNING, {"rule": "consecutive_failures", "numbers": {"limit": 9}}),
    *((NoticeKind.REMINDER, {"state": it, "days": n}) for it in STATES for n in (1, 2)),
    (NoticeKind.FIRST_DROP, {"count": 1}),
    *((NoticeKind.CERTIFICATE, {"subject": "CN=homing", "days": n}) for n in (0, 1, 30)),
    (NoticeKind.OUTAGE, {**text_facts("why", say("nothing gets through")), "process": "web-1"}),
    (NoticeKind.OUTAGE, text_facts("why", say("nothing gets through"))),
    (NoticeKind.OUTAGE_OVER, {"outage_ms": 90_000}),
    (NoticeKind.COMMITS_LOST, text_facts("text", say("Events may be missing."))),
)
DATA = re.compile(
    r"https://[a-z./A-Z_0-9?=]+|shop\.example|acme|ada|web-1|CN=homing|sub_\w+|UTC"
    r"|503 Service Unavailable"
)


@pytest.mark.parametrize(("kind", "facts"), VARIANTS)
@pytest.mark.parametrize("whose", ["acme", ""])
@pytest.mark.parametrize(
    ("tenant", "url"), [("acme", "https://shop.example/hook"), ("acme", ""), ("", "")]
)
def test_no_text_of_a_message_stays_english(
    monkeypatch: pytest.MonkeyPatch,
    kind: NoticeKind,
    facts: dict[str, Any],
    whose: str,
    tenant: str,
    url: str,
) -> None:
    monkeypatch.setattr(language, "_translations", lambda _: Wordless())
    one = Notice(9, kind, NOW, tenant, 5 if url else 0, url, facts)
    for there in (
        in_language("nl", one, tenant=whose),
        in_language("nl", one, tenant=whose, **dict.fromkeys(NoticeKind, 2)),
    ):
        for text in (
            subject(there),
            plain_text(there),
            notice_text.slack_text(there),
            *notice_text.confirmation(there.target, public_url="https://homing.example"),
            notice_text.test_subject(there.target),
            notice_text.test_text(there.target),
        ):
            assert re.findall("[A-Za-z]+", DATA.sub("", text)) == [], text


def test_times_of_a_message_are_in_utc_in_every_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_translations", lambda _: Wordless())
    for code in LANGUAGES:
        assert "2027-01-15 08:00:00 UTC" in plain_text(in_language(code, notice(NoticeKind.GONE)))


def test_a_language_that_was_removed_is_english() -> None:
    assert subject(in_language("tlh", notice(NoticeKind.GONE))).startswith(
        "Homing: shop.example is"
    )
