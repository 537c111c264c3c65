"""Moves one tenant from an installation to another: ``homing move --tenant``.

Both installations have a row that says how far the move is. Every step is one or more transactions
that may be repeated, so a move that was killed continues when it is started again:

1. The target is marked: the tenant is *arriving*. Nothing is accepted or sent for it there.
2. The source is marked: the tenant is *leaving*. Nothing more is accepted or sent for it there.
3. Wait until every process of both sides has read its mark and has nothing of the tenant in flight.
4. Copy the rows of the tenant, in batches; each batch notes the progress in its transaction.
5. Prove the copy: every row is read from both sides; counts and checksums must be equal.
6. Switch: in the source the tenant has *left*. From here on there is no way back.
7. Copy the audit log of the tenant, whose entries also stay in the source.
8. Open the target: the tenant has *arrived* and is served there.
9. Remove its rows from the source, in batches. Its API keys stay, so callers learn where it is now.
10. Finish: in the source the tenant is *moved*.

Between 6 and 8 neither installation serves the tenant, so nothing is sent twice.

A failover of either database may lose the last commits. So the target is opened only when every
standby of the source has the mark of the switch, and rows of the source are removed only when every
standby of the target has all of them. Each mark needs the one before it: a source that has lost
the mark of step 2 is not switched.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import apsw
import asyncpg
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from homing.errors import BadSetting, StoreUnavailable
from homing.model import id_floor, show_id
from homing.policy.audit import AuditEntry, Who, digest_of, entry_key, is_genuine
from homing.policy.encryption import KeyRing
from homing.policy.hash_keys import HashKey
from homing.ports.tenant_moves import MoveStep
from homing.store import acceptance, rows
from homing.store.audit import Audit, entry_of, entry_row
from homing.store.catalog_versions import raise_catalog, raise_catalog_raw
from homing.store.connect import connect
from homing.store.encryption import FieldCipher, log_key
from homing.store.erasures import hash_keys
from homing.store.leases import Leases
from homing.store.migrate import Execute
from homing.store.move import DAYS_MAX, NotTheSame
from homing.store.notices import read_target
from homing.store.partitions import DAY_MS, PARTED, make_days
from homing.store.postgres import PostgresDb
from homing.store.postgres_refusals import CONNECTION_ERRORS, refusal_text
from homing.store.sqlite import SqliteDb
from homing.store.tenant_rows import AUDIT, ROOTS, UNITS, Page, TenantRows, Unit
from homing.store.tx import Row, Tx

READY_WAIT_S = 120.0  # for the attempts in flight: the longest deadline and the settle after it
READY_EVERY_S = 0.1
KNOWN_WAIT_S = 15.0  # for processes to read the last step: longer than they wait between two reads
STANDBYS_WAIT_S = 60.0  # for the last commits to reach the standbys
ACTION = "tenants.move"  # in the audit logs of both installations
WHO = Who("homing move")
_NOTHING = "Nothing was switched."

Progress = Callable[[str, int, int], None]  # the step, rows so far, rows in all (0: unknown)

MARK_TARGET, MARK_SOURCE, WAIT = "mark the target", "mark the source", "wait"
COPY, PROVE, SWITCH = "copy", "prove", "switch"
COPY_AUDIT, OPEN, REMOVE, FINISH = "copy the audit log", "open the target", "remove", "finish"
STEPS = (
    MARK_TARGET,
    MARK_SOURCE,
    WAIT,
    COPY,
    PROVE,
    SWITCH,
    COPY_AUDIT,
    OPEN,
    REMOVE,
    FINISH,
)

_HAS_VERSION = frozenset(  # tables whose rows have a version of the catalog
    {"subscription", "signing_keys", "event_type", "event_type_change", "erasure"}
)


class Side(NamedTuple):
    """One of the two installations."""

    db: SqliteDb | PostgresDb
    keys: KeyRing  # the keys that encrypt its secrets
    place: str  # its name in messages: the address without a password
    address: str  # how to connect to it

    def __repr__(self) -> str:
        return f"Side({self.place})"


class World(NamedTuple):
    """What a move needs from outside."""

    wall: Callable[[], int]  # the wall clock, in milliseconds
    token: Callable[[], str]  # 16 random bytes, in hexadecimal


class MovedTenant(Struct, frozen=True):
    """A finished move: the rows and checksums that were proved."""

    tenant: str
    id: str
    rows: dict[str, int] = {}
    checksums: dict[str, str] = {}
    audit_entries: int = 0


class _Mark(NamedTuple):
    """The row of a tenant in ``tenant_move``."""

    id: str
    step: str
    place: str
    url: str
    version: int


class _Note(Struct, frozen=True):
    """How far the copy of a unit is; in MessagePack, which tells bytes from text in a key."""

    after: Any = None
    done: bool = False


class TenantMover:
    """One run of a move; it begins where an earlier one stopped."""

    def __init__(
        self,
        source: Side,
        target: Side,
        tenant: str,
        progress: Progress,
        *,
        world: World,
        url: str = "",
    ) -> None:
        self._source, self._target, self._tenant, self._world = source, target, tenant, world
        self._progress, self._url = progress, url
        self._from: TenantRows
        self._to: TenantRows
        self._keys: tuple[bytes, bytes]  # of the audit logs
        self._hash_keys: list[HashKey]  # of the source, as the target stores them

    # --- the whole move ------------------------------------------------------------------------

    async def move(self) -> MovedTenant:
        """Move the tenant; raises BadSetting with the reason if that is not possible."""
        await self._check_not_the_same()
        async with self._alone():
            await self._prepare()
            moved = await self._go_on()
            self._progress(FINISH, 1, 1)
            return moved

    async def cancel(self) -> None:
        """Give up a move before the switch: the source serves the tenant again."""
        await self._check_not_the_same()
        async with self._alone():
            await self._prepare()
            leaving, arriving = await self._mark(self._source), await self._mark(self._target)
            if leaving is not None and (
                leaving.step in {MoveStep.LEFT, MoveStep.MOVED} or _has_arrived(leaving, arriving)
            ):
                raise BadSetting(
                    f"The tenant {self._tenant} belongs to {leaving.place} already: the move can"
                    " only be finished. Repeat the command without --cancel."
                )
            if leaving is not None and leaving.step != MoveStep.LEAVING:
                leaving = None  # The mark of a tenant that came to the source from elsewhere.
            if arriving is not None and (
                arriving.step != MoveStep.ARRIVING
                or (leaving is not None and arriving.id != leaving.id)
                or (leaving is None and arriving.place != self._source.place)
            ):
                arriving = None  # The mark of another move.
            if leaving is None and arriving is None:
                raise BadSetting(
                    f"No move of the tenant {self._tenant} from {self._source.place} to"
                    f" {self._target.place} is under way."
                )
            if arriving is not None:
                await self._clear_target()
                await self._unmark(self._target, arriving.id)
            if leaving is not None:
                await self._unmark(self._source, leaving.id)

    async def _go_on(self) -> MovedTenant:
        here, there = await self._mark(self._source), await self._mark(self._target)
        if here is not None and here.step == MoveStep.ARRIVED:
            here = None  # The mark of an earlier move to the source.
        if here is None or here.step == MoveStep.ARRIVING:
            here = await self._begin(here, there)
        elif there is None or there.id != here.id:
            raise BadSetting(
                f"The tenant {self._tenant} {_IS[MoveStep(here.step)]} to {here.place}, and"
                f" {self._target.place} is another database."
            )
        moved = MovedTenant(self._tenant, here.id)
        if _has_arrived(here, there):
            # The switch was made, and a failover of the source has lost its mark.
            await self._set(self._source, here.id, MoveStep.LEFT)
        elif here.step == MoveStep.LEAVING:
            await self._wait(here.id)
            await self._wait_for_standbys(self._source, " You can also cancel it with --cancel.")
            await self._copy()
            counts, checksums = await self._prove()
            moved = replace(moved, rows=counts, checksums=checksums)
            await self._set(self._source, here.id, MoveStep.LEFT, audited=True)
            self._progress(SWITCH, 1, 1)
        audited = await self._copy_audit()
        there = await self._mark(self._target)
        if there is not None and there.step == MoveStep.ARRIVING:
            await self._wait_for_standbys(self._source)
            await self._known(
                self._target, await self._set(self._target, here.id, MoveStep.ARRIVED, audited=True)
            )
            self._progress(OPEN, 1, 1)
        if here.step != MoveStep.MOVED:
            await self._wait_for_standbys(self._target)
            left = await self._mark(self._source)
            if left is None or (left.id, left.step) != (here.id, MoveStep.LEFT):
                raise BadSetting(self._both_serve())
            # A process that does not know it would find no rows, and could not say why.
            await self._known(self._source, left.version)
            await self._remove(self._from, keep={"api_key"})
            await self._known(self._source, await self._set(self._source, here.id, MoveStep.MOVED))
        return replace(moved, audit_entries=audited)

    # --- checks before a move ------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Refuse a second move of this tenant at the same time, in either installation.

        A SQLite file is locked by the process that has it open.
        """
        async with contextlib.AsyncExitStack() as stack:
            taken = set[str]()
            for side in (self._source, self._target):
                if side.db.dialect == "postgres" and side.address not in taken:
                    taken.add(side.address)
                    await stack.enter_async_context(_locked(side, self._tenant))
            yield

    async def _check_not_the_same(self) -> None:
        """Refuse a move of an installation to itself, whatever the two addresses look like."""
        name = self._world.token()

        async def add(tx: Tx) -> None:
            await tx.all("tenant_probe_add", name=name)

        async def find(tx: Tx) -> bool:
            return await tx.one("tenant_probe", name=name) is not None

        async def remove(tx: Tx) -> None:
            await tx.all("tenant_probe_remove", name=name)

        await self._target.db.run(add)
        try:
            same = await self._source.db.run(find, read_only=True)
        finally:
            await self._target.db.run(remove)
        if same:
            raise BadSetting("The source and the target are the same database.")

    async def _prepare(self) -> None:
        """Check the schemas and the keys, and read what all steps need."""
        self._from = await TenantRows.of(self._source.db, self._tenant)
        self._to = await TenantRows.of(self._target.db, self._tenant)
        for name, table in self._from.tables.items():
            other = self._to.tables.get(name)
            if other is None or set(other.columns) != set(table.columns):
                raise BadSetting(
                    f"The table {name} is not the same on both sides: upgrade both installations"
                    " to the same version of Homing."
                )
        for side, which in ((self._source, "source"), (self._target, "target")):
            known = await side.db.run(_encryption_keys, read_only=True)
            if not known:
                raise BadSetting(
                    f"The {which} is not an installation yet: start a server on it once with"
                    " `homing serve` and stop it."
                )
            missing = [name for name in known if name not in side.keys.ids]
            if missing:
                raise BadSetting(
                    f"The secrets of the {which} are encrypted with the key {', '.join(missing)},"
                    f" but the keys given for it are only {', '.join(side.keys.ids)}."
                )
        stored = await self._source.db.run(hash_keys, read_only=True)
        found = FieldCipher(self._source.keys).decrypt_hash_keys(stored)
        self._hash_keys = [FieldCipher(self._target.keys).encrypt_hash_key(it) for it in found]
        self._keys = (
            await log_key(Audit(self._source.db), self._source.keys),
            await log_key(Audit(self._target.db), self._target.keys),
        )

    async def _begin(self, here: _Mark | None, there: _Mark | None) -> _Mark:
        """Mark the target, then the source."""
        if there is not None and (there.step, there.place) == (
            MoveStep.ARRIVED,
            self._source.place,
        ):
            raise BadSetting(self._both_serve())
        await self._check_source(here)
        if there is not None and there.step == MoveStep.ARRIVING:
            if there.place != self._source.place:
                raise BadSetting(
                    f"The tenant {self._tenant} is being moved to the target from {there.place}."
                )
            move_id = there.id  # The move was killed before the source was marked.
        else:
            move_id = await self._mark_target(there)
            self._progress(MARK_TARGET, 1, 1)
        try:
            await self._set(self._source, move_id, MoveStep.LEAVING)
        except BadSetting:
            await self._unmark(self._target, move_id)
            raise
        self._progress(MARK_SOURCE, 1, 1)
        mark = await self._mark(self._source)
        assert mark is not None
        return mark

    def _both_serve(self) -> str:
        return (
            f"The tenant {self._tenant} was moved to {self._target.place}, and"
            f" {self._source.place} has lost the mark of the move: {_LOST} Both serve the tenant"
            " now. Publish to the target the events that only the source has, then erase the tenant"
            " in the source."
        )

    async def _check_source(self, here: _Mark | None) -> None:
        """Refuse a tenant that is not there, or not complete."""
        tenant = self._tenant
        if here is not None:
            raise BadSetting(f"The tenant {tenant} is being moved to the source from {here.place}.")
        if not await self._has_rows(self._from):
            raise BadSetting(f"The source has no tenant {tenant}.")
        if await self._source.db.run(_erasing(tenant), read_only=True):
            raise BadSetting(
                f"Data of the tenant {tenant} is being erased: repeat the move when that is done."
            )

    async def _mark_target(self, there: _Mark | None) -> str:
        """Mark a target that has nothing of the tenant; returns the id of the move.

        The second check finds rows committed before the mark; later changes are refused.
        """
        if there is not None and there.step in {MoveStep.LEAVING, MoveStep.LEFT}:
            raise BadSetting(f"The tenant {self._tenant} is being moved from the target.")
        was_there = there is not None and there.step == MoveStep.MOVED
        await self._check_target(but={"api_key"} if was_there else set())
        move_id = self._world.token()
        await self._set(self._target, move_id, MoveStep.ARRIVING, was_there=was_there)
        try:
            await self._check_target(but=set())
        except BadSetting:
            await self._unmark(self._target, move_id)
            raise
        return move_id

    async def _check_target(self, *, but: set[str]) -> None:
        for table in ROOTS:
            if table not in but and await self._to.has(table):
                raise BadSetting(f"The target has rows of the tenant {self._tenant} in {table}.")

    async def _has_rows(self, side: TenantRows) -> bool:
        for table in ROOTS:
            if await side.has(table):
                return True
        return False

    # --- marks -----------------------------------------------------------------------------------

    async def _mark(self, side: Side) -> _Mark | None:
        async def read(tx: Tx) -> _Mark | None:
            row = await tx.one("tenant_move_of", tenant=self._tenant)
            return None if row is None else _Mark(*row)

        return await side.db.run(read, read_only=True)

    async def _prepare_target(self, tx: Tx, *, was_there: bool) -> None:
        """Every process of the target knows the keys of the source's hashes before it opens."""
        if was_there:
            await tx.all("tenant_api_keys_remove", tenant=self._tenant)
        await tx.all("tenant_progress_remove", tenant=self._tenant)
        for it in self._hash_keys:
            await tx.all("hash_key_add", name=it.name, value=it.value)

    async def _set(
        self,
        side: Side,
        move_id: str,
        step: MoveStep,
        *,
        was_there: bool = False,
        audited: bool = False,
    ) -> int:
        """Write a step with a new version of the catalog, by which all processes read the step.

        Returns the version.
        """
        other = self._target if side is self._source else self._source
        before = await self._mark(side)
        url = self._url or ("" if before is None or before.id != move_id else before.url)
        entry = self._entry(side, move_id, other, step) if audited else None
        position = await other.db.run(acceptance.last) if step is MoveStep.ARRIVED else 0

        async def write(tx: Tx) -> int:
            await tx.all("tenant_move_lock", tenant=self._tenant)
            if step is MoveStep.ARRIVING:
                await self._prepare_target(tx, was_there=was_there)
            if step is MoveStep.LEAVING and await tx.one(
                "tenant_erasures_running", tenant=self._tenant
            ):
                raise BadSetting(f"Data of the tenant {self._tenant} is being erased.")
            if step is MoveStep.LEFT:
                known = await tx.one("tenant_move_of", tenant=self._tenant)
                if known is None or known[:2] not in {(move_id, it) for it in _SWITCHABLE}:
                    raise BadSetting(
                        f"{side.place} no longer has the mark of this move: {_LOST} It may have"
                        f" changed the tenant since. {_NOTHING} Repeat the move, or cancel it with"
                        " --cancel."
                    )
            if step is MoveStep.ARRIVED:
                await acceptance.raise_above(tx, position)
                await tx.all("keys_raise")  # The tenant's keys are valid here from now on.
            version = await raise_catalog(tx)  # Nothing else changes a tenant that moves.
            if step is MoveStep.ARRIVED:
                raised = {"tenant": self._tenant, "version": version}
                await tx.all("tenant_subscriptions_raise", **raised)
                await tx.all("tenant_signing_keys_raise", **raised)
                await tx.all("tenant_progress_remove", tenant=self._tenant)
            if step in {MoveStep.ARRIVED, MoveStep.MOVED}:
                await tx.all("tenant_move_ready_remove", move_id=move_id)
            await tx.all(
                "tenant_move_set",
                tenant=self._tenant,
                id=move_id,
                step=step,
                place=other.place,
                url=url,
                version=version,
                at=self._world.wall(),
            )
            if entry is not None:
                await tx.insert("audit_entry", [entry_row(entry)])
            return version

        return await side.db.run(write)

    async def _unmark(self, side: Side, move_id: str) -> None:
        """Remove the mark of a move that was given up: the tenant is served as before."""

        async def write(tx: Tx) -> None:
            await tx.all("tenant_move_lock", tenant=self._tenant)
            await tx.all("tenant_move_remove", tenant=self._tenant, id=move_id)
            await tx.all("tenant_move_ready_remove", move_id=move_id)
            await tx.all("tenant_progress_remove", tenant=self._tenant)
            await raise_catalog(tx)

        await side.db.run(write)

    def _entry(self, side: Side, move_id: str, other: Side, step: MoveStep) -> AuditEntry:
        """The entry of the audit log that says that the tenant has left, or has arrived."""
        now = self._world.wall()
        way = "to" if side is self._source else "from"
        entry = AuditEntry(
            id=id_floor(now) + int(self._world.token(), 16) % id_floor(1),
            at=now,
            tenant=self._tenant,
            who=WHO,
            action=ACTION,
            object=self._tenant,
            after=msgspec.json.encode({"step": step, way: other.place, "move": move_id}).decode(),
        )
        key = self._keys[0 if side is self._source else 1]
        return replace(entry, digest=digest_of(entry, entry_key(key, entry.id)))

    # --- waiting for processes -----------------------------------------------------------------

    async def _wait(self, move_id: str) -> None:
        """Wait until no process of either installation does anything for the tenant."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + READY_WAIT_S
        for side in (self._source, self._target):
            while names := await self._not_ready(side, move_id):
                if loop.time() >= ends_at:
                    raise BadSetting(
                        f"These processes of {side.place} have not finished their attempts for"
                        f" {self._tenant} in {READY_WAIT_S:.0f} seconds: {', '.join(names)}. The"
                        " tenant is paused: repeat the move, or cancel it with --cancel."
                    )
                await asyncio.sleep(READY_EVERY_S)
        self._progress(WAIT, 1, 1)

    async def _not_ready(self, side: Side, move_id: str) -> list[str]:
        """The processes that may still do something for the tenant; those that ended are fenced."""
        if side.db.dialect == "postgres":
            await Leases(side.db).fence_ended()
        return await side.db.run(_not_ready(move_id), read_only=True)

    async def _known(self, side: Side, version: int) -> None:
        """Wait until every process has read a step after which it responds in another way.

        A process that cannot read it now is not waited for: it reads the step when it can.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_WAIT_S):
                while await side.db.run(_unread(version), read_only=True):  # noqa: ASYNC110
                    await asyncio.sleep(READY_EVERY_S)

    async def _wait_for_standbys(self, side: Side, advice: str = "") -> None:
        """Wait until every standby of this database has all commits made so far."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + STANDBYS_WAIT_S
        position = await side.db.run(_log_position)
        while names := await side.db.run(_standbys_before(position), read_only=True):
            if loop.time() >= ends_at:
                raise BadSetting(
                    f"These standbys of {side.place} have not received the last commits in"
                    f" {STANDBYS_WAIT_S:.0f} seconds: {', '.join(names)}. A failover to one of them"
                    f" would undo this step of the move. Repeat the move when they have.{advice}"
                )
            await asyncio.sleep(READY_EVERY_S)

    # --- copying ---------------------------------------------------------------------------------

    async def _copy(self) -> None:
        await self._make_days()
        copied = 0
        for unit in UNITS:
            note = await self._note(unit)
            while not note.done:
                page = await unit.read(self._from, note.after)
                note = _Note(page.after, done=page.after is None)
                await self._write(unit, page, note)
                copied += sum(map(len, page.rows.values()))
                self._progress(COPY, copied, 0)

    async def _note(self, unit: Unit) -> _Note:
        async def read(tx: Tx) -> _Note:
            row = await tx.one("tenant_progress", tenant=self._tenant, name=unit.name)
            if row is None:
                return _Note()
            return msgspec.msgpack.decode(bytes.fromhex(row[0]), type=_Note)

        return await self._target.db.run(read, read_only=True)

    async def _write(self, unit: Unit, page: Page, note: _Note) -> None:
        """Write a page with the progress, in one transaction."""
        carried = {
            table: [self._carried(table, row) for row in found]
            for table, found in page.rows.items()
            if found
        }
        to, sign = self._to, "$" if self._target.db.dialect == "postgres" else "?"
        text = msgspec.msgpack.encode(note).hex()

        async def write(run: Execute) -> None:
            versioned = [table for table in carried if table in _HAS_VERSION]
            for table, found in reversed(carried.items()):
                columns = self._from.tables[table].columns
                new = _with_version(columns, found, 0) if table in versioned else found
                await to.insert(run, table, columns, new)
            await run(
                "INSERT INTO tenant_move_progress (tenant, name, note)"  # noqa: S608
                f" VALUES ({sign}1, {sign}2, {sign}3)"
                " ON CONFLICT (tenant, name) DO UPDATE SET note = excluded.note",
                self._tenant,
                unit.name,
                text,
            )
            version = await raise_catalog_raw(run, to.db.dialect) if versioned else 0
            for table in versioned:
                await run(
                    f"UPDATE {table} SET version = {sign}1"  # noqa: S608
                    f" WHERE tenant = {sign}2 AND version = 0",
                    version,
                    self._tenant,
                )

        try:
            await self._target.db.raw(write)
        except (asyncpg.UniqueViolationError, apsw.ConstraintError) as error:
            table = getattr(error, "table_name", None) or unit.name
            raise BadSetting(_taken(self._tenant, table)) from error

    def _carried(self, table: str, row: Row) -> Row:
        """The row as the target stores it: its secrets encrypted with the target's first key."""
        old, new = FieldCipher(self._source.keys), FieldCipher(self._target.keys)
        match table:
            case "subscription":
                stored = rows.subscription(self._in_order(self._from, table, row))
                if new.is_current(stored):
                    return row
                again = rows.subscription_row(new.encrypt(old.decrypt(stored)))
                return self._ordered(self._from, table, again)
            case "signing_keys":
                keys = rows.signing_keys(self._in_order(self._from, table, row))
                if new.are_current_keys(keys):
                    return row
                again = rows.signing_keys_row(new.encrypt_keys(old.decrypt_keys(keys)))
                return self._ordered(self._from, table, again)
            case "notice_target":
                return self._reencrypted_target(row)
            case _:
                return row

    def _in_order(self, side: TenantRows, table: str, row: Row) -> Row:
        """The values of a row in the order of ``rows.COLUMNS``."""
        values = dict(zip(side.tables[table].columns, row, strict=True))
        return tuple(values[name] for name in rows.COLUMNS[table])

    def _ordered(self, side: TenantRows, table: str, row: Row) -> Row:
        """The opposite: in the order of the table's columns."""
        values = dict(zip(rows.COLUMNS[table], row, strict=True))
        return tuple(values[name] for name in side.tables[table].columns)

    def _reencrypted_target(self, row: Row) -> Row:
        """A target of notices; one that was deleted has no address."""
        columns = self._from.tables["notice_target"].columns
        values = dict(zip(columns, row, strict=True))
        stored = read_target(self._in_order(self._from, "notice_target", row))
        old, new = FieldCipher(self._source.keys), FieldCipher(self._target.keys)
        if not new.is_current_target(stored):
            again = new.encrypt_target(old.decrypt_target(stored))
            values |= {name: getattr(again, name) for name in ("address", "secret") if values[name]}
        return tuple(values[name] for name in columns)

    async def _make_days(self) -> None:
        """Make the daily partitions that the rows need."""
        if self._target.db.dialect != "postgres":
            return
        day, found = id_floor(DAY_MS), set[int]()
        after: Any = None
        events = next(it for it in UNITS if it.name == "event_key")
        place = self._from.tables["event_key"].columns.index("event_id")
        while True:
            page = await events.read(self._from, after)
            found |= {row[place] // day for row in page.rows["event_key"]}
            after = page.after
            if after is None:
                break
        if len(found) <= DAYS_MAX:
            await make_days(
                self._target.db, [(table, it) for table in PARTED for it in sorted(found)]
            )

    # --- the proof -----------------------------------------------------------------------------

    async def _prove(self) -> tuple[dict[str, int], dict[str, str]]:
        """Compare every row of both sides; if they differ, remove the copy and raise NotTheSame."""
        # Read the ids of parent rows again: the target has these rows now.
        self._to = TenantRows(self._target.db, self._tenant, self._to.tables)
        counts: dict[str, int] = {}
        checksums: dict[str, str] = {}
        read = 0
        for unit in UNITS:
            sums = []
            for side, walked in ((self._source, self._from), (self._target, self._to)):
                count, total = dict.fromkeys(unit.tables, 0), dict.fromkeys(unit.tables, 0)
                after: Any = None
                while True:
                    page = await unit.read(walked, after)
                    for table, found in page.rows.items():
                        count[table] += len(found)
                        for row in found:
                            total[table] += _row_sum(self._compared(side, walked, table, row))
                        read += len(found)
                    self._progress(PROVE, read, 0)
                    after = page.after
                    if after is None:
                        break
                sums.append((count, total))
            if sums[0] != sums[1]:
                await self._clear_target()
                raise NotTheSame(
                    f"{unit.name}: {_shown(*sums[0])}; the copy has {_shown(*sums[1])}."
                    f" {_NOTHING} The copy was removed and the tenant is paused: repeat the move,"
                    " or cancel it with --cancel."
                )
            for table in unit.tables:
                counts[table] = counts.get(table, 0) + sums[0][0][table]
                before = int(checksums.get(table, "0"), 16)
                checksums[table] = f"{(before + sums[0][1][table]) % 2**64:016x}"
        await self._check_audit()
        return counts, checksums

    def _compared(self, side: Side, walked: TenantRows, table: str, row: Row) -> Any:
        """What must be equal on both sides: without versions, and with secrets decrypted."""
        match table:
            case "subscription":
                plain = rows.subscription(self._in_order(walked, table, row))
                opened = FieldCipher(side.keys).decrypt(plain)
                return rows.subscription_row(replace(opened, version=0))
            case "signing_keys":
                keys = rows.signing_keys(self._in_order(walked, table, row))
                return rows.signing_keys_row(
                    replace(FieldCipher(side.keys).decrypt_keys(keys), version=0)
                )
            case _:
                pass
        values = dict(zip(walked.tables[table].columns, row, strict=True))
        if table in _HAS_VERSION:
            values["version"] = 0
        elif table == "notice_target":
            for field in ("address", "secret"):
                context = f"{show_id('tgt', values['id'])} {field}"
                values[field] = side.keys.decrypt(values[field], context)
        return sorted(values.items())

    async def _clear_target(self) -> None:
        """Remove the copy from the target: the next run copies anew."""
        await self._remove(TenantRows(self._target.db, self._tenant, self._to.tables))

        async def write(tx: Tx) -> None:
            await tx.all("tenant_progress_remove", tenant=self._tenant)
            await raise_catalog(tx)

        await self._target.db.run(write)

    # --- the audit log -----------------------------------------------------------------------

    async def _copy_audit(self) -> int:
        """Copy the entries that the target does not have, signed with its key; returns how many.

        An entry that is not genuine in the source is not genuine in the target either.
        """
        after: Any = None
        copied = 0
        columns = self._from.tables["audit_entry"].columns
        while True:
            page = await AUDIT.read(self._from, after)
            entries = [
                entry_of(self._in_order(self._from, "audit_entry", row))
                for row in page.rows["audit_entry"]
            ]
            signed = [self._signed(it) for it in entries]
            found = [self._ordered(self._from, "audit_entry", entry_row(it)) for it in signed]

            async def write(run: Execute, found: Sequence[Row] = found) -> None:
                await self._to.insert(run, "audit_entry", columns, found, again=True)

            await self._target.db.raw(write)
            copied += len(found)
            self._progress(COPY_AUDIT, copied, 0)
            after = page.after
            if after is None:
                return copied

    def _signed(self, entry: AuditEntry) -> AuditEntry:
        digest = b""
        if is_genuine(self._keys[0], entry):
            digest = digest_of(entry, entry_key(self._keys[1], entry.id))
        return replace(entry, digest=digest, segment=0)

    async def _check_audit(self) -> None:
        """Refuse to switch if the target has other entries of the audit log with the same ids.

        Equal entries are fine: a tenant that moves back has left its own there.
        """
        after: Any = None
        while True:
            page = await AUDIT.read(self._from, after)
            entries = [
                _unsigned(self._in_order(self._from, "audit_entry", row))
                for row in page.rows["audit_entry"]
            ]
            found = await self._to.among("audit_entry", "id", [it.id for it in entries])
            there = [_unsigned(self._in_order(self._to, "audit_entry", row)) for row in found]
            known = {it.id: it for it in entries}
            for entry in there:
                if known[entry.id] != entry:
                    raise BadSetting(_taken(self._tenant, "audit_entry"))
            after = page.after
            if after is None:
                return

    # --- removing ------------------------------------------------------------------------------

    async def _remove(self, side: TenantRows, *, keep: set[str] | None = None) -> None:
        """Remove the rows of the tenant, in the opposite order of copying, a page at a time."""
        removed = 0
        for unit in reversed(UNITS):
            if unit.name in (keep or ()):
                continue
            after: Any = None
            while True:
                page = await unit.read(side, after)
                if any(page.rows.values()):
                    await side.db.raw(_removal(side, page))
                removed += sum(map(len, page.rows.values()))
                self._progress(REMOVE, removed, 0)
                after = page.after
                if after is None:
                    break


_SWITCHABLE = (MoveStep.LEAVING, MoveStep.LEFT)  # LEFT: written before, but the reply was lost
_LOST = "its database has lost commits, in a failover or by a restore."
_IS = {
    MoveStep.LEAVING: "is being moved",
    MoveStep.LEFT: "is being moved",
    MoveStep.MOVED: "was moved",
}


def _taken(tenant: str, table: str) -> str:
    return (
        f"An id of the tenant {tenant} in the table {table} is taken in the target: both"
        " installations have made ids with the same node numbers. Give every cell its own"
        " node_numbers (a setting) before it makes ids. The tenant is paused: cancel the move with"
        " --cancel."
    )


def _unsigned(row: Row) -> AuditEntry:
    """An entry without what each installation adds: its digest and its segment."""
    return replace(entry_of(row), digest=b"", segment=0)


def _removal(side: TenantRows, page: Page) -> Callable[[Execute], Awaitable[None]]:
    async def remove(run: Execute) -> None:
        for table, found in page.rows.items():
            await side.remove(run, table, found)

    return remove


def _with_version(columns: Sequence[str], found: Sequence[Row], version: int) -> list[Row]:
    place = columns.index("version")
    return [(*row[:place], version, *row[place + 1 :]) for row in found]


def _not_ready(move_id: str) -> Callable[[Tx], Awaitable[list[str]]]:
    async def read(tx: Tx) -> list[str]:
        return [str(row[0]) for row in await tx.all("tenant_move_not_ready", move_id=move_id)]

    return read


def _unread(version: int) -> Callable[[Tx], Awaitable[list[str]]]:
    async def read(tx: Tx) -> list[str]:
        return [str(row[0]) for row in await tx.all("tenant_move_unread", version=version)]

    return read


async def _log_position(tx: Tx) -> str:
    row = await tx.one("log_position")
    assert row is not None
    return str(row[0])


def _standbys_before(position: str) -> Callable[[Tx], Awaitable[list[str]]]:
    async def read(tx: Tx) -> list[str]:
        return [str(row[0]) for row in await tx.all("standbys_before", position=position)]

    return read


def _has_arrived(here: _Mark, there: _Mark | None) -> bool:
    """Whether the target serves the tenant although the source says that it is leaving."""
    return (
        here.step == MoveStep.LEAVING
        and there is not None
        and (there.id, there.step) == (here.id, MoveStep.ARRIVED)
    )


def _erasing(tenant: str) -> Callable[[Tx], Awaitable[bool]]:
    async def read(tx: Tx) -> bool:
        return await tx.one("tenant_erasures_running", tenant=tenant) is not None

    return read


async def _encryption_keys(tx: Tx) -> list[str]:
    return [str(row[0]) for row in await tx.all("encryption_keys")]


@contextlib.asynccontextmanager
async def _locked(side: Side, tenant: str) -> AsyncIterator[None]:
    """Hold the lock of a move of this tenant, in a session of its own."""
    try:
        connection = await connect(side.address, statement_cache_size=0)
    except CONNECTION_ERRORS as error:
        raise StoreUnavailable(refusal_text(error, side.address)) from error
    try:
        taken = await connection.fetchval(
            "SELECT pg_try_advisory_lock(723914057, hashtext(current_schema() || '.' || $1::text))",
            tenant,
        )
        if not taken:
            raise BadSetting(
                f"Another `homing move` of the tenant {tenant} is running on {side.place}."
            )
        yield
    finally:
        await connection.close(timeout=5)


def _row_sum(value: Any) -> int:
    """A checksum of a row; rows are summed, because collations may order them differently."""
    packed = msgspec.msgpack.encode(value)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest())


def _shown(counts: dict[str, int], sums: dict[str, int]) -> str:
    return ", ".join(
        f"{counts[name]:,} of {name} with the checksum {sums[name] % 2**64:016x}" for name in counts
    )
