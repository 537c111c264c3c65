"""The customer portal in the database: ``PortalStore``. Of secrets it holds the hashes only."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from homing.model import show_id
from homing.policy.audit import AuditDraft
from homing.policy.keys import Role
from homing.policy.portal import LINK, Logo, PortalLink, PortalSettings, Theme
from homing.store import audit as audit_log
from homing.store import erasures
from homing.store.tx import Db, Row, Tx, transaction

PAST_AT_ONCE = 100  # links that ended long ago, of which a new link removes so many at most
TOP_ID = (1 << 63) - 1  # above every id
SETTINGS = "portal"  # the object in the audit log


class Portal:
    """``PortalStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    @transaction()
    async def create_link(
        self,
        tx: Tx,
        link: PortalLink,
        *,
        max_live: int,
        now: int,
        forget_before: int,
        audit: AuditDraft | None = None,
    ) -> bool:
        await erasures.refuse_while_erased(tx, link.tenant)
        await tx.one("name_lock", name=f"portal links of {link.tenant}")
        await tx.all("portal_links_past", before=forget_before, limit=PAST_AT_ONCE)
        live = await tx.one("portal_links_live", tenant=link.tenant, now=now, limit=max_live)
        assert live is not None
        if live[0] >= max_live:
            return False
        await tx.insert("portal_link", [_link_row(link)])
        await audit_log.write(
            tx, audit, tenant=link.tenant, object_id=show_id(LINK, link.id), after=link
        )
        return True

    @transaction(read_only=True)
    async def link(self, tx: Tx, link_id: int) -> PortalLink | None:
        row = await tx.one("portal_link_by_id", id=link_id)
        return None if row is None else _link(row)

    @transaction()
    async def open_link(
        self,
        tx: Tx,
        link_id: int,
        *,
        given_hash: bytes,
        session_hash: bytes,
        now: int,
        audit: AuditDraft | None = None,
    ) -> PortalLink | None:
        row = await tx.one(
            "portal_link_open",
            id=link_id,
            given_hash=given_hash,
            session_hash=session_hash,
            now=now,
        )
        if row is None:
            return None
        link = _link(row)
        await audit_log.write(tx, audit, tenant=link.tenant, object_id=show_id(LINK, link.id))
        return link

    @transaction()
    async def revoke_link(
        self, tx: Tx, link_id: int, *, now: int, audit: AuditDraft | None = None
    ) -> PortalLink | None:
        await tx.all("sessions_raise")
        row = await tx.one("portal_link_revoke", id=link_id, now=now)
        if row is None:
            return None
        link = _link(row)
        await audit_log.write(
            tx, audit, tenant=link.tenant, object_id=show_id(LINK, link.id), before=link
        )
        return link

    @transaction()
    async def revoke_links_of(
        self, tx: Tx, tenant: str, *, now: int, audit: AuditDraft | None = None
    ) -> int:
        await tx.all("sessions_raise")
        revoked = await tx.all("portal_links_revoke_of", tenant=tenant, now=now)
        if revoked:
            await audit_log.write(
                tx, audit, tenant=tenant, object_id=SETTINGS, after={"links_revoked": len(revoked)}
            )
        return len(revoked)

    @transaction(read_only=True)
    async def links(
        self, tx: Tx, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[PortalLink], int | None]:
        bounds = {"before_id": TOP_ID if before_id is None else before_id, "limit": limit + 1}
        if tenant is None:
            found = await tx.all("portal_links_page", **bounds)
        else:
            found = await tx.all("portal_links_page_of", tenant=tenant, **bounds)
        page = [_link(row) for row in found[:limit]]
        return page, page[-1].id if len(found) > limit else None

    # --- how a portal looks ------------------------------------------------------------------

    @transaction(read_only=True)
    async def settings(self, tx: Tx, tenant: str) -> PortalSettings | None:
        row = await tx.one("portal_settings_of", tenant=tenant)
        return None if row is None else _settings(row)

    @transaction(read_only=True)
    async def logo(self, tx: Tx, tenant: str) -> Logo | None:
        return await _logo(tx, tenant)

    @transaction()
    async def set_settings(
        self,
        tx: Tx,
        settings: PortalSettings,
        *,
        logo: Logo | None,
        keeps_logo: bool,
        audit: AuditDraft | None = None,
    ) -> PortalSettings:
        await erasures.refuse_while_erased(tx, settings.tenant)
        row = await tx.one("portal_settings_of", tenant=settings.tenant)
        before = PortalSettings(tenant=settings.tenant) if row is None else _settings(row)
        if keeps_logo:
            logo = await _logo(tx, settings.tenant)
        stored = replace(
            settings,
            logo_type="" if logo is None else logo.type,
            logo_digest="" if logo is None else logo.digest,
            logo_bytes=0 if logo is None else len(logo.content),
        )
        values = msgspec.structs.asdict(stored) | {
            "frame_ancestors": msgspec.json.encode(stored.frame_ancestors).decode(),
            "theme": stored.theme.value,
            "logo": None if logo is None else logo.content,
        }
        await tx.all("portal_settings_set", **values)
        await audit_log.write(
            tx, audit, tenant=stored.tenant, object_id=SETTINGS, before=before, after=stored
        )
        return stored


async def _logo(tx: Tx, tenant: str) -> Logo | None:
    row = await tx.one("portal_logo_of", tenant=tenant)
    return None if row is None else Logo(row[0], bytes(row[1]))


def _link_row(it: PortalLink) -> Row:
    ends_at = it.opens_until if it.session_until is None else it.session_until
    return (
        it.id,
        it.tenant,
        it.role,
        it.subject,
        it.hash,
        it.made_by,
        it.key_id,
        it.created_at,
        it.opens_until,
        it.session_ms,
        it.opened_at,
        it.session_hash,
        it.session_until,
        it.revoked_at,
        ends_at,
    )


def _link(row: Row) -> PortalLink:
    return PortalLink(
        id=row[0],
        tenant=row[1],
        role=Role(row[2]),
        subject=row[3],
        hash=bytes(row[4]),
        made_by=row[5],
        key_id=row[6],
        created_at=row[7],
        opens_until=row[8],
        session_ms=row[9],
        opened_at=row[10],
        session_hash=None if row[11] is None else bytes(row[11]),
        session_until=row[12],
        revoked_at=row[13],
    )


def _settings(row: Row) -> PortalSettings:
    return PortalSettings(
        tenant=row[0],
        name=row[1],
        accent_color=row[2],
        header_color=row[3],
        theme=Theme(row[4]),
        frame_ancestors=msgspec.json.decode(row[5], type=tuple[str, ...]),
        logo_type=row[6],
        logo_digest=row[7],
        logo_bytes=row[8],
        updated_at=row[9],
    )
