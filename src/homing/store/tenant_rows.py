"""All rows of one tenant: which tables have some, how they are found, copied and erased.

Every table either has rows of tenants (``UNITS``) or belongs to the installation
(``INSTALLATION``); a test compares both with the schema. A move copies the units, and an erasure
removes them. Rows are read in pages, by seeks where a table is large: events through the keys of a
tenant, deliveries through its endpoints. Small tables are read in windows of the primary key.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from homing.store.migrate import Execute, RawSql
from homing.store.move import Table, tables_of
from homing.store.tx import Row

PAGE_ROWS = 1_000
WINDOW_ROWS = 20_000  # of a small table that one statement reads
ENDPOINTS_AT_ONCE = 200  # that one page asks

# These tables belong to the installation: no row of them moves with a tenant.
INSTALLATION = frozenset(
    {
        "acceptance",
        "audit_head",
        "audit_segment",
        "batch_mark",
        "catalog",
        "clock_mark",
        "commit_loss",
        "encryption_key",
        "form_use",
        "hash_key",  # copied before the rows: the mover encrypts it with the target's key
        "key_session",  # People sign in again.
        "key_version",
        "lease",
        "migration",
        "notice_reminder",
        "plaintext_removal",
        "policy",  # of the settings
        "process",
        "tenant_move",
        "tenant_move_progress",
        "tenant_move_ready",
        "topic_version",
    }
)


class Page(NamedTuple):
    """Rows by table, children before the rows that they are found through, and where to go on."""

    rows: dict[str, list[Row]]
    after: Any  # None: these were the last


class TenantRows:
    """The rows of one tenant in one database."""

    def __init__(self, db: RawSql, tenant: str, tables: dict[str, Table]) -> None:
        self.db, self.tenant, self.tables = db, tenant, tables
        self._sign = "$" if db.dialect == "postgres" else "?"
        self._parents: dict[str, list[int]] = {}

    @classmethod
    async def of(cls, db: RawSql, tenant: str) -> TenantRows:
        return cls(db, tenant, await tables_of(db))

    async def fetch(self, text: str, *values: Any) -> list[Row]:
        return await self.db.raw(lambda run: run(self._text(text), *values))

    def _text(self, text: str) -> str:
        """The statement with its parameters as this database writes them: ``:1`` for the first."""
        return re.sub(r":(\d)", lambda found: self._sign + found[1], text)

    def columns(self, table: str, prefix: str = "") -> str:
        return ", ".join(f"{prefix}{name}" for name in self.tables[table].columns)

    async def has(self, table: str) -> bool:
        """Whether a table with a column for the tenant has a row of it."""
        text = f"SELECT 1 FROM {table} WHERE tenant = :1 LIMIT 1"  # noqa: S608
        return bool(await self.fetch(text, self.tenant))

    # --- small tables: windows of the primary key --------------------------------------------

    async def window(self, table: str, condition: str, after: Any) -> Page:
        """The rows of the next window that belong to the tenant."""
        key = self.tables[table].key
        names, width = ", ".join(key), len(key)
        above, values = "", ()
        if after is not None:
            above = f" WHERE ({names}) > ({_marks(width)})"
            values = tuple(after)
        last = await self.fetch(
            f"SELECT {names} FROM {table}{above} ORDER BY {names}"  # noqa: S608
            f" LIMIT 1 OFFSET {WINDOW_ROWS - 1}",
            *values,
        )
        conditions = [condition.replace(":tenant", ":1")]
        bounds: tuple[Any, ...] = (self.tenant,)
        if after is not None:
            conditions.append(f"({names}) > ({_marks(width, len(bounds))})")
            bounds += values
        if last:
            conditions.append(f"({names}) <= ({_marks(width, len(bounds))})")
            bounds += tuple(last[0])
        found = await self.fetch(
            f"SELECT {self.columns(table)} FROM {table} WHERE {' AND '.join(conditions)}",  # noqa: S608
            *bounds,
        )
        return Page({table: found}, tuple(last[0]) if last else None)

    # --- in the order of an index that begins with the tenant ----------------------------------

    async def by_tenant(self, table: str, order: str, after: Any) -> Page:
        above = f" AND {order} > :2" if after is not None else ""
        found = await self.fetch(
            f"SELECT {self.columns(table)} FROM {table} WHERE tenant = :1{above}"  # noqa: S608
            f" ORDER BY {order} LIMIT {PAGE_ROWS}",
            self.tenant,
            *(() if after is None else (after,)),
        )
        place = self.tables[table].columns.index(order)
        return Page({table: found}, found[-1][place] if len(found) == PAGE_ROWS else None)

    async def events(self, after: Any) -> Page:
        """Events, with their payload fields and the links to their replays."""
        above = " AND k.key > :2" if after is not None else ""
        found = await self.fetch(
            f"SELECT {self.columns('event', 'e.')}, k.key FROM event_key k"  # noqa: S608
            f" JOIN event e ON e.id = k.event_id WHERE k.tenant = :1{above}"
            f" ORDER BY k.key LIMIT {PAGE_ROWS}",
            self.tenant,
            *(() if after is None else (after,)),
        )
        events = [row[:-1] for row in found]
        ids = [row[self.tables["event"].columns.index("id")] for row in events]
        rows = {
            "event_field": await self.among("event_field", "event_id", ids),
            "replay_link": await self.among("replay_link", "event_id", ids),
            "event": events,
        }
        return Page(rows, found[-1][-1] if len(found) == PAGE_ROWS else None)

    # --- through endpoints and streams -------------------------------------------------------

    async def deliveries(self, table: str, after: Any) -> Page:
        """Deliveries of the endpoints of the tenant, with their attempts."""
        found, on = await self._through("endpoint", table, "endpoint_id", "id", after)
        ids = [row[self.tables[table].columns.index("id")] for row in found]
        return Page({"attempt": await self.among("attempt", "delivery_id", ids), table: found}, on)

    async def test_attempts(self, after: Any) -> Page:
        """Attempts without a delivery: test sends. The condition is that of attempt_endpoint."""
        condition = (
            " AND (outcome <> 'delivered' OR number > 1 OR lane <> 'fresh')"
            " AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.id = attempt.delivery_id)"
            " AND NOT EXISTS (SELECT 1 FROM history h WHERE h.id = attempt.delivery_id)"
        )
        found, on = await self._through(
            "endpoint", "attempt", "endpoint_id", "delivery_id", after, condition
        )
        return Page({"attempt": found}, on)

    async def stream_entries(self, after: Any) -> Page:
        """The entries of the streams of subscriptions without a URL."""
        found, on = await self._through(
            "pull_stream", "pull_entry", "subscription_id", "position", after
        )
        return Page({"pull_entry": found}, on)

    async def _through(
        self, parent: str, table: str, column: str, order: str, after: Any, condition: str = ""
    ) -> tuple[list[Row], Any]:
        """A page of rows of one parent after the other; ``after`` is (parent, order)."""
        parents, found = await self._ids(parent), list[Row]()
        begin, above = after if after is not None else (-1, -1)
        todo = [it for it in parents if it >= begin]
        for number in todo[:ENDPOINTS_AT_ONCE]:
            more = await self.fetch(
                f"SELECT {self.columns(table)} FROM {table}"  # noqa: S608
                f" WHERE {column} = :1 AND {order} > :2{condition}"
                f" ORDER BY {order} LIMIT {PAGE_ROWS}",
                number,
                above if number == begin else -1,
            )
            found += more
            if len(more) == PAGE_ROWS:
                return found, (number, more[-1][self.tables[table].columns.index(order)])
            if len(found) >= PAGE_ROWS:
                break
        else:
            number = todo[:ENDPOINTS_AT_ONCE][-1] if todo else -1
        left = [it for it in todo if it > number]
        return found, (left[0], -1) if left else None

    async def _ids(self, parent: str) -> list[int]:
        """The numbers of the parents of this tenant, in order."""
        if parent not in self._parents:
            key = self.tables[parent].key[0]
            text = f"SELECT {key} FROM {parent} WHERE tenant = :1"  # noqa: S608
            self._parents[parent] = sorted(row[0] for row in await self.fetch(text, self.tenant))
        return self._parents[parent]

    async def among(self, table: str, column: str, ids: Sequence[int]) -> list[Row]:
        """The rows of a table with one of these numbers."""
        if not ids:
            return []
        if self.db.dialect == "postgres":
            text = f"SELECT {self.columns(table)} FROM {table} WHERE {column} = ANY(:1::bigint[])"  # noqa: S608
            return await self.fetch(text, list(ids))
        text = (
            f"SELECT {self.columns(table)} FROM {table}"  # noqa: S608
            f" WHERE {column} IN (SELECT value FROM json_each(:1))"
        )
        return await self.fetch(text, f"[{','.join(map(str, ids))}]")

    # --- writing and removing ------------------------------------------------------------------

    def inserts(self, table: str, columns: Sequence[str], *, again: bool = False) -> str:
        """The statement that inserts rows; with ``again`` it leaves out those that are there."""
        names, end = ", ".join(columns), " ON CONFLICT DO NOTHING" if again else ""
        if self.db.dialect == "postgres":
            types = dict(zip(self.tables[table].columns, self.tables[table].types, strict=True))
            arrays = (f"${n}::{types[name]}[]" for n, name in enumerate(columns, 1))
            return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({', '.join(arrays)}){end}"  # noqa: S608
        marks = ", ".join(["?"] * len(columns))
        return f"INSERT INTO {table} ({names}) VALUES ({marks}){end}"  # noqa: S608

    async def insert(
        self,
        run: Execute,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Row],
        *,
        again: bool = False,
    ) -> None:
        if not rows:
            return
        text = self.inserts(table, columns, again=again)
        if self.db.dialect == "postgres":
            await run(text, *(list(column) for column in zip(*rows, strict=True)))
            return
        for row in rows:
            await run(text, *row)

    async def remove(self, run: Execute, table: str, rows: Sequence[Row]) -> None:
        """Remove these rows by their primary key."""
        if not rows:
            return
        it = self.tables[table]
        places = [it.columns.index(name) for name in it.key]
        keys = [tuple(row[place] for place in places) for row in rows]
        if self.db.dialect == "postgres":
            types = dict(zip(it.columns, it.types, strict=True))
            arrays = ", ".join(f"${n}::{types[name]}[]" for n, name in enumerate(it.key, 1))
            names = ", ".join(it.key)
            text = f"DELETE FROM {table} WHERE ({names}) IN (SELECT * FROM unnest({arrays}))"  # noqa: S608
            await run(text, *(list(column) for column in zip(*keys, strict=True)))
            return
        where = " AND ".join(f"{name} = ?" for name in it.key)
        for key in keys:
            await run(f"DELETE FROM {table} WHERE {where}", *key)  # noqa: S608


def _marks(count: int, before: int = 0) -> str:
    return ", ".join(f":{n}" for n in range(before + 1, before + count + 1))


# --- which rows belong to a tenant --------------------------------------------------------------

_ENDPOINTS = "(SELECT id FROM endpoint WHERE tenant = :tenant)"
_SUBSCRIPTIONS = "(SELECT id FROM subscription WHERE tenant = :tenant)"
_ROLLED_UP = f"(tenant = :tenant OR endpoint_id IN {_ENDPOINTS})"

Read = Callable[[TenantRows, Any], Awaitable[Page]]


# How an erasure of the tenant removes the rows of a unit.


class AtOnce(NamedTuple):
    """In the commit that begins the erasure: people or receivers could still use them."""

    statements: tuple[str, ...]  # by tenant


class OfTenant(NamedTuple):
    """In steps, after the events and endpoints."""

    statements: tuple[str, ...]  # by tenant, with a limit


class OfEndpoint(NamedTuple):
    """In steps, of one endpoint after the other."""

    statement: str  # by endpoint, with a limit


class WithEvents(NamedTuple):
    """With the events that they belong to."""


class WithStreams(NamedTuple):
    """With the streams of subscriptions without a URL."""


class Stays(NamedTuple):
    """They stay, and have nothing of what was erased."""

    why: str


Erased = AtOnce | OfTenant | OfEndpoint | WithEvents | WithStreams | Stays


class Unit(NamedTuple):
    """Rows that are read together, a page at a time."""

    name: str
    tables: tuple[str, ...]
    read: Read
    erased: Erased


def _window(table: str, erased: Erased, condition: str = "tenant = :tenant") -> Unit:
    return Unit(table, (table,), lambda rows, after: rows.window(table, condition, after), erased)


def _by_tenant(table: str, order: str, erased: Erased) -> Unit:
    return Unit(table, (table,), lambda rows, after: rows.by_tenant(table, order, after), erased)


def _deliveries(table: str, erased: Erased) -> Unit:
    return Unit(
        table, ("attempt", table), lambda rows, after: rows.deliveries(table, after), erased
    )


async def _replay_jobs(rows: TenantRows, after: Any) -> Page:
    lite = rows.db.dialect == "sqlite"
    found = "json_extract(filter, '$.tenant')" if lite else "CAST(filter AS jsonb) ->> 'tenant'"
    return await rows.window("replay_job", f"{found} = :tenant", after)


# In the order of copying: what other rows are found through comes first. Rows are removed in the
# opposite order.
UNITS: tuple[Unit, ...] = (
    _window("endpoint", OfEndpoint("erase_endpoint")),
    _window("subscription", OfEndpoint("erase_endpoint_subscriptions")),
    _window("signing_keys", AtOnce(("signing_keys_remove",))),
    _window("event_type", AtOnce(("event_types_erase",))),
    _window("event_type_change", AtOnce(("event_type_change_erase",))),
    _window("portal_settings", AtOnce(("erase_portal_settings_of",))),
    _window("erasure", Stays("it says what was erased: keyed hashes and counts")),
    _window(
        "erased_key",
        Stays("keyed hashes, by which a publish finds that an id was erased"),
        "erasure_id IN (SELECT id FROM erasure WHERE tenant = :tenant)",
    ),
    _window("notice_target", AtOnce(("erase_overflow_of", "erase_targets_of"))),
    _window("pull_stream", WithStreams()),
    _window("pull_reader", WithStreams(), f"subscription_id IN {_SUBSCRIPTIONS}"),
    _window("api_key", OfTenant(("erase_api_keys_of",))),
    _window("ledger", Stays("sums alone, which still balance")),
    _window("cause", OfEndpoint("erase_endpoint_causes")),
    _window("transition", OfEndpoint("erase_endpoint_transitions"), f"endpoint_id IN {_ENDPOINTS}"),
    _window("cleanup_job", OfEndpoint("erase_endpoint_jobs"), f"endpoint_id IN {_ENDPOINTS}"),
    _window("key_release", OfEndpoint("erase_endpoint_releases"), f"endpoint_id IN {_ENDPOINTS}"),
    Unit("replay_job", ("replay_job",), _replay_jobs, OfTenant(("erase_jobs_of_tenant",))),
    _window("notice", OfTenant(("erase_notices_of", "erase_notices_for")), "owner = :tenant"),
    _window(
        "notice_overflow",
        AtOnce(()),  # with its target
        "target_id IN (SELECT id FROM notice_target WHERE tenant = :tenant)",
    ),
    _window("rollup", Stays("counts alone, by the minute"), _ROLLED_UP),
    _window("rollup_hour", Stays("counts alone, by the hour"), _ROLLED_UP),
    _by_tenant("event_key", "key", WithEvents()),
    Unit(
        "event",
        ("event_field", "replay_link", "event"),
        lambda rows, after: rows.events(after),
        WithEvents(),
    ),
    _deliveries("pending", WithEvents()),
    _deliveries("history", OfEndpoint("erase_endpoint_history")),  # of events past retention
    Unit(
        "test sends",
        ("attempt",),
        lambda rows, after: rows.test_attempts(after),
        OfEndpoint("erase_endpoint_attempts"),
    ),
    Unit(
        "pull_entry", ("pull_entry",), lambda rows, after: rows.stream_entries(after), WithStreams()
    ),
)
AUDIT = _by_tenant(
    "audit_entry", "id", Stays("the audit log is never changed: it says who did what")
)
# Signed with a key of the installation: it does not move, the application makes new ones.
LINKS = _by_tenant("portal_link", "id", OfTenant(("erase_portal_links_of",)))

# A tenant that has no row in any of these has none at all, except in the audit log.
ROOTS = (
    "subscription",
    "endpoint",
    "event_key",
    "ledger",
    "api_key",
    "notice_target",
    "erasure",
    "pull_stream",
    "signing_keys",
    "event_type",
    "portal_settings",
    "cause",
)
