"""Calls that the audit log counts per minute, so that nobody can flood it.

These are changes that programs make all the time, such as acknowledging events, and refused calls.
A key and use case makes one entry in a minute, with the objects that were changed. Of one tenant
only the first few are told apart; a last one counts all others. Calls without a valid key make at
most one entry in a minute, with the addresses that made most of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from homing.app.access import Caller, action_of
from homing.app.throttle import network_of
from homing.errors import HomingError
from homing.policy.audit import AuditEntry, Who, before_and_after, digest_of, entry_key
from homing.ports.audit import AuditStore

log = structlog.get_logger("homing.audit")

EVERY_S = 60
OF_TENANT_MAX = 5  # entries of refusals in a minute, and one that counts the others
CHANGES_OF_TENANT_MAX = 50  # the same of changes
OBJECTS_MAX = 50  # that one entry names
TENANTS_MAX = 100  # whose refusals are told apart
ADDRESSES_MAX = 200  # counted in a minute
ADDRESSES_SHOWN = 20
UNWRITTEN_MAX = 10_000  # entries that wait for the store
WHY_CHARS_MAX = 200
SEVERAL, SEVERAL_KEYS = "several", "several keys"
ANONYMOUS = Who("nobody")


class _Count(Struct):
    """The calls of one key and use case; ``why`` they were refused, or what they changed."""

    who: Who
    action: str
    why: str = ""
    count: int = 0
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)  # object and detail


_Counts = dict[str | None, dict[tuple[object, ...], _Count]]  # by tenant


class CountedCalls:
    """Counts calls and writes them once a minute."""

    def __init__(
        self, store: AuditStore, key: bytes, take_id: Callable[[], tuple[int, int]]
    ) -> None:
        self._store, self._key, self._take_id = store, key, take_id
        self._refused: _Counts = {}
        self._changed: _Counts = {}  # Its tenants exist, so their number is bounded.
        self._anonymous: Counter[str] = Counter()  # by address
        self._reasons: Counter[str] = Counter()
        self._unwritten: list[AuditEntry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def changed(
        self,
        caller: Caller,
        use_case: Callable[..., Any],
        *,
        tenant: str | None,
        object_id: str,
        detail: str = "",
    ) -> None:
        """Count a call that has changed an object of this tenant."""
        found = self._changed.setdefault(tenant, {})
        action = action_of(use_case)
        one = _one(found, tenant, caller.who, action, of_tenant_max=CHANGES_OF_TENANT_MAX)
        one.count += 1
        place = (object_id, detail)
        if place not in one.changed and len(one.changed) >= OBJECTS_MAX:
            place = (SEVERAL, "")
        one.changed[place] += 1
        self._begin_minute()

    def refused(self, caller: Caller, use_case: Callable[..., Any] | None, why: str) -> None:
        """Count a refused call of a caller with a key."""
        action = SEVERAL if use_case is None else action_of(use_case)
        tenant: str | None = caller.tenant
        if tenant not in self._refused and len(self._refused) >= TENANTS_MAX:
            tenant = None
        found = self._refused.setdefault(tenant, {})
        one = _one(found, tenant, caller.who, action, of_tenant_max=OF_TENANT_MAX)
        if one.who.name == SEVERAL_KEYS:
            why = "The calls are counted in one entry: there were too many."
        one.why = one.why or str(why)[:WHY_CHARS_MAX]  # In the audit log, every text is English.
        one.count += 1
        self._begin_minute()

    def anonymous(self, source: str, why: str) -> None:
        """Count a call without a valid key."""
        address = network_of(source)
        if address not in self._anonymous and len(self._anonymous) >= ADDRESSES_MAX:
            address = "others"
        self._anonymous[address] += 1
        self._reasons[why] += 1
        self._begin_minute()

    def _begin_minute(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._end_minute)

    def _end_minute(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self.write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def write(self) -> None:
        """Write the counts; if that fails, they are written with those of the next minute."""
        entries = [*self._unwritten, *(self._signed(it) for it in self._entries())]
        self._refused, self._changed, self._unwritten = {}, {}, []
        self._anonymous, self._reasons = Counter(), Counter()
        if not entries:
            return
        try:
            await self._store.add_counted(entries)
        except HomingError as error:
            log.warning(
                "counted calls cannot be written into the audit log; they are tried again",
                entries=len(entries),
                error=str(error),
            )
            self._unwritten = [*entries, *self._unwritten][:UNWRITTEN_MAX]
            self._begin_minute()

    def _entries(self) -> Iterator[AuditEntry]:
        for counts in (self._refused, self._changed):
            for tenant, found in counts.items():
                for it in found.values():
                    number, now = self._take_id()
                    object_id, after = _shown(it.changed)
                    yield AuditEntry(
                        id=number,
                        at=now,
                        tenant=tenant,
                        who=it.who,
                        action=it.action,
                        object=object_id,
                        after=after,
                        refused=it.why,
                        count=it.count,
                    )
        if self._anonymous:
            number, now = self._take_id()
            most = dict(self._anonymous.most_common(ADDRESSES_SHOWN))
            _, after = before_and_after(None, {"addresses": most, "reasons": dict(self._reasons)})
            yield AuditEntry(
                id=number,
                at=now,
                tenant=None,
                who=ANONYMOUS,
                action="authenticate",
                after=after,
                refused="The calls had no valid key.",
                count=self._anonymous.total(),
            )

    def _signed(self, entry: AuditEntry) -> AuditEntry:
        return replace(entry, digest=digest_of(entry, entry_key(self._key, entry.id)))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.write()


def _one(
    found: dict[tuple[object, ...], _Count],
    tenant: str | None,
    who: Who,
    action: str,
    *,
    of_tenant_max: int,
) -> _Count:
    """The count of a key and use case; of several keys, once there are too many."""
    key: tuple[object, ...] = (who.key_id, who.name, who.person, action)
    if key not in found and len(found) >= of_tenant_max:
        key, who, action = (SEVERAL,), Who(SEVERAL_KEYS, tenant=tenant), SEVERAL
    return found.setdefault(key, _Count(who, action))


def _shown(changed: Counter[tuple[str, str]]) -> tuple[str, str]:
    """The object of an entry, if there is only one, and how often what was changed."""
    if not changed:
        return "", ""
    objects = {object_id for object_id, _ in changed}
    calls = {f"{one} {detail}".strip(): count for (one, detail), count in changed.items()}
    _, after = before_and_after(None, {"calls": calls})
    return objects.pop() if len(objects) == 1 else "", after
