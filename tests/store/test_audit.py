"""The audit log in every store: an entry with its change, segments, and what verifying notices.

Promised: what-homing-promises.md#audit-log.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from homing.app.access import Caller
from homing.app.audit import Audit as AuditUseCases
from homing.app.audit import AuditLog, Verified
from homing.engine.audit import ENTRIES_MAX, AuditKeeper, AuditParts
from homing.engine.fleet.ownership import BucketOwnership
from homing.errors import BadSetting, NotFound, StaleCatalog
from homing.model import Ids, Subscription, show_id
from homing.policy.audit import (
    CHANGED,
    HIDDEN,
    SHOWN_BYTES_MAX,
    AuditEntry,
    Head,
    Who,
    head_mac,
)
from homing.policy.encryption import KeyRing
from homing.policy.keys import Role
from homing.ports.audit import AuditFilter, acting, note_changed
from homing.store.admin import Admin
from homing.store.audit import Audit
from homing.store.audited import AUDITED, Audited, Auditor
from homing.store.encryption import log_key
from homing.store.keys import Keys
from homing.store.notices import Notices
from homing.store.portal import Portal
from homing.store.pull import Pulls
from homing.store.tx import Db
from store.build import Maker

KEY = b"s" * 32
NOW = 1_800_000_000_000
DAY = 86_400_000
ADA = Who("ada's key", key_id=7, tenant="acme", address="192.0.2.7")
ADMIN = Caller("the admin key", Role.ADMIN, None)
ALL = AuditFilter()


class FixedClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = NOW

    def now(self) -> int:
        return self.ms


class Desk:
    """The audit log of a database, with everything that writes or reads it."""

    def __init__(self, db: Db, *, after: int = 0) -> None:
        self.db, self.clock, self.make = db, FixedClock(), Maker()
        self.auditor = Auditor(KEY, Ids(after=after))
        self.auditor.now = self.clock.now
        self.store = Audit(db)
        self.admin: Any = Audited(Admin(db), self.auditor)
        self.keys: Any = Audited(Keys(db), self.auditor)
        log = AuditLog(self.store, self.store, KEY, self.auditor.take_id)
        self.use_cases = AuditUseCases(log, self.clock.now)
        parts = AuditParts(self.store, KEY, retention_ms=10 * DAY)
        clock: Any = self.clock
        self.keeper = AuditKeeper(parts, clock, BucketOwnership(fenced=False))

    async def subscribe(self, **fields: Any) -> Subscription:
        where = {name: fields.pop(name) for name in ("tenant", "url") if name in fields}
        endpoint = self.make.endpoint(**where)
        subscription = replace(self.make.subscription(endpoint), **fields)
        with acting(ADA, "subscriptions.create"):
            made: Subscription = await self.admin.create_subscription(
                subscription, endpoint=endpoint
            )
        return made

    async def entries(self, conditions: AuditFilter = ALL) -> list[AuditEntry]:
        return (await self.store.entries(conditions, before_id=None, limit=100))[0]

    async def verify(self) -> tuple[list[str], Verified]:
        """All problems, each segment's with its number, and the last page."""
        problems: list[str] = []
        after: int | None = None
        while True:
            page = await self.use_cases.verify(ADMIN, after=after)
            problems += page.problems
            problems += [f"{it.number}: {text}" for it in page.segments for text in it.problems]
            after = page.after
            if after is None:
                return problems, page

    async def sql(self, text: str) -> None:
        """As somebody would who has the database, and not the key."""
        raw: Any = self.db
        no_bytes = "x''" if "sqlite" in type(raw).__name__.lower() else "''::bytea"
        await raw.raw(lambda run: run(text.replace("NO_BYTES", no_bytes)))


@pytest.fixture
async def desk(db: Db) -> Desk:
    made = Desk(db)
    await made.store.set_log_key("key", before=None, mac=head_mac(KEY, Head()))
    return made


# --- entries --------------------------------------------------------------------------------


async def test_a_change_and_its_entry_are_written_together(desk: Desk) -> None:
    made = await desk.subscribe(token="canary-token", description="d")
    (entry,) = await desk.entries()
    assert (entry.at, entry.tenant, entry.who, entry.action, entry.object) == (
        NOW,
        made.tenant,
        ADA,
        "subscriptions.create",
        show_id("sub", made.id),
    )
    assert entry.before == ""
    after = json.loads(entry.after)
    assert (after["url"], after["token"], after["secrets"]) == (made.url, HIDDEN, len(made.secrets))
    assert "canary-token" not in entry.after
    assert made.secrets[0].value not in entry.after


async def test_a_change_that_is_rolled_back_leaves_no_entry(desk: Desk) -> None:
    made = await desk.subscribe()
    endpoint = desk.make.endpoint(made.url, tenant=made.tenant)
    with acting(ADA, "subscriptions.change"), pytest.raises(StaleCatalog):
        await desk.admin.change_subscription(
            replace(made, version=made.version + 1), endpoint=endpoint, cleanup_job_id=5
        )
    with acting(ADA, "subscriptions.delete"), pytest.raises(NotFound):
        await desk.admin.delete_subscription(404, now=NOW, cleanup_job_id=6)
    assert len(await desk.entries()) == 1


async def test_an_entry_of_a_change_has_only_what_changed_and_no_secret(desk: Desk) -> None:
    made = await desk.subscribe(token="canary-old", headers=(("x-a", "canary-header"),))
    endpoint = desk.make.endpoint(made.url, tenant=made.tenant)
    new = replace(made, description="new", token="canary-new")
    with acting(ADA, "subscriptions.change"):
        note_changed("token")
        await desk.admin.change_subscription(new, endpoint=endpoint, cleanup_job_id=5)
    entry = (await desk.entries())[0]
    assert json.loads(entry.before) == {"description": made.description, "token": HIDDEN}
    assert json.loads(entry.after) == {"description": "new", "token": CHANGED}
    with acting(ADA, "subscriptions.delete"):
        await desk.admin.delete_subscription(made.id, now=NOW, cleanup_job_id=6)
    entry = (await desk.entries())[0]
    assert json.loads(entry.before)["headers"] == {"x-a": HIDDEN}
    assert entry.after == ""
    assert not any("canary" in it.before + it.after for it in await desk.entries())


async def test_large_values_are_cut(desk: Desk) -> None:
    headers = tuple((f"x-{n:03d}-{'n' * 80}", "v") for n in range(200))
    await desk.subscribe(description="d" * 100_000, filters="[" * 50_000, headers=headers)
    (entry,) = await desk.entries()
    assert len(entry.after.encode()) <= SHOWN_BYTES_MAX
    assert "characters)" in json.loads(entry.after)["description"]


async def test_a_change_outside_of_a_use_case_is_refused(desk: Desk) -> None:
    with pytest.raises(AssertionError, match="outside of a changing use case"):
        await desk.admin.delete_subscription(1, now=NOW, cleanup_job_id=6)


def test_every_audited_method_exists_and_takes_an_entry() -> None:
    methods = {**vars(Admin), **vars(Keys), **vars(Notices), **vars(Portal), **vars(Pulls)}
    for name in AUDITED:
        annotations = methods[name].__wrapped__.__annotations__
        assert annotations["audit"] == "AuditDraft | None", name


async def test_ids_go_on_after_the_last_when_the_clock_was_set_back(desk: Desk) -> None:
    await desk.subscribe()
    back = Desk(desk.db, after=await desk.store.last_id())
    back.make, back.clock.ms = desk.make, NOW - DAY
    await back.subscribe(url="https://other.example/")
    newest, oldest = await desk.entries()
    assert newest.id > oldest.id
    assert (newest.at, oldest.at) == (NOW - DAY, NOW)
    await desk.keeper.keep()
    assert (await desk.verify())[0] == []


# --- lists ----------------------------------------------------------------------------------


async def test_entries_are_found_by_tenant_who_what_object_and_time(desk: Desk) -> None:
    one = await desk.subscribe(tenant="acme")
    desk.clock.ms += 1_000
    other = await desk.subscribe(tenant="other", url="https://other.example/")
    for conditions, found in (
        (AuditFilter(tenant="acme"), [one]),
        (AuditFilter(tenant="none"), []),
        (AuditFilter(who="ada's key"), [other, one]),
        (AuditFilter(who="key_x", key_id=7), [other, one]),
        (AuditFilter(who="bob"), []),
        (AuditFilter(action="subscriptions"), [other, one]),
        (AuditFilter(action="subscriptions.create"), [other, one]),
        (AuditFilter(action="subscriptions.delete"), []),
        (AuditFilter(action="sub"), []),
        (AuditFilter(object=show_id("sub", one.id)), [one]),
        (AuditFilter(object=show_id("sub", one.id), tenant="other"), []),
        (AuditFilter(since=NOW + 1), [other]),
        (AuditFilter(until=NOW + 1), [one]),
    ):
        ids = [show_id("sub", it.id) for it in found]
        assert [it.object for it in await desk.entries(conditions)] == ids, conditions


async def test_a_list_has_pages(desk: Desk) -> None:
    for number in range(5):
        await desk.subscribe(url=f"https://{number}.example/")
    seen: list[int] = []
    before: int | None = None
    while True:
        page, before = await desk.store.entries(ALL, before_id=before, limit=2)
        seen += [it.id for it in page]
        if before is None:
            break
    assert seen == sorted(set(seen), reverse=True)
    assert len(seen) == 5


# --- segments -------------------------------------------------------------------------------


async def three_segments(desk: Desk) -> None:
    for number in range(6):
        await desk.subscribe(url=f"https://{number}.example/")
        if number % 2:
            await desk.keeper.keep()


async def test_a_log_that_nobody_touched_verifies(desk: Desk) -> None:
    assert await desk.verify() == ([], Verified([], (), None, 0, 0))
    await three_segments(desk)
    await desk.subscribe(url="https://loose.example/")
    problems, page = await desk.verify()
    assert problems == []
    assert [(it.number, it.entries) for it in page.segments] == [(1, 2), (2, 2), (3, 2)]


FIRST = "(SELECT min(id) FROM audit_entry WHERE segment = 2)"
LAST = "(SELECT max(id) FROM audit_entry WHERE segment = 2)"
COPY = (
    "INSERT INTO audit_entry SELECT {id}, at, tenant, key_id, who, who_tenant, address, person,"
    " action, object, before, after, refused, count, digest, {segment} FROM audit_entry"
    f" WHERE id = {FIRST}"
)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        (f"DELETE FROM audit_entry WHERE id = {FIRST}", "2: 1 entry is missing"),
        ("DELETE FROM audit_entry WHERE segment = 2", "2: 2 entries are missing"),
        (f"UPDATE audit_entry SET who = 'eve' WHERE id = {FIRST}", "2: changed or not written"),
        (f"UPDATE audit_entry SET after = '' WHERE id = {FIRST}", "2: changed or not written"),
        (f"UPDATE audit_entry SET at = 1 WHERE id = {FIRST}", "2: changed or not written"),
        (
            f"UPDATE audit_entry SET object = (SELECT object FROM audit_entry WHERE id = {LAST})"
            f" WHERE id = {FIRST}",
            "2: changed or not written",
        ),
        (
            f"UPDATE audit_entry SET digest = (SELECT digest FROM audit_entry WHERE id = {LAST})"
            f" WHERE id = {FIRST}",
            "2: changed or not written",
        ),
        (f"UPDATE audit_entry SET segment = 3 WHERE id = {FIRST}", "3: 1 entry is too many"),
        (f"UPDATE audit_entry SET segment = 0 WHERE id = {FIRST}", "2: 1 entry is missing"),
        (COPY.format(id=5, segment=2), "2: 1 entry is too many"),
        (COPY.format(id=5, segment=0), "New entries were changed or not written by Homing"),
        (COPY.format(id=5, segment=9), "Entries of no segment that exists were added"),
        (COPY.format(id=5, segment=-1), "Entries of no segment that exists were added"),
        ("DELETE FROM audit_segment WHERE number = 2", "Segment 2 is missing."),
        ("DELETE FROM audit_segment WHERE number = 3", "Segment 3 is missing."),
        ("DELETE FROM audit_segment", "Segments 1 to 3 are missing."),
        ("UPDATE audit_segment SET entries = 1 WHERE number = 2", "2: 1 entry is too many"),
        (
            "UPDATE audit_segment SET hash = (SELECT hash FROM audit_segment WHERE number = 1)"
            " WHERE number = 2",
            "2: the entries, the segment or the one before was changed",
        ),
        ("UPDATE audit_segment SET last_at = 1 WHERE number = 2", "2: its dates were changed"),
        ("UPDATE audit_segment SET first_at = 1 WHERE number = 2", "2: its dates were changed"),
        ("UPDATE audit_head SET mac = NO_BYTES", "The head of the log was changed."),
        ("UPDATE audit_head SET damaged = 1", "The head of the log was changed."),
        ("UPDATE audit_head SET removed = 2", "The head of the log was changed."),
        ("UPDATE audit_head SET last = 2", "The head of the log was changed."),
        ("DELETE FROM audit_head", "The head of the log was removed."),
    ],
)
async def test_a_change_in_sql_is_noticed(desk: Desk, sql: str, problem: str) -> None:
    await three_segments(desk)
    await desk.sql(sql)
    problems, _ = await desk.verify()
    assert any(problem in it for it in problems), problems


async def test_the_end_of_the_log_cannot_be_cut_off(desk: Desk) -> None:
    await three_segments(desk)
    await desk.sql("DELETE FROM audit_entry WHERE segment = 3")
    await desk.sql("DELETE FROM audit_segment WHERE number = 3")
    hash_of_2 = "(SELECT hash FROM audit_segment WHERE number = 2)"
    await desk.sql(f"UPDATE audit_head SET last = 2, last_hash = {hash_of_2}")
    problems, _ = await desk.verify()
    assert problems == ["The head of the log was changed."]


async def test_a_segment_has_a_bounded_size_and_a_log_of_many_is_verified_in_pages(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homing.engine.audit.ENTRIES_MAX", 2)
    monkeypatch.setattr("homing.app.audit.SEGMENTS_AT_ONCE", 2)
    assert ENTRIES_MAX <= 1_000
    for number in range(9):
        await desk.subscribe(url=f"https://{number}.example/")
    await desk.keeper.keep()
    problems, page = await desk.verify()
    assert problems == []
    assert [it.number for it in page.segments] == [5]
    await desk.sql("DELETE FROM audit_segment WHERE number = 3")
    assert "Segment 3 is missing." in (await desk.verify())[0]


async def test_another_leader_that_was_first_makes_no_second_segment(desk: Desk) -> None:
    await desk.subscribe()
    seen = await desk.store.head()
    assert seen is not None
    await desk.keeper.keep()
    (segment,) = await desk.store.segments(after=0, limit=10)
    assert not await desk.store.add_segment(segment, ids=[], head=seen, seen=seen)
    assert (await desk.verify())[0] == []


# --- retention ------------------------------------------------------------------------------


async def test_retention_removes_whole_segments_and_leaves_a_checkpoint(desk: Desk) -> None:
    for number in range(4):
        await desk.subscribe(url=f"https://{number}.example/")
        await desk.keeper.keep()
        desk.clock.ms += 4 * DAY
    await desk.keeper.keep()
    problems, page = await desk.verify()
    assert problems == []
    assert (page.removed, page.removed_entries) == (2, 2)
    assert [it.number for it in page.segments] == [3, 4]
    assert len(await desk.entries()) == 2
    await desk.sql("DELETE FROM audit_entry WHERE segment = 3")
    await desk.sql("DELETE FROM audit_segment WHERE number = 3")
    assert (await desk.verify())[0][0] == "Segment 3 is missing."


async def test_no_date_in_sql_makes_retention_remove_an_entry(desk: Desk) -> None:
    await three_segments(desk)
    await desk.sql("UPDATE audit_segment SET last_at = 1, first_at = 1")
    await desk.keeper.keep()
    assert len(await desk.entries()) == 6
    await desk.sql("UPDATE audit_entry SET at = 1")
    await desk.keeper.keep()
    assert len(await desk.entries()) == 6
    await desk.sql("UPDATE audit_segment SET entries = 0, number = number + 7")
    await desk.keeper.keep()
    assert len(await desk.entries()) == 6
    assert (await desk.verify())[0] != []


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_log_that_was_emptied_and_begun_again_does_not_verify(
    desk: Desk, emptied: bool
) -> None:
    """Neither at once, nor after new entries, nor after a restart."""
    if not emptied:
        await three_segments(desk)
    await desk.sql("DELETE FROM audit_entry")
    await desk.sql("DELETE FROM audit_segment")
    await desk.sql(
        "UPDATE audit_head SET last = 0, last_hash = NO_BYTES, removed = 0,"
        " removed_hash = NO_BYTES, removed_entries = 0, mac = NO_BYTES"
    )
    changed = "The head of the log was changed."
    assert (await desk.verify())[0] == [changed]
    await desk.subscribe()
    await desk.keeper.keep()
    assert changed in (await desk.verify())[0]
    desk.clock.ms += 11 * DAY
    await desk.keeper.keep()
    assert changed in (await desk.verify())[0]
    assert len(await desk.entries()) == 1


async def test_what_was_missing_or_changed_is_known_after_retention_has_removed_the_rest(
    desk: Desk,
) -> None:
    await three_segments(desk)
    await desk.sql("DELETE FROM audit_entry WHERE segment = 1")
    await desk.sql("DELETE FROM audit_segment WHERE number = 1")
    await desk.sql("UPDATE audit_entry SET who = 'eve' WHERE segment = 2")
    await desk.subscribe(url="https://late.example/")
    await desk.keeper.keep()
    desk.clock.ms += 11 * DAY
    await desk.keeper.keep()
    assert await desk.entries() == []
    problems, page = await desk.verify()
    assert problems == ["2 segments were missing or changed when retention came to them."]
    assert (page.removed, page.segments) == (4, [])
    await desk.sql("UPDATE audit_head SET damaged = 0")
    assert (await desk.verify())[0] == ["The head of the log was changed."]


async def test_the_first_head_is_signed_with_the_key_and_never_again(db: Db) -> None:
    store, ring = Audit(db), KeyRing((b"1" * 32,))
    key = await log_key(store, ring)
    head = await store.head()
    assert head is not None
    assert head.mac == head_mac(key, head)
    await Desk(db).sql("UPDATE audit_head SET mac = NO_BYTES")
    assert await log_key(store, ring) == key
    newer = KeyRing((b"2" * 32, b"1" * 32))
    assert await log_key(store, newer) == key
    found = await store.head()
    assert found is not None
    assert found.mac == b""


async def test_the_head_of_a_log_from_before_is_signed_once(db: Db) -> None:
    """It was signed only with its first segment."""
    store, ring = Audit(db), KeyRing((b"1" * 32,))
    text = ring.encrypt((b"k" * 32).hex(), "the key of the audit log", b"n" * 12)
    await store.set_log_key(text, before=None, mac=None)
    assert await log_key(store, ring) == b"k" * 32
    head = await store.head()
    assert head is not None
    assert head.mac == head_mac(b"k" * 32, Head())
    await Desk(db).sql("UPDATE audit_head SET mac = NO_BYTES")
    await log_key(store, ring)
    found = await store.head()
    assert found is not None
    assert found.mac == b""


async def test_a_key_of_the_log_that_somebody_put_into_the_database_is_refused(db: Db) -> None:
    store, ring = Audit(db), KeyRing((b"1" * 32,))
    stored = await store.log_key()
    await store.set_log_key((b"e" * 32).hex(), before=stored, mac=None)
    with pytest.raises(BadSetting, match="not encrypted"):
        await log_key(store, ring)


async def test_a_clock_that_was_ahead_for_a_while_does_not_stop_retention(desk: Desk) -> None:
    desk.clock.ms = NOW + 10_000 * DAY
    await desk.subscribe()
    await desk.keeper.keep()
    desk.clock.ms = NOW
    await desk.subscribe(url="https://1.example/")
    await desk.keeper.keep()
    desk.clock.ms = NOW + 11 * DAY
    await desk.keeper.keep()
    assert await desk.entries() == []
    assert (await desk.verify())[0] == []
