"""Commands on the targets of notices: create, change, rotate, delete, confirm, test."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from homing.engine.core import Core
from homing.engine.notice_sender import NoticeSender
from homing.engine.settle import Settler
from homing.errors import Conflict, NotFound, TooMany
from homing.languages.sentences import say
from homing.policy.notices import (
    OPERATOR,
    NoticeRecord,
    NoticeTarget,
    TargetDraft,
    TargetKind,
    address_hash,
)
from homing.policy.signature import new_secret
from homing.ports import NoticeStore

SECRET_BYTES = 32
TESTS_AT_ONCE = 4  # of one tenant: nobody waits for an address of somebody else
TEST_EVERY_MS = 10_000  # for one target
TESTED_MAX = 1_000  # targets whose last test is remembered


class NoticeTargets:
    """Targets. Every process knows of a new target before its creation is confirmed."""

    def __init__(
        self, core: Core, store: NoticeStore, sender: NoticeSender, settler: Settler
    ) -> None:
        self._core, self._store, self._sender, self._settler = core, store, sender, settler
        self._tests: Counter[str] = Counter()  # under way, by tenant
        self._tested: dict[int, int] = {}  # target → when it was last tested

    async def create(self, draft: TargetDraft) -> NoticeTarget:
        """Raises TooMany. A tenant's e-mail address gets no notice before it is confirmed."""
        now, by_mail = self._core.clock.now(), draft.kind is TargetKind.EMAIL
        number = self._core.ids.take(now)
        secret = secrets.token_urlsafe(SECRET_BYTES) if by_mail else _signing_secret()
        must_confirm = by_mail and draft.tenant != OPERATOR
        target = NoticeTarget(
            id=number,
            tenant=draft.tenant,
            kind=draft.kind,
            name=draft.name,
            address=draft.address,
            secret=secret,
            kinds=draft.kinds,
            quiet_hours=draft.quiet_hours,
            time_zone=draft.time_zone,
            language=draft.language,
            created_at=now,
            confirmed_at=None if must_confirm else now,
            message_id=number if must_confirm else 0,
        )
        async with self._settler.lock:  # A batch that is decided without targets is written first.
            version = await self._store.create_target(
                target, address=address_hash(target.address), secret=address_hash(secret), now=now
            )
            await self._core.catalog.refresh()
        await self._core.grace.changed(version)
        self._sender.wake()
        return target

    async def change(
        self, target_id: int, draft_of: Callable[[NoticeTarget], TargetDraft]
    ) -> NoticeTarget:
        """Replace its name, kinds, quiet hours and language; raises NotFound."""
        before = await self.get(target_id)
        draft = draft_of(before)
        changed = await self._store.change_target(
            replace(
                before,
                name=draft.name,
                kinds=draft.kinds,
                quiet_hours=draft.quiet_hours,
                time_zone=draft.time_zone,
                language=draft.language,
            )
        )
        if changed is None:
            raise NotFound
        self._sender.wake()
        return changed

    async def rotate(self, target_id: int) -> NoticeTarget:
        """Sign with a new secret from now on; raises NotFound, or Conflict if it has none."""
        target = await self.get(target_id)
        if target.kind is not TargetKind.WEBHOOK:
            raise Conflict(say("Only a target of kind webhook has a secret."))
        target = replace(target, secret=_signing_secret())
        if not await self._store.change_secret(target, secret=address_hash(target.secret)):
            raise NotFound
        return target

    async def send_link(self, target_id: int) -> NoticeTarget:
        """Send again the link that confirms it; raises NotFound, Conflict or TooMany."""
        target, now = await self.get(target_id), self._core.clock.now()
        message_id = self._core.ids.take(now)
        if not await self._store.send_link_again(target_id, message_id=message_id, now=now):
            raise Conflict(say("This target needs no link: it gets notices already."))
        self._sender.wake()
        return target

    async def delete(self, target_id: int) -> None:
        """Nothing is sent to it any more, except a message that is being sent; raises NotFound."""
        async with self._settler.lock:
            version = await self._store.delete_target(target_id, now=self._core.clock.now())
            if version is None:
                raise NotFound
            await self._core.catalog.refresh()
        await self._core.grace.changed(version)

    async def confirm(self, token: str) -> NoticeTarget:
        """The target gets the notices from now on; raises NotFound for an unknown token."""
        found = await self._store.confirm_target(token, now=self._core.clock.now())
        if found is None:
            raise NotFound(say("This link is not valid, or the address is confirmed already."))
        return found

    async def test(self, target_id: int) -> tuple[NoticeTarget, str]:
        """Send a test notice; the target, and the reason if it did not arrive."""
        target = await self.get(target_id)
        if target.confirmed_at is None:
            raise Conflict(say("This address is not confirmed: open the link in the e-mail first."))
        now = self._core.clock.now()
        wait_ms = self._tested.get(target_id, 0) + TEST_EVERY_MS - now
        if 0 < wait_ms <= TEST_EVERY_MS:
            raise TooMany(say("A target is tested at most once in ten seconds."), after_ms=wait_ms)
        if self._tests[target.tenant] >= TESTS_AT_ONCE:
            detail = say(
                "{n} tests of notice targets of this tenant are under way: try again in a moment.",
                n=TESTS_AT_ONCE,
            )
            raise TooMany(detail, after_ms=TEST_EVERY_MS)
        if len(self._tested) >= TESTED_MAX:
            self._tested.clear()
        self._tested[target_id] = now
        self._tests[target.tenant] += 1
        try:
            return target, await self._sender.test(target)
        finally:
            self._tests -= Counter((target.tenant,))

    async def get(self, target_id: int) -> NoticeTarget:
        found = await self._store.target(target_id)
        if found is None:
            raise NotFound
        return found

    async def page(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[NoticeTarget], int | None]:
        return await self._store.targets(tenant=tenant, before_id=before_id, limit=limit)

    async def records(
        self, *, owner: str | None, target_id: int | None, before_id: int | None, limit: int
    ) -> tuple[list[NoticeRecord], int | None]:
        return await self._store.notices(
            owner=owner, target_id=target_id, before_id=before_id, limit=limit
        )


def _signing_secret() -> str:
    return new_secret(secrets.token_bytes(SECRET_BYTES))
