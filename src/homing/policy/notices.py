"""Notices to people: their kinds, who gets them, and when the next message may be sent.

A **notice** says that something changed: an endpoint was disabled, a first delivery was dropped. A
**target** is where people read notices: an e-mail address, a Slack or Teams channel, or a webhook
of their own. For every change and target there is one record. A message contains the records that
wait at that moment, one or many, so that many changes do not fill an inbox: a target gets at most
one e-mail in five minutes, and nothing during its quiet hours. A message that failed is sent again
after ``retry_wait_ms``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from homing.errors import FieldProblem, Invalid
from homing.languages.language import ENGLISH, LANGUAGES
from homing.languages.sentences import Sentence, say, unpack
from homing.model import State, Target, TextEnum
from homing.policy.url import parse_url

OPERATOR = ""  # stands in place of a tenant: the target belongs to the operator
DAY_MS = 86_400_000
REMINDER_DAYS = (1, 2, 3)

TARGETS_MAX = 20  # of a tenant
CREATED_A_DAY_MAX = 50  # targets of a tenant, deleted ones included
ADDRESS_A_DAY_MAX = 3  # new targets of a tenant with one e-mail address: each gets a confirmation
LINK_EVERY_MS = 300_000  # a link that is sent again, of one tenant to one e-mail address
WAITING_MAX = 1_000  # records that wait for one target; further ones are only counted
MESSAGE_NOTICES_MAX = 2_000  # records in one message
NAME_CHARS_MAX = 100

RETRY_FIRST_MS = 30_000
RETRY_MAX_MS = 3_600_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_MAIL = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@"
    r"(?=.{1,189}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)


class NoticeKind(TextEnum):
    """What a notice is about."""

    WARNING = "warning"
    DISABLED = "disabled"
    FROZEN = "frozen"
    REMINDER = "reminder"  # disabled or frozen for one, two or three days
    RECOVERED = "recovered"
    FIRST_DROP = "first_drop"
    CERTIFICATE = "certificate"  # a client certificate expires soon, or has expired
    GONE = "gone"  # a receiver responded with 410, and its subscription is inactive
    OUTAGE = "outage"  # of the sender; to the operator only
    OUTAGE_OVER = "outage_over"
    COMMITS_LOST = "commits_lost"  # in a failover of the database; to the operator only


OPERATORS_ONLY = frozenset({NoticeKind.OUTAGE, NoticeKind.OUTAGE_OVER, NoticeKind.COMMITS_LOST})


class TargetKind(TextEnum):
    """How a target is reached."""

    EMAIL = "email"
    SLACK = "slack"
    TEAMS = "teams"
    WEBHOOK = "webhook"


class NoticeStatus(TextEnum):
    """The status of a record."""

    WAITING = "waiting"
    SENT = "sent"
    SKIPPED = "skipped"  # it will not be sent; its reason says why


# The shortest time between two messages to one target.
EVERY_MS = {
    TargetKind.EMAIL: 300_000,
    TargetKind.SLACK: 60_000,
    TargetKind.TEAMS: 60_000,
    TargetKind.WEBHOOK: 0,
}

SAME_URL = say("the target has the URL that this notice is about")
TARGET_DELETED = say("the target was deleted")

_OF_STATE = {
    State.ENABLED: NoticeKind.RECOVERED,
    State.DISABLED: NoticeKind.DISABLED,
    State.FROZEN: NoticeKind.FROZEN,
}


class Notice(Struct, frozen=True, array_like=True):
    """Something that changed; the store writes one record of it for every target."""

    id: int
    kind: NoticeKind
    at: int
    tenant: str  # OPERATOR: it is not about one tenant
    endpoint_id: int = 0
    url: str = ""
    facts: dict[str, Any] = {}  # what the text is made from


class NoticeRecord(Struct, frozen=True):
    """A notice for one target, as stored."""

    target_id: int
    id: int
    owner: str  # the tenant of the target
    notice: Notice
    status: NoticeStatus
    reason: str = ""
    message_id: int = 0  # the message that carries it; 0: none yet
    sent_at: int | None = None


class NoticeTarget(Struct, frozen=True, kw_only=True):
    """Where people read notices."""

    id: int
    tenant: str  # OPERATOR: notices of all tenants, and of outages of the sender
    kind: TargetKind
    name: str
    address: str  # an e-mail address or a URL
    secret: str  # signs the requests to a webhook, or confirms an e-mail address
    kinds: tuple[NoticeKind, ...]  # empty: all
    quiet_hours: str  # like 22:00-07:00, or empty
    time_zone: str  # of the quiet hours
    language: str = ENGLISH.code  # of the messages
    created_at: int
    confirmed_at: int | None = None  # it gets the notices of changes since then
    deleted_at: int | None = None
    message_id: int = 0  # the message that is being sent; of a new e-mail target: the confirmation
    due_at: int = 0  # no message is sent before this time
    attempts: int = 0  # that failed in a row
    error: str = ""  # of the last attempt; empty if it arrived
    sent_at: int | None = None  # the last message that arrived

    def __repr__(self) -> str:
        return f"NoticeTarget({self.id}, {self.kind}, ****)"


class TargetDraft(Struct, frozen=True, kw_only=True):
    """A target as a person wants it; its address is in its normal form once checked."""

    kind: TargetKind
    address: str
    tenant: str = OPERATOR
    name: str = ""
    kinds: tuple[NoticeKind, ...] = ()
    quiet_hours: str = ""
    time_zone: str = "UTC"
    language: str = ENGLISH.code

    def __repr__(self) -> str:
        return f"TargetDraft({self.kind}, ****)"


# --- what is reported --------------------------------------------------------------------------


def notice_of(state: State) -> NoticeKind:
    """The notice of a change to this state."""
    return _OF_STATE[state]


def is_first_drop(reported_at: int, *, now: int) -> bool:
    """Whether a drop is the first after a day without any."""
    return now - reported_at >= DAY_MS


def text_facts(name: str, text: str) -> dict[str, Any]:
    """A text as facts of a notice: in English, which older versions show, and for all languages."""
    said = {f"{name}_said": text.pack()} if isinstance(text, Sentence) else {}
    return {name: str(text), **said}


def fact_text(facts: Mapping[str, Any], name: str) -> str:
    """The text that ``text_facts`` made into facts; empty if there is none."""
    return unpack(facts.get(f"{name}_said") or facts.get(name, ""))


def wants(kinds: Collection[NoticeKind], owner: str, notice: Notice) -> bool:
    """Whether a target of this owner gets this notice."""
    return owner in {OPERATOR, notice.tenant} and (not kinds or notice.kind in kinds)


def address_hash(address: str) -> bytes:
    """The hash by which the store finds equal addresses: it holds the addresses encrypted."""
    return hashlib.sha256(b"notice target\0" + address.encode()).digest()


# --- when a message is sent --------------------------------------------------------------------


def next_due(target: NoticeTarget, *, now: int, quiet_until: int | None) -> int:
    """The time from which a message may be sent: ``now`` or later.

    A due time more than RETRY_MAX_MS ahead is ignored: the clock was set back after it was stored.
    """
    due_at = target.due_at if target.due_at - now <= RETRY_MAX_MS else now
    return max(now, due_at, quiet_until or 0)


def retry_wait_ms(attempts: int) -> int:
    """The wait after this many failures in a row: 30 s, doubling up to an hour."""
    return int(min(RETRY_FIRST_MS << min(attempts - 1, 10), RETRY_MAX_MS))


def quiet_for_ms(quiet_hours: str, zone: tzinfo, *, wall: int) -> int:
    """How much longer the quiet hours last; 0 outside of them."""
    found = _HOURS.fullmatch(quiet_hours)
    if found is None:
        return 0
    from_h, from_m, to_h, to_m = map(int, found.groups())
    here = (_EPOCH + timedelta(milliseconds=wall)).astimezone(zone)
    since_midnight = here.hour * 60 + here.minute
    begin, end = from_h * 60 + from_m, to_h * 60 + to_m
    if begin <= end:
        is_quiet = begin <= since_midnight < end
    else:
        is_quiet = since_midnight >= begin or since_midnight < end
    if not is_quiet:
        return 0
    minutes = (end - since_midnight) % (24 * 60)
    return minutes * 60_000 - here.second * 1_000 - here.microsecond // 1_000


# --- checks of a target ------------------------------------------------------------------------


def check_target(
    draft: TargetDraft,
    *,
    refuses: Callable[[Target], str],
    is_zone: Callable[[str], bool],
    mail_problem: str,
) -> TargetDraft:
    """The draft in its normal form; raises Invalid with every wrong field.

    ``refuses`` returns why Homing may not send to a URL, or "". ``mail_problem`` says why this
    installation cannot send e-mail; empty if it can.
    """
    problems: list[FieldProblem] = []
    address = draft.address.strip()
    if draft.kind is TargetKind.EMAIL:
        if mail_problem:
            problems.append(FieldProblem("kind", mail_problem))
        if _MAIL.fullmatch(address) is None:
            problems.append(
                FieldProblem(
                    "address",
                    say("must be an e-mail address like {example}", example="ops@example.com"),
                )
            )
        local, _, domain = address.rpartition("@")
        address = f"{local}@{domain.lower()}"
    else:
        address, found = _http_address(address, refuses=refuses)
        problems += found
    problems += _settings_problems(draft, is_zone)
    if problems:
        raise Invalid(problems=tuple(problems))
    kinds = tuple(dict.fromkeys(draft.kinds))
    return replace(draft, address=address, kinds=kinds, name=draft.name.strip())


def _http_address(
    address: str, *, refuses: Callable[[Target], str]
) -> tuple[str, list[FieldProblem]]:
    try:
        address, target = parse_url(address)
    except Invalid as error:
        return address, [FieldProblem("address", reason) for _, reason in error.problems]
    why = refuses(target)
    return address, [FieldProblem("address", why)] if why else []


def _settings_problems(draft: TargetDraft, is_zone: Callable[[str], bool]) -> list[FieldProblem]:
    problems = []
    name = draft.name.strip()
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        reason = say("must be at most {limit} printable characters", limit=NAME_CHARS_MAX)
        problems.append(FieldProblem("name", reason))
    if draft.tenant != OPERATOR:
        own = OPERATORS_ONLY & set(draft.kinds)
        problems += [
            FieldProblem(
                "notices",
                say("must not contain {kind}: only the operator's targets get it", kind=it.value),
            )
            for it in sorted(own)
        ]
    if draft.quiet_hours:
        found = _HOURS.fullmatch(draft.quiet_hours)
        if found is None or found.groups()[:2] == found.groups()[2:]:
            reason = say("must be two different times like 22:00-07:00")
            problems.append(FieldProblem("quiet_hours", reason))
    if not is_zone(draft.time_zone):
        reason = say("must be UTC or the name of a time zone like Europe/Berlin")
        problems.append(FieldProblem("time_zone", reason))
    if draft.language not in LANGUAGES:
        reason = say("must be one of {names}", names=", ".join(LANGUAGES))
        problems.append(FieldProblem("language", reason))
    return problems


def stored_text(text: str) -> Sentence:
    """A reason or an error that is stored in English, to be shown in a language that has it.

    Most are messages without values. Any other, such as the reply of a mail server, stays as it is.
    """
    return Sentence(text, "", 0, {})


def masked_address(target: NoticeTarget) -> str:
    """The address as people see it; of a URL only the host, because the rest may be secret."""
    if target.kind is TargetKind.EMAIL:
        return target.address
    scheme, _, rest = target.address.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/****"
