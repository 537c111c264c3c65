"""Notices to people in every store: targets, one record per change and target, messages.

Promised: what-homing-promises.md#causes-and-notices.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from homing.errors import LostLeases, TooMany
from homing.languages.sentences import At, Sentence, many
from homing.model import State, id_floor
from homing.policy.encryption import KeyRing
from homing.policy.notices import (
    ADDRESS_A_DAY_MAX,
    CREATED_A_DAY_MAX,
    DAY_MS,
    LINK_EVERY_MS,
    OPERATOR,
    SAME_URL,
    TARGET_DELETED,
    TARGETS_MAX,
    WAITING_MAX,
    Notice,
    NoticeKind,
    NoticeRecord,
    NoticeStatus,
    NoticeTarget,
    TargetKind,
    address_hash,
    fact_text,
    text_facts,
)
from homing.ports import SettleBatch
from homing.store.admin import Admin
from homing.store.encryption import (
    EncryptedNotices,
    EncryptionKeys,
    FieldCipher,
    encrypt_existing,
)
from homing.store.flow import Flow
from homing.store.notices import Notices
from homing.store.tx import Db
from store.build import HOUR, NOW, Maker, put

URL = "https://a.example/hook"


class Targets:
    """Makes targets and notices."""

    def __init__(self, db: Db) -> None:
        self.store = Notices(db)
        self.make = Maker()

    async def add(self, **more: Any) -> NoticeTarget:
        number = self.make.id()
        values: dict[str, Any] = {
            "id": number,
            "tenant": "acme",
            "kind": TargetKind.SLACK,
            "name": "the é channel",
            "address": f"https://hooks.example/{number}",
            "secret": f"secret {number}",
            "kinds": (),
            "quiet_hours": "22:00-07:00",
            "time_zone": "Europe/Berlin",
            "language": "ja",
            "created_at": NOW,
            "confirmed_at": NOW,
        }
        target = NoticeTarget(**(values | more))
        await self.put(target)
        return target

    async def put(self, target: NoticeTarget, *, now: int = NOW) -> int:
        return await self.store.create_target(
            target,
            address=address_hash(target.address),
            secret=address_hash(target.secret),
            now=now,
        )

    def notice(self, kind: NoticeKind = NoticeKind.DISABLED, **more: Any) -> Notice:
        values: dict[str, Any] = {
            "tenant": "acme",
            "endpoint_id": 7,
            "url": URL,
            "facts": {"n": "é"},
        }
        return Notice(self.make.id(), kind, NOW, **(values | more))

    async def records(self, **more: Any) -> list[NoticeRecord]:
        asked = {"owner": None, "target_id": None, "before_id": None, "limit": 5_000} | more
        return (await self.store.notices(**asked))[0]


async def test_a_target_comes_back_as_it_was_and_raises_the_version(db: Db) -> None:
    it = Targets(db)
    assert not (await Admin(db).catalog_notes(0)).has_notice_targets
    one = await it.add(kinds=(NoticeKind.FROZEN,))
    two = await it.add(tenant=OPERATOR, quiet_hours="", time_zone="UTC")
    assert await Admin(db).catalog_version() == 2
    assert (await Admin(db).catalog_notes(0)).has_notice_targets
    assert await it.store.target(one.id) == one
    assert await it.store.targets(tenant=None, before_id=None, limit=9) == ([two, one], None)
    assert await it.store.targets(tenant=None, before_id=None, limit=1) == ([two], two.id)
    assert await it.store.targets(tenant="acme", before_id=None, limit=9) == ([one], None)
    assert await it.store.targets(tenant="other", before_id=None, limit=9) == ([], None)
    changed = replace(one, name="x", kinds=(), quiet_hours="", time_zone="UTC", language="nl")
    assert await it.store.change_target(changed) == changed
    assert await it.store.delete_target(one.id, now=NOW) == 3
    assert await it.store.delete_target(one.id, now=NOW) is None
    assert await it.store.target(one.id) is None
    assert await it.store.change_target(changed) is None


async def test_one_record_for_each_change_and_target_that_gets_it(db: Db) -> None:
    it = Targets(db)
    mine = await it.add()
    picky = await it.add(kinds=(NoticeKind.FROZEN,))
    other = await it.add(tenant="other")
    operators = await it.add(tenant=OPERATOR)
    await it.add(kind=TargetKind.EMAIL, confirmed_at=None)
    disabled, frozen = it.notice(), it.notice(NoticeKind.FROZEN)
    outage = it.notice(NoticeKind.OUTAGE, tenant=OPERATOR, url="", endpoint_id=0)
    await Flow(db).settle(SettleBatch(number=1, for_people=(disabled, frozen)))
    await it.store.write_notices([outage])
    await it.store.write_notices([outage])  # as after a reply that was lost
    found = {(record.target_id, record.id): record for record in await it.records()}
    assert found.keys() == {
        (mine.id, disabled.id),
        (mine.id, frozen.id),
        (picky.id, frozen.id),
        (operators.id, disabled.id),
        (operators.id, frozen.id),
        (operators.id, outage.id),
    }
    record = found[mine.id, disabled.id]
    assert record == NoticeRecord(mine.id, disabled.id, "acme", disabled, NoticeStatus.WAITING)
    assert [one.id for one in await it.records(owner="acme", target_id=picky.id)] == [frozen.id]
    assert await it.records(owner="acme", target_id=other.id) == []


async def test_a_sentence_in_a_notice_can_be_said_in_every_language_later(db: Db) -> None:
    it = Targets(db)
    await it.add()
    one, other = "{count} endpoint fails since {since}", "{count} endpoints fail since {since}"
    why = many(one, other, 3, since=At(NOW))
    facts = {**text_facts("why", why), **text_facts("last", "as text")}
    await it.store.write_notices([it.notice(facts=facts)])
    (found,) = await it.records()
    assert found.notice.facts["why"] == why, "older versions show it"
    read = fact_text(found.notice.facts, "why")
    assert isinstance(read, Sentence)
    assert (read, read.pack()) == (why, why.pack())
    assert fact_text(found.notice.facts, "last") == "as text"


async def test_a_batch_that_is_settled_again_writes_no_second_record(db: Db) -> None:
    it = Targets(db)
    await it.add()
    batch = SettleBatch(number=1, for_people=(it.notice(),))
    await Flow(db).settle(batch)
    await Flow(db).settle(batch)
    assert len(await it.records()) == 1


async def test_a_change_by_a_person_writes_its_record(db: Db) -> None:
    it = Targets(db)
    await it.add()
    endpoint = it.make.endpoint()
    await put(db, endpoints=[endpoint])
    frozen = replace(endpoint, health=replace(endpoint.health, state=State.FROZEN))
    notice = it.notice(NoticeKind.FROZEN)
    await Admin(db).set_endpoint(
        frozen, seen=endpoint, transition=None, notices=(), for_people=(notice,)
    )
    assert [record.notice for record in await it.records()] == [notice]


async def test_a_notice_never_goes_to_the_url_that_it_is_about(db: Db) -> None:
    it = Targets(db)
    same = await it.add(kind=TargetKind.WEBHOOK, address=URL)
    operators = await it.add(kind=TargetKind.WEBHOOK, address=URL, tenant=OPERATOR)
    about, other = it.notice(), it.notice(url="https://b.example/hook")
    await it.store.write_notices([about, other])
    found = {(record.target_id, record.id): record for record in await it.records()}
    for target in (same, operators):
        assert found[target.id, about.id].status is NoticeStatus.SKIPPED
        assert found[target.id, about.id].reason == SAME_URL
        taken = await it.store.take_message(target.id, message_id=it.make.id())
        assert taken is not None
        assert taken.notices == (other,)


async def test_a_message_keeps_its_id_and_records_until_it_has_arrived(db: Db) -> None:
    it = Targets(db)
    target = await it.add()
    one, two, three = it.notice(), it.notice(), it.notice()
    await it.store.write_notices([one, two])
    first, second = it.make.id(), it.make.id()
    taken = await it.store.take_message(target.id, message_id=first)
    assert taken is not None
    assert (taken.id, taken.notices, taken.more) == (first, (one, two), {})
    await it.store.write_notices([three])
    await it.store.message_failed(target.id, first, error="HTTP 500 \0", due_at=NOW + 30)
    (waiting,) = await it.store.targets_to_send(after_id=0, limit=10)
    assert (waiting.message_id, waiting.attempts, waiting.due_at) == (first, 1, NOW + 30)
    assert waiting.error == "HTTP 500 \ufffd"
    assert await it.store.take_message(target.id, message_id=second) == taken
    await it.store.message_sent(target.id, first, now=NOW + 40, due_at=NOW + 99)
    (waiting,) = await it.store.targets_to_send(after_id=0, limit=10)
    assert (waiting.message_id, waiting.attempts, waiting.error) == (0, 0, "")
    assert (waiting.sent_at, waiting.due_at) == (NOW + 40, NOW + 99)
    taken = await it.store.take_message(target.id, message_id=second)
    assert taken is not None
    assert (taken.id, taken.notices) == (second, (three,))
    await it.store.message_sent(target.id, second, now=NOW + 50, due_at=NOW)
    assert await it.store.targets_to_send(after_id=0, limit=10) == []
    assert await it.store.take_message(target.id, message_id=it.make.id()) is None
    found = {record.id: record for record in await it.records()}
    assert [found[one.id].message_id, found[three.id].message_id] == [first, second]
    assert [found[one.id].sent_at, found[three.id].sent_at] == [NOW + 40, NOW + 50]


async def test_beyond_the_limit_of_waiting_records_changes_are_only_counted(db: Db) -> None:
    it = Targets(db)
    target = await it.add()
    kinds = (NoticeKind.DISABLED, NoticeKind.RECOVERED)
    for _ in range(3):
        await it.store.write_notices([it.notice(kinds[n % 2]) for n in range(400)])
    assert len(await it.records()) == WAITING_MAX
    first = await it.store.take_message(target.id, message_id=it.make.id())
    assert first is not None
    assert (len(first.notices), sum(first.more.values())) == (WAITING_MAX, 200)
    await it.store.write_notices([it.notice()])
    assert await it.store.take_message(target.id, message_id=it.make.id()) == first
    await it.store.message_sent(target.id, first.id, now=NOW, due_at=NOW)
    await it.store.write_notices([it.notice()])
    second = await it.store.take_message(target.id, message_id=it.make.id())
    assert second is not None
    assert (len(second.notices), sum(second.more.values())) == (1, 1), "each is in one message"


async def test_targets_with_records_are_found_page_by_page(db: Db) -> None:
    it = Targets(db)
    targets = [await it.add(tenant=f"t{n}") for n in range(5)]
    await it.add(tenant="idle")
    confirming = await it.add(
        kind=TargetKind.EMAIL, tenant="t9", confirmed_at=None, message_id=it.make.id()
    )
    await it.store.write_notices([it.notice(tenant=f"t{n}") for n in range(5) for _ in range(3)])
    found: list[NoticeTarget] = []
    while page := await it.store.targets_to_send(after_id=found[-1].id if found else 0, limit=2):
        found += page
    assert found == [*targets, confirming]


async def test_an_address_is_confirmed_once_and_by_its_own_token(db: Db) -> None:
    it = Targets(db)
    target = await it.add(
        kind=TargetKind.EMAIL, address="a@b.example", confirmed_at=None, message_id=5
    )
    await it.store.write_notices([it.notice()])
    assert await it.store.confirm_target("wrong", now=NOW) is None
    confirmed = await it.store.confirm_target(target.secret, now=NOW + 1)
    assert confirmed == replace(target, confirmed_at=NOW + 1, message_id=0)
    assert await it.store.confirm_target(target.secret, now=NOW + 2) is None
    await it.store.write_notices([it.notice()])
    assert len(await it.records()) == 1, "what happened before is not sent"


async def test_only_the_owner_of_the_lease_sends(db: Db) -> None:
    it = Targets(db)
    target = await it.add()
    await it.store.write_notices([it.notice()])
    late = {"epoch": 7}  # Nobody has had bucket 0 so often.
    with pytest.raises(LostLeases):
        await it.store.take_message(target.id, message_id=it.make.id(), **late)
    with pytest.raises(LostLeases):
        await it.store.message_sent(target.id, 1, now=NOW, due_at=NOW, **late)
    with pytest.raises(LostLeases):
        await it.store.message_failed(target.id, 1, error="", due_at=NOW, **late)
    with pytest.raises(LostLeases):
        await it.store.write_reminders(
            days=1, bound_id=id_floor(NOW), ids=[it.make.id()], now=NOW, **late
        )
    (record,) = await it.records()
    assert (record.status, record.message_id) == (NoticeStatus.WAITING, 0)


async def test_addresses_and_secrets_are_encrypted_and_follow_a_new_key(db: Db) -> None:
    it = Targets(db)
    old, new = (KeyRing((bytes([n]) * 32,)) for n in (1, 2))
    both = KeyRing((bytes([2]) * 32, bytes([1]) * 32))
    target = NoticeTarget(
        id=it.make.id(),
        tenant="acme",
        kind=TargetKind.SLACK,
        name="",
        address="https://hooks.example/in-the-clear",
        secret="whsec-in-the-clear",
        kinds=(),
        quiet_hours="",
        time_zone="UTC",
        created_at=NOW,
        confirmed_at=NOW,
    )
    store: Any = EncryptedNotices(it.store, FieldCipher(old))
    address, secret = address_hash(target.address), address_hash(target.secret)
    await store.create_target(target, address=address, secret=secret, now=NOW)
    stored = await it.store.target(target.id)
    assert stored is not None
    assert "clear" not in stored.address + stored.secret
    assert await store.target(target.id) == target
    await encrypt_existing(EncryptionKeys(db), both)
    renewed: Any = EncryptedNotices(it.store, FieldCipher(new))
    assert await renewed.target(target.id) == target
    assert (await renewed.targets(tenant="acme", before_id=None, limit=9))[0] == [target]
    await it.store.write_notices([it.notice()])
    assert await renewed.targets_to_send(after_id=0, limit=9) == [target]


async def test_the_limits_of_targets(db: Db) -> None:
    it = Targets(db)
    targets = [await it.add() for _ in range(TARGETS_MAX)]
    with pytest.raises(TooMany, match="at most 20"):
        await it.add()
    await it.add(tenant="other")
    for target in targets:
        await it.store.delete_target(target.id, now=NOW)
    made = TARGETS_MAX
    while made < CREATED_A_DAY_MAX:
        await it.store.delete_target((await it.add()).id, now=NOW)
        made += 1
    with pytest.raises(TooMany, match="in a day"):
        await it.add()
    later = replace(targets[0], id=it.make.id(), created_at=NOW + DAY_MS + 1)
    await it.put(later, now=NOW + DAY_MS + 1)


async def test_an_address_gets_few_confirmations_a_day_from_one_tenant(db: Db) -> None:
    it = Targets(db)
    mail = {"kind": TargetKind.EMAIL, "address": "victim@b.example", "confirmed_at": None}
    for _ in range(ADDRESS_A_DAY_MAX):
        await it.store.delete_target((await it.add(tenant="t1", **mail)).id, now=NOW)
    with pytest.raises(TooMany, match="tomorrow"):
        await it.add(tenant="t1", **mail)
    await it.add(tenant="t1", **(mail | {"address": "other@b.example"}))


async def test_no_tenant_blocks_the_address_of_another_or_learns_that_it_is_used(db: Db) -> None:
    it = Targets(db)
    mail = {"kind": TargetKind.EMAIL, "address": "ada@b.example", "confirmed_at": None}
    target = await it.add(tenant="t2", **mail, message_id=5)
    for _ in range(ADDRESS_A_DAY_MAX):
        await it.store.delete_target((await it.add(tenant="t1", **mail)).id, now=NOW)
    now = NOW + LINK_EVERY_MS
    assert await it.store.send_link_again(target.id, message_id=it.make.id(), now=now)
    await it.put(replace(target, id=it.make.id(), created_at=now), now=now)


async def test_a_link_is_sent_again_within_the_limits_of_confirmations(db: Db) -> None:
    it = Targets(db)
    mail = {"kind": TargetKind.EMAIL, "address": "ada@b.example", "confirmed_at": None}
    target = await it.add(**mail, message_id=5)
    await it.store.message_sent(target.id, 5, now=NOW, due_at=NOW + LINK_EVERY_MS)
    assert await it.store.targets_to_send(after_id=0, limit=9) == []

    async def again(minutes: int) -> int:
        number = it.make.id()
        now = NOW + minutes * 60_000
        assert await it.store.send_link_again(target.id, message_id=number, now=now)
        return number

    with pytest.raises(TooMany, match="five minutes") as early:
        await again(4)
    assert early.value.after_ms == 60_000
    assert await it.store.targets_to_send(after_id=0, limit=9) == []
    number = await again(5)
    (sending,) = await it.store.targets_to_send(after_id=0, limit=9)
    assert (sending.id, sending.message_id, sending.due_at) == (target.id, number, 0)
    assert sending.secret == target.secret
    with pytest.raises(TooMany, match="five minutes"):
        await again(9)
    await again(10)
    with pytest.raises(TooMany, match="tomorrow"):
        await again(15)
    with pytest.raises(TooMany, match="tomorrow"):
        await it.add(**mail)
    await again(16 + 24 * 60)
    (listed,), _ = await it.store.targets(tenant="acme", before_id=None, limit=9)
    assert listed.id == target.id
    assert await it.store.confirm_target(target.secret, now=NOW) is not None
    later: dict[str, Any] = {"message_id": it.make.id(), "now": NOW + 9 * DAY_MS}
    assert not await it.store.send_link_again(target.id, **later)
    assert not await it.store.send_link_again(17, **later)


async def test_links_that_are_sent_again_count_for_the_tenant(db: Db) -> None:
    it = Targets(db)
    target = await it.add(kind=TargetKind.EMAIL, confirmed_at=None)
    for _ in range(CREATED_A_DAY_MAX - 1):
        await it.store.delete_target((await it.add()).id, now=NOW)
    later: dict[str, Any] = {"message_id": it.make.id(), "now": NOW + HOUR}
    with pytest.raises(TooMany, match="in a day"):
        await it.store.send_link_again(target.id, **later)


async def test_a_new_secret_stays_when_keys_change_at_the_same_time(db: Db) -> None:
    it = Targets(db)
    target = await it.add(kind=TargetKind.WEBHOOK)
    rotated = replace(target, secret="new")
    keys = EncryptionKeys(db)
    read = await keys.targets_page(0, limit=9)
    assert await it.store.change_secret(rotated, secret=address_hash("new"))
    await keys.reencrypt_targets([(old, replace(old, secret="same, encrypted")) for old in read])
    assert await it.store.target(target.id) == rotated
    await it.store.delete_target(target.id, now=NOW)
    assert not await it.store.change_secret(rotated, secret=address_hash("new"))


async def test_a_deleted_target_leaves_no_secret_and_its_records_are_skipped(db: Db) -> None:
    it = Targets(db)
    target = await it.add()
    await it.store.write_notices([it.notice()])
    await it.store.delete_target(target.id, now=NOW)
    (record,) = await it.records()
    assert (record.status, record.reason) == (NoticeStatus.SKIPPED, TARGET_DELETED)
    assert await it.store.targets_to_send(after_id=0, limit=10) == []
    assert await it.store.take_message(target.id, message_id=it.make.id()) is None
    await it.store.write_notices([it.notice()])
    assert len(await it.records()) == 1

    async def texts(tx: Any) -> list[Any]:
        return list(await tx.all("notice_targets_all", after_id=0, limit=9))

    assert await db.run(texts) == []


async def test_reminders_are_written_once_while_the_state_lasts(db: Db) -> None:
    it = Targets(db)
    target = await it.add()
    stuck, healed, enabled = (it.make.endpoint(url=f"https://{n}.example/") for n in "abc")
    await put(
        db,
        endpoints=[stuck, healed, enabled],
        transitions=[
            it.make.transition(stuck, after=State.DISABLED),
            it.make.transition(healed, after=State.FROZEN),
            it.make.transition(healed, after=State.ENABLED),
            it.make.transition(enabled, after=State.ENABLED),
        ],
    )

    async def remind(days: int, now: int) -> None:
        more = True
        while more:
            more = await it.store.write_reminders(
                days=days,
                bound_id=id_floor(now - days * DAY_MS),
                ids=[it.make.id() for _ in range(2)],
                now=now,
            )

    await remind(1, NOW + DAY_MS - 1_000)
    assert await it.records() == [], "too early"
    for _ in range(3):
        await remind(1, NOW + DAY_MS + 1_000)
    (record,) = await it.records()
    assert (record.target_id, record.notice.url) == (target.id, stuck.url)
    assert record.notice.kind is NoticeKind.REMINDER
    assert record.notice.facts == {"state": "disabled", "days": 1, "since": NOW}
    await remind(2, NOW + 2 * DAY_MS + 1_000)
    assert [one.notice.facts["days"] for one in await it.records()] == [2, 1]


async def test_nothing_is_reminded_of_that_was_long_before_the_first_target(db: Db) -> None:
    it = Targets(db)
    endpoint = it.make.endpoint()
    change = it.make.transition(endpoint, after=State.FROZEN)
    await put(db, endpoints=[endpoint], transitions=[change])
    now = NOW + 10 * DAY_MS
    target = NoticeTarget(
        id=it.make.id(),
        tenant=endpoint.tenant,
        kind=TargetKind.SLACK,
        name="",
        address="https://x.example/",
        secret="",
        kinds=(),
        quiet_hours="",
        time_zone="UTC",
        created_at=now,
        confirmed_at=now,
    )
    await it.put(target, now=now)
    for days in (1, 2, 3):
        bound = id_floor(now + 1_000 - days * DAY_MS)
        ids = [it.make.id()]
        assert not await it.store.write_reminders(days=days, bound_id=bound, ids=ids, now=now)
    assert await it.records() == []


async def test_records_past_retention_are_removed_and_a_list_pages_between_changes(db: Db) -> None:
    it = Targets(db)
    for _ in range(3):
        await it.add()
    notices = [it.notice() for _ in range(4)]
    await it.store.write_notices(notices)
    page, after = await it.store.notices(owner=None, target_id=None, before_id=None, limit=7)
    assert [record.id for record in page] == [notices[3].id] * 3 + [notices[2].id] * 3
    rest, end = await it.store.notices(owner=None, target_id=None, before_id=after, limit=7)
    assert (len(rest), end) == (6, None)
    flow = Flow(db)
    assert await flow.remove_history(before=NOW + 1, limit=500) == 12
    assert await it.records() == []
    (target, *_) = (await it.store.targets(tenant=None, before_id=None, limit=9))[0]
    await it.store.delete_target(target.id, now=NOW)
    assert await flow.remove_history(before=NOW + 1, limit=500) == 1


async def test_new_ids_begin_after_those_of_targets_and_notices(db: Db) -> None:
    it = Targets(db)
    target = await it.add()
    assert await Flow(db).last_id() == target.id
    notice = it.notice()
    await it.store.write_notices([notice])
    assert await Flow(db).last_id() == notice.id
