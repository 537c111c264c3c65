"""Sends notices to people, as messages; in a fleet only the maintenance leader sends them.

A message gets its id and its records in a commit before it is sent, and keeps them until it has
arrived: a message that is sent again, after a failure or a crash, has the same id. Notices have
their own slots, divided among tenants like those of deliveries; e-mail and HTTP have separate
slots. A target that does not respond holds one slot until the deadline. Each failure doubles the
target's wait, up to an hour (``policy/notices``, ``retry_wait_ms``). While no target exists, this
module does not use the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any

import structlog
from msgspec import Struct

from homing import __version__
from homing.engine.core import Core
from homing.engine.time_zones import zone_of
from homing.errors import HomingError, LostLeases
from homing.languages.sentences import say
from homing.model import Outcome, id_floor, show_id
from homing.policy import notice_text
from homing.policy.failure_text import failure_text
from homing.policy.notice_text import Message
from homing.policy.notices import (
    DAY_MS,
    EVERY_MS,
    OPERATOR,
    REMINDER_DAYS,
    Notice,
    NoticeKind,
    NoticeTarget,
    TargetKind,
    next_due,
    quiet_for_ms,
    retry_wait_ms,
)
from homing.policy.outcome import judge
from homing.policy.signature import Signer
from homing.policy.slots import FAILING, TRUSTED, LaneSlots
from homing.policy.url import parse_url
from homing.ports import Mail, Mailer, NoticeStore, Request, Response

log = structlog.get_logger("homing.notices")

HTTP_SLOTS = 32
MAIL_SLOTS = 4
DEADLINE_MS = 10_000
PAGE = 200  # targets that are read at a time
REMINDERS_AT_ONCE = 50
REMINDERS_EVERY_MS = 60_000
POLL_MS = 5_000  # in a fleet: other processes write records, too
POLL_ALONE_MS = 60_000
STOP_S = 1.0
AGAIN_MS = 5_000  # after a failure of the store
UNWRITTEN_MAX = 20  # notices of outages that wait for the store; older ones are left out

_NO_MAIL = say("this process cannot send e-mail: smtp_host is not set")


class NoticeOptions(Struct, frozen=True):
    """The URL of the dashboard, and the names that messages contain."""

    public_url: str = ""  # without a slash at the end; empty: notices have no links
    mail_domain: str = "homing.invalid"  # of Message-ID
    process: str = ""  # the name of this process, in notices of its outages


class NoticeSender:
    """The worker that sends messages to targets."""

    def __init__(
        self, core: Core, store: NoticeStore, mailer: Mailer | None, options: NoticeOptions
    ) -> None:
        self._core, self._store, self._mailer, self._options = core, store, mailer, options
        self._clock, self._ids, self._ownership = core.clock, core.ids, core.ownership
        self._pools: dict[bool, LaneSlots[int]] = {
            True: LaneSlots(MAIL_SLOTS),
            False: LaneSlots(HTTP_SLOTS),
        }
        self._targets: dict[int, NoticeTarget] = {}  # those that wait for a slot or hold one
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._reminded_at = 0
        self._unwritten: list[Notice] = []
        self._writing = False
        self._stopping = False

    def start(self) -> None:
        self._spawn(self._run())

    def wake(self) -> None:
        """Look for waiting records now."""
        self._woken.set()

    def begin_stop(self) -> None:
        """Start no more messages."""
        self._stopping = True
        self._woken.set()

    async def stop(self) -> None:
        """Stop within a second; the next start sends unfinished messages again."""
        self.begin_stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        for task in list(self._tasks):
            task.cancel()
        if self._mailer is not None:
            await self._mailer.close()

    # --- the loop ----------------------------------------------------------------------------

    async def _run(self) -> None:
        wait_ms = 0
        while not self._stopping:
            await self._rest(wait_ms)
            if not self._is_at_work():
                wait_ms = self._poll_ms()
                continue
            try:
                await self._remind()
                wait_ms = await self._look()
            except LostLeases:
                wait_ms = self._poll_ms()
            except HomingError as error:
                log.warning("waiting notices could not be read; trying again", error=str(error))
                wait_ms = AGAIN_MS
            except Exception:  # A bug must not end the worker.
                log.exception("waiting notices could not be read; trying again")
                wait_ms = AGAIN_MS

    def _is_at_work(self) -> bool:
        leads = self._ownership.is_maintenance_leader
        return self._core.catalog.has_notice_targets and leads and not self._stopping

    def _poll_ms(self) -> int:
        return POLL_MS if self._ownership.fenced else POLL_ALONE_MS

    async def _rest(self, wait_ms: int) -> None:
        if wait_ms > 0:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                pass
        self._woken.clear()

    async def _remind(self) -> None:
        """Write the reminders that have become due."""
        now = self._clock.now()
        if 0 <= now - self._reminded_at < REMINDERS_EVERY_MS:
            return
        for days in REMINDER_DAYS:
            more = True
            while more:
                more = await self._store.write_reminders(
                    days=days,
                    bound_id=id_floor(max(now - days * DAY_MS, 0)),
                    ids=[self._ids.take(now) for _ in range(REMINDERS_AT_ONCE)],
                    now=now,
                    epoch=self._ownership.fence(0),
                )
        self._reminded_at = now

    async def _look(self) -> int:
        """Queue the due targets for slots; return the time until the next target is due."""
        wait_ms, after_id = self._poll_ms(), 0
        while page := await self._store.targets_to_send(after_id=after_id, limit=PAGE):
            now = self._clock.now()
            for target in page:
                if target.id in self._targets:
                    continue
                due_in = next_due(target, now=now, quiet_until=self._quiet_until(target)) - now
                if due_in > 0:
                    wait_ms = min(wait_ms, due_in)
                else:
                    self._add(target)
            after_id = page[-1].id
            if len(page) < PAGE:
                break
        return wait_ms

    def _quiet_until(self, target: NoticeTarget) -> int | None:
        if not target.quiet_hours or target.confirmed_at is None:
            return None
        zone = zone_of(target.time_zone) or zone_of("UTC")
        assert zone is not None
        quiet_ms = quiet_for_ms(target.quiet_hours, zone, wall=self._clock.wall())
        return self._clock.now() + quiet_ms if quiet_ms > 0 else None

    # --- slots -------------------------------------------------------------------------------

    def _add(self, target: NoticeTarget) -> None:
        self._targets[target.id] = target
        pool = self._pools[_by_mail(target)]
        pool.add(target.tenant, target.id, _rank(target))
        self._start_next(pool)

    def _start_next(self, pool: LaneSlots[int]) -> None:
        while pool.free > 0 and not self._stopping:
            number = pool.next()
            if number is None:
                return
            target = self._targets[number]
            pool.discard(number)
            pool.take(target.tenant, _rank(target))
            self._spawn(self._send(pool, target))

    async def _send(self, pool: LaneSlots[int], target: NoticeTarget) -> None:
        try:
            await self._send_message(target)
        except LostLeases:
            log.info("this process stops sending notices: another process sends them now")
        except HomingError as error:
            shown = show_id("tgt", target.id)
            log.warning("notices wait for the store; trying again", target=shown, error=str(error))
            await asyncio.sleep(AGAIN_MS / 1000)
        except Exception:  # A bug: the target is tried again, and no other is held up.
            log.exception("a notice could not be sent", target=show_id("tgt", target.id))
            await asyncio.sleep(AGAIN_MS / 1000)
        finally:
            del self._targets[target.id]
            pool.give(target.tenant, _rank(target))
            self._start_next(pool)
            self.wake()

    # --- one message -------------------------------------------------------------------------

    async def _send_message(self, target: NoticeTarget) -> None:
        if target.confirmed_at is None:
            subject, text = notice_text.confirmation(target, public_url=self._options.public_url)
            error = await self._tried(target, self._mail(target, target.message_id, subject, text))
            await self._finish(target, target.message_id, error)
            return
        taken = await self._store.take_message(
            target.id,
            message_id=self._ids.take(self._clock.now()),
            epoch=self._ownership.fence(0),
        )
        if taken is None:
            return
        message = Message(taken.id, target, taken.notices, taken.more, self._options.public_url)
        error = await self._tried(target, self._deliver(message))
        await self._finish(target, taken.id, error, count=message.count)

    async def _tried(self, target: NoticeTarget, sending: Awaitable[str]) -> str:
        """Return "" if the message arrived, else the reason; a bug is one, and the wait grows."""
        try:
            return await sending
        except HomingError:
            raise
        except Exception as error:
            log.exception("a notice could not be sent", target=show_id("tgt", target.id))
            return say("internal error: {name}", name=type(error).__name__)

    async def _deliver(self, message: Message) -> str:
        """Send the message; returns "" if it arrived, otherwise the reason."""
        target = message.target
        match target.kind:
            case TargetKind.EMAIL:
                subject = notice_text.subject(message)
                return await self._mail(
                    target, message.id, subject, notice_text.plain_text(message)
                )
            case TargetKind.SLACK:
                body = notice_text.slack_body(notice_text.slack_text(message))
            case TargetKind.TEAMS:
                body = notice_text.teams_body(notice_text.teams_text(message))
            case TargetKind.WEBHOOK:
                body = notice_text.webhook_body(message)
        return await self._post(target, message.name, body)

    async def test(self, target: NoticeTarget) -> str:
        """Send a test notice at once; returns "" if it arrived, otherwise the reason."""
        number = self._ids.take(self._clock.now())
        text, name = notice_text.test_text(target), show_id("msg", number)
        match target.kind:
            case TargetKind.EMAIL:
                subject = notice_text.test_subject(target)
                return await self._mail(target, number, subject, text)
            case TargetKind.SLACK:
                body = notice_text.slack_body(text)
            case TargetKind.TEAMS:
                body = notice_text.teams_body(text)
            case TargetKind.WEBHOOK:
                body = notice_text.test_body(name, text)
        return await self._post(target, name, body)

    async def _mail(self, target: NoticeTarget, number: int, subject: str, text: str) -> str:
        if self._mailer is None:
            return _NO_MAIL
        name = f"{show_id('msg', number)}@{self._options.mail_domain}"
        language = notice_text.language_of(target).code
        mail = Mail(target.address, subject, text, name, self._clock.wall(), language)
        return await self._mailer.send(mail)

    async def _post(self, target: NoticeTarget, name: str, body: bytes) -> str:
        wall = self._clock.wall()
        lines = [
            b"content-type: application/json\r\n",
            b"user-agent: homing/" + __version__.encode() + b"\r\n",
        ]
        if target.kind is TargetKind.WEBHOOK:
            number, timestamp = name.encode(), b"%d" % (wall // 1000)
            signature = Signer(target.secret).sign(number, timestamp, body)
            lines += [
                b"webhook-id: " + number + b"\r\n",
                b"webhook-timestamp: " + timestamp + b"\r\n",
                b"webhook-signature: " + signature + b"\r\n",
            ]
        url = parse_url(target.address)[1]
        request = Request(target.tenant, url, b"".join(lines), body, DEADLINE_MS)
        responded: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def done(response: Response) -> None:
            if not responded.done():
                responded.set_result(response)

        self._core.sender.send(request, done)
        response = await responded
        if judge(response.code, response.failure) is Outcome.DELIVERED:
            return ""
        return failure_text(response.code, response.failure, response.detail)

    async def _finish(
        self, target: NoticeTarget, message_id: int, error: str, *, count: int = 0
    ) -> None:
        if error:
            await self._failed(target, message_id, error)
            return
        now = self._clock.now()
        await self._store.message_sent(
            target.id,
            message_id,
            now=now,
            due_at=now + EVERY_MS[target.kind],
            epoch=self._ownership.fence(0),
        )
        log.info(
            "notices sent",
            target=show_id("tgt", target.id),
            kind=target.kind.value,
            message=show_id("msg", message_id),
            notices=count,
        )

    async def _failed(self, target: NoticeTarget, message_id: int, error: str) -> None:
        wait_ms, error = retry_wait_ms(target.attempts + 1), str(error)
        await self._store.message_failed(
            target.id,
            message_id,
            error=error,
            due_at=self._clock.now() + wait_ms,
            epoch=self._ownership.fence(0),
        )
        log.warning(
            "notices could not be sent; they will be tried again",
            target=show_id("tgt", target.id),
            kind=target.kind.value,
            error=error,
            wait_s=wait_ms // 1000,
        )

    async def write(self, notices: Sequence[Notice]) -> None:
        """Write records of these notices, unless they exist, and send them."""
        await self._store.write_notices(notices)
        self.wake()

    # --- outages of the sender ---------------------------------------------------------------

    def outage_changed(self, kind: NoticeKind, facts: dict[str, Any]) -> None:
        """Write the notice of an outage of this process, or wait until the store can write it."""
        if not self._core.catalog.has_notice_targets:
            return
        now = self._clock.now()
        facts = {**facts, "process": self._options.process}
        self._unwritten.append(Notice(self._ids.take(now), kind, now, OPERATOR, facts=facts))
        del self._unwritten[:-UNWRITTEN_MAX]
        if not self._writing:
            self._writing = True
            self._spawn(self._write_outages())

    async def _write_outages(self) -> None:
        try:
            while self._unwritten:
                waiting = list(self._unwritten)
                try:
                    await self._store.write_notices(waiting)
                except HomingError:
                    await asyncio.sleep(AGAIN_MS / 1000)
                    continue
                self._unwritten = [it for it in self._unwritten if it not in waiting]
                self.wake()
        finally:
            self._writing = False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _by_mail(target: NoticeTarget) -> bool:
    return target.kind is TargetKind.EMAIL


def _rank(target: NoticeTarget) -> int:
    return FAILING if target.attempts else TRUSTED
