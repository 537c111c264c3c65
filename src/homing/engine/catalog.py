"""All subscriptions in memory: publishing matches events against them, attempts use their settings.

The store raises a version with every change. A change is answered when every process acts on its
version (``engine/grace_period``): a subscription that was just created is never missed. No version
is used in two histories of a database (``store/catalog_versions``): after a failover that lost
changes, everything is read again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

import structlog
from msgspec.structs import replace

from homing.model import NOT_BOUND, Order, SigningKeys, Subscription
from homing.policy.admission import EventDraft
from homing.policy.hash_keys import HashKey
from homing.policy.match import Index
from homing.policy.retry import Schedule
from homing.policy.signature import TenantSigner
from homing.policy.wants import (
    AT_ONCE_STEPS,
    BYTES_A_STEP,
    TenantWants,
    picked,
    picked_whole,
    wants_of,
)
from homing.ports import CATALOG_GAP, AdminStore, CatalogNotes
from homing.ports.erasures import TenantChanges
from homing.ports.tenant_moves import TenantMove

T = TypeVar("T")

log = structlog.get_logger("homing.catalog")

PAGE = 100  # subscriptions that are read, and whose secrets are opened, in one turn of the loop
TURN = 100  # subscriptions that are added or replaced in one turn


async def _in_turns(items: Sequence[T]) -> AsyncIterator[T]:
    """Each of them, in several turns of the loop."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % TURN:
            await asyncio.sleep(0)


class Catalog:
    """All subscriptions that are not deleted, as of ``version``."""

    def __init__(self, admin: AdminStore) -> None:
        self._admin = admin
        self._index = Index()
        self._by_id: dict[int, Subscription] = {}
        self.with_certificate: dict[int, Subscription] = {}  # those with a client certificate
        self.get = self._by_id.get  # a subscription by its id; None if it is deleted
        self._at_endpoint: Counter[int] = Counter()  # number of subscriptions by endpoint
        self._paused_at: dict[int, frozenset[int]] = {}  # paused subscriptions by endpoint
        self.paused: dict[int, Subscription] = {}  # by id
        # Called for an endpoint with paused subscriptions, and when the last of them is resumed.
        self.on_paused: Callable[[Subscription], None] = lambda _subscription: None
        self.pulled: set[int] = set()  # subscriptions without a URL: their events are read
        self.ordered: set[int] = set()  # subscriptions with an order by key
        self._twins: dict[int, int] = {}  # subscription → the one that sends its old version
        self.on_twin: Callable[[Subscription], None] = lambda _twin: None  # it was added or changed
        self._wants: dict[str, TenantWants] = {}  # by tenant: only subscriptions with conditions
        self._changed: dict[str, int] = {}  # by tenant: the version of its last change
        # The policies by name; those that are no longer in the settings are added, and noted with
        # the subscriptions that use them.
        self.schedules: dict[str, Schedule] | None = None
        self.kept_policies: dict[str, set[int]] = {}
        self._signing_keys: dict[str, SigningKeys] = {}
        self._signers: dict[str, TenantSigner] = {}
        self.signer_of = self._signers.get  # by tenant; None if it has no signing keys
        self.version = 0
        self.has_notice_targets = False  # whether people get notices
        self.knows_erased_ids = False  # whether publishes must look for the ids of erased events
        self._erased: dict[str, int] = {}  # by tenant: the version of its last erasure
        # Some data of a tenant was erased, or everything up to an id (0: not everything).
        self.on_erased: Callable[[str, bool], None] = lambda _tenant, _everything: None
        self.event_types: dict[str, int] = {}  # by tenant that has event types: their version
        # Tenants that move to or from another installation, or were moved: not served here.
        self.moves: dict[str, TenantMove] = {}
        self.on_move: Callable[[str], None] = lambda _tenant: None  # a move begins, goes on or ends
        # Called with the version that was known here and the one that the store has instead.
        self.on_lost: Callable[[int, int], None] = lambda _known, _found: None
        # Called with all keys of keyed hashes: a tenant that moves in brings its own.
        self.on_hash_keys: Callable[[Sequence[HashKey]], None] = lambda _keys: None
        self._reading = asyncio.Lock()
        self._asked = self._answered = 0  # calls of ``refresh``

    def twin(self, subscription_id: int) -> Subscription | None:
        """The subscription that sends the old version of this one, if there is one."""
        twin_id = self._twins.get(subscription_id)
        return None if twin_id is None else self._by_id.get(twin_id)

    def rate_of(self, subscription_id: int) -> float | None:
        subscription = self._by_id.get(subscription_id)
        return subscription.rate_per_second if subscription is not None else None

    def is_alone_at(self, endpoint_id: int) -> bool:
        """Whether at most one subscription has this endpoint."""
        return self._at_endpoint[endpoint_id] <= 1

    def paused_at(self, endpoint_id: int) -> frozenset[int]:
        """The subscriptions of an endpoint that their owners have paused."""
        return self._paused_at.get(endpoint_id, frozenset())

    def all_paused_at(self, endpoint_id: int) -> bool:
        """Whether an endpoint has subscriptions, and all of them are paused."""
        return 0 < self._at_endpoint[endpoint_id] <= len(self.paused_at(endpoint_id))

    def signing_keys(self, tenant: str) -> SigningKeys:
        """The signing keys of a tenant; of version 0 if it has none."""
        return self._signing_keys.get(tenant) or SigningKeys(tenant, ())

    def match(
        self,
        tenant: str,
        event_type: str,
        *,
        data: bytes,
        now: int,
        not_to_endpoint: int | None = None,
    ) -> list[Subscription]:
        """The subscriptions that an event goes to; raises OutOfSteps if matching takes long.

        A notice about an endpoint (``not_to_endpoint``) never goes to that endpoint, and is short
        enough to be matched at once.
        """
        found = self._index.match(tenant, event_type, not_to_endpoint=not_to_endpoint)
        wants = self._wants.get(tenant)
        if wants is None:
            return found
        if not_to_endpoint is None:
            return picked(found, wants, data, now=now)
        return picked_whole(found, wants, data, now=now)

    def of_type(self, tenant: str, event_type: str) -> list[Subscription]:
        """The subscriptions of a tenant to this type, whatever their filters."""
        return self._index.match(tenant, event_type)

    def names_type(self, event_type: str, *, tenant: str | None, tenants_max: int) -> bool | None:
        """Whether a subscription names this type; None: not all tenants were searched."""
        return self._index.names(event_type, tenant=tenant, tenants_max=tenants_max)

    def wants(self, tenant: str) -> TenantWants | None:
        """The conditions of a tenant's subscriptions beyond event types; None if there are none."""
        return self._wants.get(tenant)

    @property
    def filters(self) -> bool:
        """Whether any subscription has conditions beyond its event types."""
        return bool(self._wants)

    def steps(self, draft: EventDraft) -> int:
        """About how many steps it takes to match this event; 0 if its tenant has no conditions."""
        wants = self._wants.get(draft.tenant)
        if wants is None:
            return 0
        return min(wants.steps, AT_ONCE_STEPS) + len(draft.data) // BYTES_A_STEP

    def changed(self, tenant: str) -> int:
        """The version at which a subscription of this tenant changed last."""
        return self._changed.get(tenant, 0)

    def erased(self, tenant: str) -> int:
        """The version with which events of this tenant were erased last."""
        return self._erased.get(tenant, 0)

    async def refresh(self) -> None:
        """Read the changes since ``version``; calls that wait together share one read."""
        self._asked += 1
        mine = self._asked
        async with self._reading:  # One read at a time, so that no old state is kept.
            if self._answered < mine:
                asked = self._asked
                await self._refresh()
                self._answered = asked

    async def _refresh(self) -> None:
        # The version is read first, and kept although subscriptions may have later ones: a change
        # or an erasure in between is then read twice instead of missed.
        version = await self._admin.catalog_version()
        if not self._follows(version) and not await self._has_lost_nothing():
            await self._reload(version)
            return
        erased = None
        if version != self.version:  # The first erasure raises it from 0.
            erased = await self._tenant_changes(self.version)
        changed = await self._subscriptions_since(self.version)
        newest = changed[-1].version if changed else 0  # They are read in the order of versions.
        if newest >= version + CATALOG_GAP:  # A failover in between.
            await self._refresh()
            return
        moved = [] if erased is None else self._note_moves(erased.moves)
        await self._know_policies(changed)
        await self._put_all(changed)
        if erased is not None:
            self._forget_erased(erased)
        # After the subscriptions: each has the keys that it needs, and no change up to its version
        # is missed.
        if version != self.version:
            self._note(await self._admin.catalog_notes(self.version))
            for keys in await self._admin.signing_keys_since(self.version):
                self._signing_keys[keys.tenant] = keys
                self._signers[keys.tenant] = TenantSigner(keys.keys)
        self.version = version
        for tenant in moved:
            self.on_move(tenant)

    async def _tenant_changes(self, version: int) -> TenantChanges:
        found = await self._admin.tenant_changes(version)
        if found.hash_keys:
            self.on_hash_keys(found.hash_keys)
        self.knows_erased_ids = found.ids
        return found

    async def _has_lost_nothing(self) -> bool:
        """Whether the large step of the version is the first one since the version that is known.

        The server was started again: up to the version that it found, nothing is lost.
        """
        base = (await self._admin.catalog_notes(self.version)).base
        return base is not None and self._follows(base)

    async def _subscriptions_since(self, version: int) -> list[Subscription]:
        """Those that changed after this version, read in pages: publishes go on meanwhile."""
        found: list[Subscription] = []
        after_id = NOT_BOUND
        while True:
            page = await self._admin.subscriptions_since(version, after_id=after_id, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found
            version, after_id = page[-1].version, page[-1].id

    async def _put_all(self, subscriptions: Sequence[Subscription]) -> None:
        """Put them in several turns of the loop.

        A publish in between may be matched with some of them: nobody was told yet that this
        process acts on their changes.
        """
        async for subscription in _in_turns(subscriptions):
            self._put(subscription)

    def _follows(self, version: int) -> bool:
        """Whether only changes lie between the version that is known and this one."""
        return self.version <= version < self.version + CATALOG_GAP

    async def _reload(self, version: int) -> None:
        """Read everything again: the store may have lost changes that are known here.

        Nothing is forgotten before all of it is read: an unknown subscription counts as deleted.
        The version is the store's own, not the highest of a subscription.
        """
        erased = await self._tenant_changes(0)
        subscriptions = await self._subscriptions_since(0)
        keys = await self._admin.signing_keys_since(0)
        notes = await self._admin.catalog_notes(0)
        await self._know_policies(subscriptions)
        there = {it.id async for it in _in_turns(subscriptions)}
        known = list(self._by_id)  # Not the old values: they would all be freed in one turn.
        gone = [self._by_id[it] async for it in _in_turns(known) if it not in there]
        await self._put_all([replace(it, deleted_at=it.updated_at) async for it in _in_turns(gone)])
        moved = self._note_moves(erased.moves)
        await self._put_all(subscriptions)
        self._forget_erased(erased)
        self._signing_keys.clear()
        self._signers.clear()
        for one in keys:
            self._signing_keys[one.tenant] = one
            self._signers[one.tenant] = TenantSigner(one.keys)
        self.event_types.clear()
        self._note(notes)
        before, self.version = self.version, version
        for tenant in moved:
            self.on_move(tenant)
        if before > (version if notes.base is None else notes.base):
            self.on_lost(before, version)

    async def _know_policies(self, subscriptions: Sequence[Subscription]) -> None:
        """Read the numbers of policies that these subscriptions use and the settings lack.

        Before the subscriptions are known: nothing is sent under another policy.
        """
        if self.schedules is None:
            return
        names = {
            it.policy
            async for it in _in_turns(subscriptions)
            if it.policy and it.deleted_at is None
        }
        lacking = names - self.schedules.keys()
        if not lacking:
            return
        stored = await self._admin.policies()
        for name in lacking:
            self.kept_policies.setdefault(name, set())
            if name in stored:
                self.schedules[name] = stored[name]
                log.warning(
                    "a policy that subscriptions use is not in the settings: its last known "
                    "numbers apply until it is there again, or they use another one",
                    policy=name,
                )
            else:
                log.error(
                    "the numbers of a policy that subscriptions use are not known, so the default "
                    "applies: put it into the settings and restart",
                    policy=name,
                )

    def _note(self, notes: CatalogNotes) -> None:
        self.has_notice_targets = notes.has_notice_targets
        for tenant, version, types in notes.event_types:
            if types:
                self.event_types[tenant] = version
            else:
                self.event_types.pop(tenant, None)

    def _put(self, subscription: Subscription) -> None:
        """Add, replace or remove a subscription."""
        move = self.moves.get(subscription.tenant) if self.moves else None
        if move is not None and move.is_absent and subscription.deleted_at is None:
            subscription = replace(subscription, deleted_at=subscription.updated_at)
        self._index.remove(subscription.id)
        self._want(subscription)
        self._pair(subscription)
        self._changed[subscription.tenant] = max(
            subscription.version, self.changed(subscription.tenant)
        )
        self.pulled.discard(subscription.id)
        self.ordered.discard(subscription.id)
        before = self._by_id.pop(subscription.id, None)
        if self.kept_policies:
            self._note_policy(before, subscription)
        self.with_certificate.pop(subscription.id, None)
        if before is not None:
            self._at_endpoint[before.endpoint_id] -= 1
            if not self._at_endpoint[before.endpoint_id]:
                del self._at_endpoint[before.endpoint_id]
        if subscription.deleted_at is None:
            self._by_id[subscription.id] = subscription
            if not subscription.endpoint_id:
                self.pulled.add(subscription.id)
            if subscription.order is not Order.NONE:
                self.ordered.add(subscription.id)
            if subscription.client_certificate is not None:
                self.with_certificate[subscription.id] = subscription
            self._at_endpoint[subscription.endpoint_id] += 1
            self._index.add(subscription)
        self._note_pauses(before, subscription)

    def _note_policy(self, before: Subscription | None, after: Subscription) -> None:
        if before is not None and before.policy in self.kept_policies:
            self.kept_policies[before.policy].discard(before.id)
        if after.deleted_at is None and after.policy in self.kept_policies:
            self.kept_policies[after.policy].add(after.id)

    def _note_pauses(self, before: Subscription | None, after: Subscription) -> None:
        """Note whether a subscription is paused, and report where that matters."""
        is_paused = after.deleted_at is None and after.paused_since is not None
        if is_paused:
            self.paused[after.id] = after
        else:
            self.paused.pop(after.id, None)
        was_at = None if before is None else before.endpoint_id
        touched = [it for it in (before, after) if it is not None and it.endpoint_id]
        if not is_paused and all(it.endpoint_id not in self._paused_at for it in touched):
            return
        if was_at is not None and after.id in self.paused_at(was_at):
            left = self._paused_at.pop(was_at) - {after.id}
            if left:
                self._paused_at[was_at] = left
        if is_paused and after.endpoint_id:
            self._paused_at[after.endpoint_id] = self.paused_at(after.endpoint_id) | {after.id}
        for it in touched:
            self.on_paused(it)

    def check_moves(self, drafts: Iterable[EventDraft]) -> None:
        """Raises TenantMoving or TenantMoved for an event of a tenant that is not served here."""
        if self.moves:
            for draft in drafts:
                if (move := self.moves.get(draft.tenant)) is not None:
                    raise move.refusal()

    @property
    def is_copied(self) -> bool:
        """Whether rows of a tenant are being copied from or to another installation."""
        return any(not move.is_gone for move in self.moves.values())

    def of_tenant(self, tenant: str) -> list[Subscription]:
        """The subscriptions of a tenant."""
        return [it for it in self._by_id.values() if it.tenant == tenant]

    def _note_moves(self, moves: Sequence[TenantMove]) -> list[str]:
        """Note the tenants that move, and return those whose move has begun, gone on or ended.

        The subscriptions of tenants that belong elsewhere, or are not complete yet, are forgotten.
        """
        changed: list[str] = []
        before, self.moves = self.moves, {it.tenant: it for it in moves}
        for tenant in before.keys() | self.moves.keys():
            now = self.moves.get(tenant)
            if before.get(tenant) == now:
                continue
            if now is not None and now.is_absent:
                for subscription in self.of_tenant(tenant):
                    self._put(subscription)
                self._signing_keys.pop(tenant, None)
                self._signers.pop(tenant, None)
            changed.append(tenant)
        return changed

    def _forget_erased(self, erased: TenantChanges) -> None:
        """Remove the subscriptions of erased tenants; report tenants whose data was erased.

        None is made while its tenant is erased, so a later version tells those made afterwards.
        """
        if erased.everything:
            for subscription in list(self._by_id.values()):
                if subscription.version <= erased.everything.get(subscription.tenant, -1):
                    self._put(replace(subscription, deleted_at=subscription.updated_at))
            for tenant in erased.everything:
                self._signing_keys.pop(tenant, None)
                self._signers.pop(tenant, None)
                self.event_types.pop(tenant, None)
        for tenant, version in erased.since.items():
            self._erased[tenant] = version
            self.on_erased(tenant, tenant in erased.everything)

    def _pair(self, subscription: Subscription) -> None:
        """Add or remove the entry of a twin."""
        own = subscription.workfront
        if own is None or own.twin_of is None:
            return
        if subscription.deleted_at is None:
            self._twins[own.twin_of] = subscription.id
            self.on_twin(subscription)
        elif self._twins.get(own.twin_of) == subscription.id:
            del self._twins[own.twin_of]

    def _want(self, subscription: Subscription) -> None:
        """Compile the conditions of a subscription, or remove them."""
        tenant = subscription.tenant
        wants = wants_of(subscription) if subscription.deleted_at is None else None
        if wants is not None:
            self._wants.setdefault(tenant, TenantWants()).put(subscription.id, wants)
        elif known := self._wants.get(tenant):
            known.put(subscription.id, None)
            if not known:
                del self._wants[tenant]
