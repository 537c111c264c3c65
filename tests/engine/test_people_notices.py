"""Notices to people: which are written, when messages are sent, and what fails without harm."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from engine.outages import OUTAGES, STRICT, URLS, Net
from engine.world import DAY, HOUR, MINUTE, SECOND, Reply, World, always, failing_with, live
from homing.engine.options import EngineOptions
from homing.errors import Conflict, NotFound, TooMany
from homing.languages import language
from homing.model import Failure, State
from homing.policy import notice_text
from homing.policy.health import HealthRules
from homing.policy.notices import (
    OPERATOR,
    NoticeKind,
    NoticeRecord,
    NoticeStatus,
    NoticeTarget,
    TargetDraft,
    TargetKind,
)
from homing.policy.signature import Signer
from homing.store.notices import Notices

URL = "https://receiver.example/hook"
HOOK = "https://people.example/notices"
FEW = EngineOptions(health=HealthRules(rate_after_attempts=1_000, consecutive_disable=4))


async def target(world: World, **more: Any) -> NoticeTarget:
    values = {"tenant": "default", "kind": TargetKind.WEBHOOK, "address": HOOK} | more
    made = await world.engine.notice_targets.create(TargetDraft(**values))
    if made.kind is not TargetKind.EMAIL:
        world.secrets.add(made.secret)
    return made


async def fail(world: World, times: int = 1, url: str = URL) -> None:
    world.sender.scripts[url] = always(503)
    for _ in range(times):
        await world.publish()
        await world.settled()


async def records(world: World) -> list[NoticeRecord]:
    found, _ = await Notices(world.db).notices(
        owner=None, target_id=None, before_id=None, limit=1_000
    )
    return found[::-1]


def told(world: World, url: str = HOOK) -> list[list[str]]:
    """The kinds of notices in each request to a target."""
    bodies = [msgspec.json.decode(hit.body) for hit in world.sender.hits if hit.url == url]
    return [[it["kind"] for it in body["notices"]] for body in bodies]


def test_a_failing_url_is_reported_from_the_warning_to_its_recovery() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "a.b")
        await target(world)
        await fail(world, 4)
        assert told(world) == [["warning"], ["disabled"]]
        world.sender.scripts[URL] = always(200)
        await world.wait(11 * MINUTE)
        assert told(world)[2:] == [["recovered"]]
        found = await records(world)
        assert [it.status for it in found] == [NoticeStatus.SENT] * 3
        changes = await world.transitions(URL)
        assert [it.id for it in found[1:]] == [it.id for it in changes]
        hit = [hit for hit in world.sender.hits if hit.url == HOOK][1]
        disabled = msgspec.json.decode(hit.body)
        assert hit.headers["webhook-id"] == disabled["id"]
        (notice,) = disabled["notices"]
        endpoint = await world.endpoint(URL)
        assert "4 attempts in a row failed" in notice["text"]
        assert notice["link"].startswith("https://homing.example/endpoints/ep_")
        assert (notice["url"], notice["tenant"]) == (URL, endpoint.tenant)

    live(story, FEW)


def test_a_person_freezes_and_enables() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await target(world)
        endpoint = await world.endpoint(URL)
        await world.engine.freeze(endpoint.id, by="ada")
        await world.engine.freeze(endpoint.id, by="ada")
        await world.engine.enable(endpoint.id, by="ada")
        await world.wait(SECOND)
        assert [it.notice.kind for it in await records(world)] == ["frozen", "recovered"]
        assert (await records(world))[0].notice.facts["by"] == "ada"
        assert sorted(kind for one in told(world) for kind in one) == ["frozen", "recovered"]

    live(story)


@pytest.mark.long
def test_a_state_that_lasts_is_reminded_of_on_three_days() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await target(world)
        await world.engine.freeze((await world.endpoint(URL)).id, by="ada")
        for days in range(1, 6):
            await world.wait(DAY)
            await world.wait(2 * MINUTE)
            reminders = [it for it in await records(world) if it.notice.kind == "reminder"]
            assert len(reminders) == min(days, 3)
        assert told(world) == [["frozen"], ["reminder"], ["reminder"], ["reminder"]]
        assert [it.notice.facts["days"] for it in (await records(world))[1:]] == [1, 2, 3]

    live(story)


@pytest.mark.long
def test_the_first_drop_is_reported_and_then_only_after_a_day_without_one() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await target(world)
        world.sender.scripts[URL] = always(503)
        for _ in range(3):
            await world.publish()
            await world.wait(6 * HOUR)
        await world.wait(3 * DAY)
        assert [it.notice.kind for it in await records(world)] == ["first_drop"]
        await world.publish()
        await world.wait(3 * DAY)
        assert [it.notice.kind for it in await records(world)] == ["first_drop"] * 2

    live(story)


def test_without_a_target_no_record_and_no_statement_is_made() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await fail(world, 3)
        before = world.db.statements
        await fail(world, 1)
        cost = world.db.statements - before
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        assert await records(world) == []
        await world.engine.enable((await world.endpoint(URL)).id, by="ada")
        other = await target(world)
        await world.engine.notice_targets.delete(other.id)
        await fail(world, 3)
        before = world.db.statements
        await fail(world, 1)
        assert world.db.statements - before == cost
        before = world.db.statements
        await world.wait(5 * MINUTE)
        assert world.db.statements == before, "nothing is asked while there is no target"

    live(story, EngineOptions(health=HealthRules(rate_after_attempts=1_000, consecutive_disable=4)))


def test_a_new_target_misses_nothing_and_an_older_change_is_not_reported() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await fail(world, 4)
        await target(world)
        await world.engine.enable((await world.endpoint(URL)).id, by="ada")
        await world.wait(SECOND)
        assert told(world) == [["recovered"]]

    live(story, FEW)


def test_at_most_one_email_in_five_minutes_and_each_change_is_in_one() -> None:
    async def story(world: World) -> None:
        urls = [f"https://{n}.example/hook" for n in range(6)]
        for url in urls:
            await world.subscribe(url)
        await target(world, kind=TargetKind.EMAIL, address="ops@a.example", tenant=OPERATOR)
        ids = [(await world.endpoint(url)).id for url in urls]
        times = []
        for number in ids:
            await world.engine.freeze(number, by="ada")
            await world.wait(MINUTE)
        await world.wait(10 * MINUTE)
        times = [mail.at for mail in world.mailer.sent]
        assert all(b - a >= 5 * MINUTE for a, b in pairwise(times))
        assert [mail.subject for mail in world.mailer.sent] == [
            "Homing: 0.example is frozen",
            "Homing: 5 changes: 5 frozen",
        ]
        listed = [line for mail in world.mailer.sent for line in mail.text.splitlines()]
        for url in urls:
            assert sum(line.startswith(f"URL: {url} ") for line in listed) == 1
        assert len({mail.message_id for mail in world.mailer.sent}) == len(world.mailer.sent)

    live(story)


def test_quiet_hours_end_with_one_message() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        hour = world.clock.wall() // HOUR % 24
        quiet = f"{hour:02}:00-{(hour + 3) % 24:02}:00"
        await target(world, quiet_hours=quiet)
        endpoint = await world.endpoint(URL)
        for _ in range(3):
            await world.engine.freeze(endpoint.id, by="ada")
            await world.engine.enable(endpoint.id, by="ada")
            await world.wait(MINUTE)
        assert told(world) == []
        await world.wait(3 * HOUR)
        assert told(world) == [["frozen", "recovered"] * 3]
        assert world.clock.wall() // HOUR % 24 != hour
        (hit,) = [hit for hit in world.sender.hits if hit.url == HOOK]
        assert hit.at // HOUR % 24 == (hour + 3) % 24

    live(story)


def test_a_message_that_fails_is_sent_again_with_the_same_identity() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await target(world)
        world.sender.scripts[HOOK] = always(500)
        await world.engine.freeze((await world.endpoint(URL)).id, by="ada")
        await world.wait(8 * HOUR)
        await world.crash()
        await world.wait(2 * HOUR)
        await world.engine.enable((await world.endpoint(URL)).id, by="ada")
        await world.wait(HOUR)
        hits = [hit for hit in world.sender.hits if hit.url == HOOK]
        gaps = [b.at - a.at for a, b in pairwise(hits)]
        assert 30 * SECOND <= gaps[0] < 31 * SECOND
        assert max(gaps) <= HOUR + 61 * SECOND
        assert len({hit.headers["webhook-id"] for hit in hits}) == 1
        assert {hit.body for hit in hits} == {hits[0].body}
        world.sender.scripts[HOOK] = always(200)
        await world.wait(2 * HOUR)
        assert told(world)[-2:] == [["frozen"], ["recovered"]]
        assert {it.status for it in await records(world)} == {NoticeStatus.SENT}
        balance = [it.message_id for it in await records(world)]
        assert len(set(balance)) == 2

    live(story)


def test_a_hanging_target_holds_up_no_other_and_no_delivery() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        for n in range(18):
            url = f"https://hangs.example/{n}"
            await target(world, address=url)
            world.sender.scripts[url] = always(200, latency_ms=HOUR)
        await target(world, tenant="other")
        await world.subscribe(URL, tenant="other")
        world.mailer.latency_s = 3_600
        await target(world, kind=TargetKind.EMAIL, address="a@a.example", tenant=OPERATOR)
        found, _ = await world.views.endpoints(tenant=None, state=None, before_id=None, limit=9)
        begun = world.clock.now()
        for endpoint in found:
            await world.engine.freeze(endpoint.id, by="ada")
            await world.engine.enable(endpoint.id, by="ada")
        await world.publish()
        await world.settled()
        assert world.clock.now() - begun < SECOND
        assert [kind for one in told(world) for kind in one] == ["frozen", "recovered"]
        assert world.hits(URL) == [begun - world.start_ms]

    live(story)


def test_an_unexpected_error_does_not_end_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    ask = Notices.targets_to_send

    async def fails_once(self: Notices, **given: Any) -> list[NoticeTarget]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ZeroDivisionError
        return await ask(self, **given)

    monkeypatch.setattr(Notices, "targets_to_send", fails_once)

    async def story(world: World) -> None:
        await world.subscribe(URL, "a.b")
        await target(world)
        await fail(world, 4)
        await world.wait(MINUTE)
        assert told(world) == [["warning"], ["disabled"]]

    live(story, FEW)


def test_a_message_that_cannot_be_written_waits_as_long_as_one_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    async def story(world: World) -> None:
        def broken(_message: object) -> bytes:
            tried.append(world.clock.now())
            raise ZeroDivisionError

        monkeypatch.setattr(notice_text, "webhook_body", broken)
        await world.subscribe(URL)
        made = await target(world)
        await world.engine.freeze((await world.endpoint(URL)).id, by="ada")
        await world.wait(MINUTE)
        assert 30 * SECOND <= tried[1] - tried[0] < 31 * SECOND
        found = await Notices(world.db).target(made.id)
        assert found is not None
        assert (found.attempts, found.error) == (2, "internal error: ZeroDivisionError")

    live(story)


def test_a_target_with_the_url_of_the_failing_endpoint_is_not_used() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await target(world, address=URL)
        await world.engine.freeze((await world.endpoint(URL)).id, by="ada")
        await world.wait(HOUR)
        assert world.hits(URL) == []
        (record,) = await records(world)
        assert record.status is NoticeStatus.SKIPPED

    live(story)


def test_a_tenants_address_gets_nothing_before_it_is_confirmed() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        made = await target(world, kind=TargetKind.EMAIL, address="ops@a.example")
        endpoint = await world.endpoint(URL)
        await world.engine.freeze(endpoint.id, by="ada")
        await world.wait(HOUR)
        (mail,) = world.mailer.sent
        assert mail.subject == "Homing: confirm this address"
        link = f"https://homing.example/confirm?token={made.secret}"
        assert link in mail.text.splitlines()
        with pytest.raises(Conflict):
            await world.engine.notice_targets.test(made.id)
        with pytest.raises(NotFound):
            await world.engine.notice_targets.confirm("wrong")
        await world.engine.notice_targets.confirm(made.secret)
        await world.engine.enable(endpoint.id, by="ada")
        await world.wait(SECOND)
        assert [mail.subject for mail in world.mailer.sent[1:]] == [
            "Homing: receiver.example is enabled again"
        ]

    live(story)


def test_a_link_is_sent_again_as_another_message_with_the_same_token() -> None:
    async def story(world: World) -> None:
        made = await target(world, kind=TargetKind.EMAIL, address="ops@a.example")
        await world.wait(MINUTE)
        with pytest.raises(TooMany):
            await world.engine.notice_targets.send_link(made.id)
        await world.wait(5 * MINUTE)
        await world.engine.notice_targets.send_link(made.id)
        await world.wait(SECOND)
        first, second = world.mailer.sent
        assert first.text == second.text
        assert first.message_id != second.message_id
        await world.engine.notice_targets.confirm(made.secret)
        with pytest.raises(Conflict):
            await world.engine.notice_targets.send_link(made.id)

    live(story)


def test_a_link_that_could_not_be_sent_is_tried_at_once_when_it_is_asked_for_again() -> None:
    async def story(world: World) -> None:
        world.mailer.script = lambda _: "450 later"
        made = await target(world, kind=TargetKind.EMAIL, address="ops@a.example")
        await world.wait(12 * HOUR)
        world.mailer.script, world.mailer.sent[:] = (lambda _: ""), []
        await world.engine.notice_targets.send_link(made.id)
        await world.wait(SECOND)
        assert len(world.mailer.sent) == 1
        await world.wait(DAY)
        assert len(world.mailer.sent) == 1

    live(story)


def test_a_rotated_secret_signs_the_next_notice() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        made = await target(world)
        rotated = await world.engine.notice_targets.rotate(made.id)
        assert rotated.secret != made.secret
        world.secrets.add(rotated.secret)
        await world.engine.freeze((await world.endpoint(URL)).id, by="ada")
        await world.wait(SECOND)
        (hit,) = [hit for hit in world.sender.hits if hit.url == HOOK]
        number, at = hit.headers["webhook-id"].encode(), hit.headers["webhook-timestamp"].encode()
        wanted = Signer(rotated.secret).sign(number, at, hit.body)
        assert hit.headers["webhook-signature"].encode() == wanted
        slack = await target(world, kind=TargetKind.SLACK)
        with pytest.raises(Conflict):
            await world.engine.notice_targets.rotate(slack.id)

    live(story)


def test_the_confirmation_is_repeated_until_the_server_takes_it() -> None:
    async def story(world: World) -> None:
        world.mailer.script = lambda _: "450 later"
        await target(world, kind=TargetKind.EMAIL, address="ops@a.example")
        await world.wait(10 * MINUTE)
        assert len(world.mailer.sent) >= 4
        world.mailer.script = lambda _: ""
        await world.wait(HOUR)
        count = len(world.mailer.sent)
        await world.wait(DAY)
        assert len(world.mailer.sent) == count
        assert len({mail.message_id for mail in world.mailer.sent}) == 1

    live(story)


def test_a_test_notice_says_whether_it_arrived_and_comes_at_most_every_ten_seconds() -> None:
    async def story(world: World) -> None:
        made = await target(world)
        assert (await world.engine.notice_targets.test(made.id))[1] == ""
        with pytest.raises(TooMany):
            await world.engine.notice_targets.test(made.id)
        await world.wait(11 * SECOND)
        world.sender.scripts[HOOK] = failing_with(Failure.REFUSED)
        assert (await world.engine.notice_targets.test(made.id))[1] == "connection refused"
        slack = await target(world, kind=TargetKind.SLACK, address="https://slack.example/x")
        teams = await target(world, kind=TargetKind.TEAMS, address="https://teams.example/x")
        for one in (slack, teams):
            assert (await world.engine.notice_targets.test(one.id))[1] == ""
        texts = [hit.body for hit in world.sender.hits[-2:]]
        assert b"This is a test notice of Homing for the tenant default." in texts[0]
        assert b"AdaptiveCard" in texts[1]
        assert await records(world) == []
        world.sender.hits.clear()

    live(story)


DUTCH = {
    "Homing: confirm this address": ("Homing: bevestig dit adres",),
    "Open this page to confirm:": ("Open deze pagina om te bevestigen:",),
    "Homing: {headline}": ("Homing: {headline}",),
    "{host} is failing": ("{host} faalt",),
    "{host} is disabled": ("{host} is uitgeschakeld",),
    "{host} is enabled again": ("{host} is weer ingeschakeld",),
    "Last attempt: {failure}.": ("Laatste poging: {failure}.",),
    "connection refused": ("verbinding geweigerd",),
    "Homing: test notice": ("Homing: testmelding",),
    "This is a test notice of Homing for the tenant {tenant}. Notices will arrive here.": (
        "Dit is een testmelding van Homing voor {tenant}.",
    ),
    "The outage lasted {lasted}; sending resumes.": ("De storing duurde {lasted}.",),
    "Nothing is sent but a few test requests: {why}. Failures seen meanwhile count against no "
    "endpoint. Check the network and the resolver of {process}.": ("Storing: {why}.",),
    "{failing} of {healthy} endpoints on {hosts} hosts that were healthy fail to connect "
    "(tenants: {failing_tenants} of {tenants}), and nothing gets through": (
        "{failing} van {healthy} endpoints zijn onbereikbaar",
    ),
}


@pytest.fixture
def dutch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_translations", lambda _: DUTCH)


@pytest.mark.usefixtures("dutch")
def test_each_target_gets_its_messages_in_its_own_language() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "a.b")
        mail = {"kind": TargetKind.EMAIL, "tenant": OPERATOR}
        await target(world, **mail, address="nl@a.example", language="nl")
        await target(world, **mail, address="en@a.example")
        world.sender.scripts[URL] = failing_with(Failure.REFUSED)
        await world.publish()
        await world.settled()
        await world.publish()
        await world.wait(SECOND)
        there, here = sorted(world.mailer.sent, key=lambda it: it.language, reverse=True)
        assert (there.language, here.language) == ("nl", "en")
        assert there.subject == "Homing: receiver.example faalt"
        assert "Laatste poging: verbinding geweigerd." in there.text.splitlines()
        assert here.subject == "Homing: receiver.example is failing"
        assert "Last attempt: connection refused." in here.text.splitlines()
        (record, _) = await records(world)
        assert record.notice.facts["last_said"]["say"] == "connection refused"

    live(story, FEW)


@pytest.mark.usefixtures("dutch")
def test_the_first_email_and_the_test_notice_are_in_the_language_of_the_target() -> None:
    async def story(world: World) -> None:
        mail = {"kind": TargetKind.EMAIL, "address": "ops@a.example"}
        made = await target(world, **mail, language="nl")
        await world.wait(SECOND)
        (first,) = world.mailer.sent
        assert (first.subject, first.language) == ("Homing: bevestig dit adres", "nl")
        assert "Open deze pagina om te bevestigen:" in first.text.splitlines()
        await world.engine.notice_targets.confirm(made.secret)
        assert (await world.engine.notice_targets.test(made.id))[1] == ""
        tested = world.mailer.sent[-1]
        assert (tested.subject, tested.language) == ("Homing: testmelding", "nl")
        assert tested.text == "Dit is een testmelding van Homing voor default."

    live(story)


@pytest.mark.usefixtures("dutch")
def test_a_message_that_is_sent_again_is_in_the_language_that_the_target_has_by_then() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        mail = {"kind": TargetKind.EMAIL, "tenant": OPERATOR, "address": "ops@a.example"}
        made = await target(world, **mail)
        world.mailer.script = lambda _: "450 later"
        endpoint = await world.endpoint(URL)
        await world.engine.freeze(endpoint.id, by="ada")
        await world.engine.enable(endpoint.id, by="ada")
        await world.wait(SECOND)
        draft = TargetDraft(kind=TargetKind.EMAIL, address="ops@a.example", language="nl")
        await world.engine.notice_targets.change(made.id, lambda _: draft)
        world.mailer.script = lambda _: ""
        await world.wait(MINUTE)
        assert [it.language for it in world.mailer.sent[:1]] == ["en"]
        assert {it.language for it in world.mailer.sent[1:]} == {"nl"}

    live(story)


def test_an_outage_of_the_sender_is_reported_to_the_operator_only() -> None:
    async def story(world: World) -> None:
        await target(world)
        await target(world, tenant=OPERATOR, address=HOOK + "/operator")
        world.engine._outage.on_change(NoticeKind.OUTAGE, {"why": "8 of 10 endpoints fail"})
        world.engine._outage.on_change(NoticeKind.OUTAGE_OVER, {"outage_ms": 90_000})
        await world.wait(SECOND)
        assert told(world) == []
        kinds = [kind for one in told(world, HOOK + "/operator") for kind in one]
        assert kinds == ["outage", "outage_over"]

    live(story)


@pytest.mark.usefixtures("dutch")
def test_the_reason_of_an_outage_is_in_the_language_of_the_target() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        mail = {"kind": TargetKind.EMAIL, "tenant": OPERATOR, "address": "ops@a.example"}
        await target(world, **mail, language="nl")
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.wait(30 * SECOND)
        (sent,) = world.mailer.sent
        (line,) = [it for it in sent.text.splitlines() if it.startswith("Storing:")]
        assert line == f"Storing: {len(URLS)} van {len(URLS)} endpoints zijn onbereikbaar."
        net.out = None
        await world.wait(10 * MINUTE)
        assert "De storing duurde" in world.mailer.sent[-1].text

    live(story, STRICT)


def test_a_crash_between_sending_and_its_commit_sends_the_same_message_again() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await target(world)
        world.sender.scripts[HOOK] = lambda _: Reply(code=200, latency_ms=5_000)
        await world.engine.freeze((await world.endpoint(URL)).id, by="ada")
        await world.wait(2 * SECOND)
        await world.crash()
        await world.wait(10 * SECOND)
        hits = [hit for hit in world.sender.hits if hit.url == HOOK]
        assert len(hits) == 2
        assert hits[0].headers["webhook-id"] == hits[1].headers["webhook-id"]
        assert hits[0].body == hits[1].body
        assert [it.status for it in await records(world)] == [NoticeStatus.SENT]

    live(story)
