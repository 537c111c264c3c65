"""Notices to people: the targets that get them, and the records of what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.counted_calls import CountedCalls
from homing.app.options import AppOptions
from homing.engine.engine import Engine
from homing.engine.time_zones import zone_of
from homing.errors import Invalid, NotFound
from homing.languages.sentences import say
from homing.model import show_id
from homing.policy.admission import tenant_problem
from homing.policy.audit import Who
from homing.policy.notices import (
    OPERATOR,
    NoticeRecord,
    NoticeTarget,
    TargetDraft,
    check_target,
)
from homing.ports.audit import acting, note_changed

TOKEN_CHARS_MAX = 100
CONFIRM = "notice_targets.confirm"


class NoticeTargets:
    """The targets of all tenants, and those of the operator."""

    def __init__(self, engine: Engine, options: AppOptions, counted: CountedCalls) -> None:
        self._engine, self._options, self._counted = engine, options, counted

    @use_case(MANAGERS, changes=True)
    async def create(
        self, caller: Caller, draft: TargetDraft, *, tenant: str | None, operator: bool
    ) -> NoticeTarget:
        """Creates a target of a tenant or of the operator; raises Invalid, Forbidden or TooMany.

        An e-mail address of a tenant first gets an e-mail with a link; it gets notices only after a
        person has confirmed it there.
        """
        owner = OPERATOR if operator else caller.tenant_or_default(tenant)
        caller.must_write(owner)
        problems = () if operator else tuple(tenant_problem(owner))
        try:
            checked = check_target(
                replace(draft, tenant=owner),
                refuses=lambda target: self._options.refusal(
                    target, caller=caller, tenant=owner, url=target.authority
                ),
                is_zone=_is_zone,
                mail_problem=self._options.mail_problem,
            )
        except Invalid as error:
            raise Invalid(problems=(*problems, *error.problems)) from None
        if problems:
            raise Invalid(problems=problems)
        return await self._engine.notice_targets.create(checked)

    @use_case(READERS)
    async def page(
        self, caller: Caller, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[NoticeTarget], int | None]:
        """A page, newest first, and the next ``before_id``."""
        return await self._engine.notice_targets.page(
            tenant=caller.scope(tenant), before_id=before_id, limit=limit
        )

    @use_case(READERS)
    async def get(self, caller: Caller, target_id: int) -> NoticeTarget:
        """The target; raises NotFound."""
        return await self._visible(caller, target_id)

    @use_case(MANAGERS, changes=True)
    async def change(
        self, caller: Caller, target_id: int, changes: Mapping[str, Any]
    ) -> NoticeTarget:
        """Changes fields of a target, not its kind and address; raises NotFound or Invalid."""
        await self._visible(caller, target_id)

        def draft_of(before: NoticeTarget) -> TargetDraft:
            draft = TargetDraft(
                tenant=before.tenant,
                kind=before.kind,
                address=before.address,
                name=before.name,
                kinds=before.kinds,
                quiet_hours=before.quiet_hours,
                time_zone=before.time_zone,
                language=before.language,
            )
            return check_target(
                replace(draft, **changes),
                refuses=lambda _: "",  # The address stays; every request to it is checked.
                is_zone=_is_zone,
                mail_problem="",
            )

        return await self._engine.notice_targets.change(target_id, draft_of)

    @use_case(MANAGERS, changes=True)
    async def rotate(self, caller: Caller, target_id: int) -> NoticeTarget:
        """Replaces the secret of a webhook; raises NotFound, or Conflict for another kind."""
        await self._visible(caller, target_id)
        note_changed("secret")
        return await self._engine.notice_targets.rotate(target_id)

    @use_case(MANAGERS, changes=True)
    async def send_link(self, caller: Caller, target_id: int) -> NoticeTarget:
        """Sends again the link that confirms an e-mail address.

        Raises NotFound, Conflict for a target that needs no link, or TooMany.
        """
        await self._visible(caller, target_id)
        return await self._engine.notice_targets.send_link(target_id)

    @use_case(MANAGERS, changes=True)
    async def delete(self, caller: Caller, target_id: int) -> None:
        """Deletes a target with its address; raises NotFound."""
        await self._visible(caller, target_id)
        await self._engine.notice_targets.delete(target_id)

    @use_case(MANAGERS)
    async def test(self, caller: Caller, target_id: int) -> tuple[NoticeTarget, str]:
        """Sends a test notice now: the target, and why it did not arrive (empty: it did).

        Raises NotFound, Conflict for an address that is not confirmed, or TooMany.
        """
        target = await self._visible(caller, target_id)
        sent = await self._engine.notice_targets.test(target_id)
        tenant = None if target.tenant == OPERATOR else target.tenant
        object_id = show_id("tgt", target_id)
        self._counted.changed(caller, NoticeTargets.test, tenant=tenant, object_id=object_id)
        return sent

    @use_case(READERS)
    async def records(
        self,
        caller: Caller,
        *,
        tenant: str | None,
        target_id: int | None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[NoticeRecord], int | None]:
        """The records of targets, newest first, and the next ``before_id``."""
        return await self._engine.notice_targets.records(
            owner=caller.scope(tenant), target_id=target_id, before_id=before_id, limit=limit
        )

    async def confirm(self, token: str, source: str = "") -> NoticeTarget:
        """Confirms an e-mail address by the token of its link; raises NotFound. Needs no key."""
        if not token or len(token) > TOKEN_CHARS_MAX:
            raise NotFound(say("This link is not valid."))
        with acting(Who("the link in an e-mail", tenant="", address=source), CONFIRM):
            return await self._engine.notice_targets.confirm(token)

    async def _visible(self, caller: Caller, target_id: int) -> NoticeTarget:
        try:
            target = await self._engine.notice_targets.get(target_id)
        except NotFound:
            target = None
        if target is None or not caller.sees(target.tenant):
            raise NotFound(say("There is no such notice target."))
        return target


def _is_zone(name: str) -> bool:
    return zone_of(name) is not None
