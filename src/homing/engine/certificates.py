"""Warns of client certificates that expire: 30, 7 and 1 day ahead, and when they have expired.

One process of a fleet does it, the maintenance leader, once an hour. A warning is an event of the
tenant and a notice to people. Both have an id that is made from the certificate and the number of
days, so a second process, or a second check on the same day, writes nothing new.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec
import structlog

from homing.engine.core import Core
from homing.engine.fan_out import rfc3339
from homing.errors import EventConflict, HomingError
from homing.languages.sentences import say
from homing.model import ID_BITS, Subscription, id_floor, id_time, show_id
from homing.policy.admission import EventDraft
from homing.policy.certificates import CertificateFacts, Warned, WatchedCertificate, facts_of
from homing.policy.notice_text import sentence
from homing.policy.notices import OPERATOR, Notice, NoticeKind

EVENT_TYPE = "homing.certificate.expiring"
AT_ONCE = 100  # warnings that are written together
AGAIN_MS = 60_000
SLICE = 100  # certificates that are read at a time

log = structlog.get_logger("homing.certificates")


class CertificateWatch:
    """The client certificates in use, and the warnings about them."""

    def __init__(
        self,
        core: Core,
        *,
        publish: Callable[[Sequence[EventDraft]], Awaitable[object]],
    ) -> None:
        self._catalog, self._clock = core.catalog, core.clock
        self._files, self._publish = core.options.certificates, publish
        self._facts: dict[int, tuple[int, CertificateFacts | None]] = {}  # by subscription
        self._key: tuple[int, int] | None = None
        self._watched: list[WatchedCertificate] = []
        self.tell: Callable[[Sequence[Notice]], Awaitable[None]] | None = None  # to people

    def watched(self) -> list[WatchedCertificate]:
        """Every client certificate of the installation, its tenants and its subscriptions.

        Pages ask for them often: they are looked at again after a change, or after a minute.
        """
        key = (self._catalog.version, self._clock.wall() // AGAIN_MS)
        if key != self._key:
            self._key, self._watched = key, self._look()
        return self._watched

    def _look(self) -> list[WatchedCertificate]:
        found = list(self._files())
        for it in self._catalog.with_certificate.values():
            if it.workfront is not None and it.workfront.twin_of is not None:
                continue
            facts = self._facts_of(it)
            found.append(
                WatchedCertificate(
                    it.tenant,
                    facts,
                    "" if facts is not None else say("the client certificate cannot be read"),
                    it.id,
                    it.endpoint_id,
                    it.url,
                )
            )
        return found

    def _facts_of(self, it: Subscription) -> CertificateFacts | None:
        """The facts of a subscription's certificate, which are read once."""
        known = self._facts.get(it.id)
        if known is None or known[0] != it.version:
            if len(self._facts) > 2 * len(self._catalog.with_certificate):
                self._facts.clear()  # Most are of subscriptions that are gone.
            known = self._facts[it.id] = it.version, facts_of(it)
        return known[1]

    async def every_hour(self) -> None:
        """Write the warnings that are due; a failure waits for the next hour."""
        try:
            await self.warn()
        except HomingError as error:
            log.warning(
                "warnings of certificates could not be written; trying again in an hour",
                error=str(error),
            )

    async def warn(self) -> None:
        """Write the warnings that are due and not yet written."""
        for count, sub in enumerate(list(self._catalog.with_certificate.values())):
            self._facts_of(sub)
            if count % SLICE == 0:  # To read many takes seconds.
                await asyncio.sleep(0)
        wall = self._clock.wall()
        due = []
        for it in self.watched():
            warned = it.warning(wall=wall)
            if it.tenant in self._catalog.moves:
                continue  # The other installation warns.
            if warned is not None and warned.is_due(wall=wall):
                due.append((it, warned))
        for begin in range(0, len(due), AT_ONCE):
            part = due[begin : begin + AT_ONCE]
            notices = [expiring_notice(it, warned, now=self._clock.now()) for it, warned in part]
            for (it, _), notice in zip(part, notices, strict=True):
                if it.tenant != OPERATOR:
                    await self._publish_once(expiring_event(it, notice))
            if self._catalog.has_notice_targets and self.tell is not None:
                await self.tell(notices)

    async def _publish_once(self, draft: EventDraft) -> None:
        with suppress(EventConflict):  # It was published before the URL changed.
            await self._publish([draft])


def expiring_notice(it: WatchedCertificate, warned: Warned, *, now: int) -> Notice:
    """The notice to people; its id is the same each time that it is made."""
    assert it.facts is not None
    facts = {
        "subject": it.facts.subject,
        "issuer": it.facts.issuer,
        "fingerprint": it.facts.fingerprint,
        "expires_at": it.facts.expires_at,
        "days": warned.days,
    }
    of = f"{it.facts.fingerprint} {it.tenant} {it.subscription_id} {it.file} {warned.days}"
    digest = int.from_bytes(hashlib.sha256(of.encode()).digest()[:8])
    number = id_floor(warned.since) + digest % (1 << ID_BITS)
    return Notice(number, NoticeKind.CERTIFICATE, now, it.tenant, it.endpoint_id, it.url, facts)


def expiring_event(it: WatchedCertificate, notice: Notice) -> EventDraft:
    """The event of the tenant that says the same as a notice."""
    facts, since = notice.facts, id_time(notice.id)
    data = {
        "subscription": show_id("sub", it.subscription_id) if it.subscription_id else None,
        "url": it.url or None,
        "subject": facts["subject"],
        "issuer": facts["issuer"],
        "fingerprint": facts["fingerprint"],
        "expires_at": rfc3339(facts["expires_at"]),
        "days": facts["days"],
        "explanation": str(sentence(notice)),
    }
    return EventDraft(
        tenant=it.tenant,
        type=EVENT_TYPE,
        data=msgspec.json.encode(data),
        key=show_id("crt", notice.id),
        time=rfc3339(since),
    )
