"""Refused calls in the audit log: counted per minute, so that nobody can flood it.

Calls without a valid key make at most one entry in a minute, with the addresses that made most of
them. Calls that a key may not make are one entry per key, use case and minute; of one tenant only
the first few, and a last one counts all others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.app.access import Caller, action_of
from homing.app.throttle import network_of
from homing.errors import HomingError
from homing.policy.audit import AuditEntry, Who, before_and_after, digest_of, entry_key
from homing.ports.audit import AuditStore

log = structlog.get_logger("homing.audit")

EVERY_S = 60
OF_TENANT_MAX = 5  # entries in a minute, and one that counts the others
TENANTS_MAX = 100
ADDRESSES_MAX = 200  # counted in a minute
ADDRESSES_SHOWN = 20
WHY_CHARS_MAX = 200
SEVERAL = "several"
ANONYMOUS = Who("nobody")


class _Refused(Struct):
    """Refusals of one key and use case."""

    who: Who
    action: str
    why: str
    count: int = 0


class Refusals:
    """Counts refused calls and writes them once a minute."""

    def __init__(
        self, store: AuditStore, key: bytes, take_id: Callable[[], tuple[int, int]]
    ) -> None:
        self._store, self._key, self._take_id = store, key, take_id
        self._tenants: dict[str | None, dict[tuple[object, ...], _Refused]] = {}
        self._anonymous: Counter[str] = Counter()  # by address
        self._reasons: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def refused(self, caller: Caller, use_case: Callable[..., Any] | None, why: str) -> None:
        """Count a refused call of a caller with a key."""
        why = str(why)  # In the audit log, every text is English.
        action = SEVERAL if use_case is None else action_of(use_case)
        tenant: str | None = caller.tenant
        if tenant not in self._tenants and len(self._tenants) >= TENANTS_MAX:
            tenant = None
        found = self._tenants.setdefault(tenant, {})
        who = caller.who
        key: tuple[object, ...] = (who.key_id, who.name, who.person, action)
        if key not in found and len(found) >= OF_TENANT_MAX:
            key, who = (SEVERAL,), Who("several keys", tenant=tenant)
            action, why = SEVERAL, "The calls are counted in one entry: there were too many."
        one = found.setdefault(key, _Refused(who, action, why[:WHY_CHARS_MAX]))
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
        """Write the counts; if that fails, they are in the log of the process instead."""
        entries = [self._signed(it) for it in self._entries()]
        self._tenants, self._anonymous, self._reasons = {}, Counter(), Counter()
        if not entries:
            return
        try:
            await self._store.add_refusals(entries)
        except HomingError as error:
            count = sum(it.count for it in entries)
            log.warning("refused calls are not in the audit log", count=count, error=str(error))

    def _entries(self) -> Iterator[AuditEntry]:
        for tenant, found in self._tenants.items():
            for it in found.values():
                number, now = self._take_id()
                yield AuditEntry(
                    id=number,
                    at=now,
                    tenant=tenant,
                    who=it.who,
                    action=it.action,
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
