"""The audit log: what an entry shows, which values it hides, and how a changed entry is noticed.

Every entry has a digest, made with a key that the database does not hold in readable form. The
maintenance leader puts entries into segments. The hash of a segment covers the digests of its
entries and the hash of the segment before, and the head of the log covers the last segment and the
last one that retention removed. So an entry that was changed, removed or added in SQL is noticed.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from homing.languages.sentences import rfc3339
from homing.model import SPEC, Endpoint, Kind, SigningKeys, Subscription, show_id
from homing.policy.event_types import EventType
from homing.policy.keys import ApiKey
from homing.policy.notices import NoticeTarget
from homing.policy.portal import PortalLink, PortalSettings
from homing.policy.sent_form import VERSION, SentForm

KEY_BYTES = 32
SHOWN_BYTES_MAX = 8 * 1024  # of the values before, and of those after
TEXT_CHARS_MAX = 500
ITEMS_MAX = 50
ADDRESS_CHARS_MAX = 100
NAME_CHARS_MAX = 200
OBJECT_CHARS_MAX = 200
HIDDEN = "****"
CHANGED = "**** (changed)"
NO_HASH = b""  # before the first segment

Values = dict[str, Any]


class Who(Struct, frozen=True):
    """The caller of a change."""

    name: str  # of the key
    key_id: int | None = None  # None: the admin key of the settings, or no key
    tenant: str | None = None  # None: a caller of all tenants
    address: str = ""  # of the connection
    person: str = ""  # as an authenticating proxy names the person


class AuditDraft(Struct, frozen=True):
    """An entry before its change is made: the store adds the object and its values."""

    id: int
    at: int
    who: Who
    action: str
    changed: tuple[str, ...] = ()  # hidden fields that get another value
    key: bytes = b""  # makes the digest of this entry and of no other
    form: SentForm | None = None  # with which a person asks for the change

    def __repr__(self) -> str:
        return f"AuditDraft({show_id('aud', self.id)}, {self.action})"


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One change, or the calls of one minute that were refused, or made too often."""

    id: int
    at: int
    tenant: str | None  # whose object it is; None: of the installation
    who: Who
    action: str  # the use case, like subscriptions.create
    object: str = ""  # its id, like sub_…
    before: str = ""  # JSON of the values that change; empty: there was no object
    after: str = ""
    refused: str = ""  # why the call was refused; empty: the change was made
    count: int = 1  # of calls in this minute
    digest: bytes = b""
    segment: int = 0  # 0: in none yet


class Segment(Struct, frozen=True):
    """Entries that were hashed together."""

    number: int
    entries: int
    first_at: int
    last_at: int
    hash: bytes


class Head(Struct, frozen=True):
    """The end of the log, and where it begins after retention."""

    last: int = 0  # the number of the newest segment
    last_hash: bytes = NO_HASH
    removed: int = 0  # the number of the newest segment that retention removed
    removed_hash: bytes = NO_HASH
    removed_entries: int = 0  # by retention, in all
    mac: bytes = b""
    damaged: int = 0  # segments that were missing or changed when retention came to them


# --- values ---------------------------------------------------------------------------------


def shown(value: object) -> Values:
    """The values of an object without its secrets."""
    match value:
        case Subscription():
            return _subscription(value)
        case Endpoint():
            return _endpoint(value)
        case SigningKeys():
            return {"tenant": value.tenant, "keys": len(value.keys)}
        case EventType():
            return {
                "tenant": value.tenant,
                "name": value.name,
                "description": value.description,
                "schema": value.schema,
                "sample": value.sample,
                "check": None if value.check is None else str(value.check),
            }
        case ApiKey():
            return {
                "name": value.name,
                "prefix": value.prefix,
                "role": str(value.role),
                "tenant": value.tenant,
                "expires_at": _time(value.expires_at),
            }
        case NoticeTarget():
            return {
                "tenant": value.tenant,
                "kind": str(value.kind),
                "name": value.name,
                "address": HIDDEN,
                "secret": HIDDEN,
                "kinds": [str(it) for it in value.kinds],
                "quiet_hours": value.quiet_hours,
                "time_zone": value.time_zone,
                "language": value.language,
                "confirmed": value.confirmed_at is not None,
            }
        case PortalLink():
            return {
                "tenant": value.tenant,
                "role": str(value.role),
                "subject": value.subject,
                "opens_until": _time(value.opens_until),
                "session_ms": value.session_ms,
            }
        case PortalSettings():
            return {
                "name": value.name,
                "accent_color": value.accent_color,
                "header_color": value.header_color,
                "theme": str(value.theme),
                "frame_ancestors": list(value.frame_ancestors),
                "logo": f"{value.logo_type} {value.logo_digest}" if value.logo_type else "",
            }
        case Mapping():
            return dict(value)
        case _:
            raise AssertionError(f"an audit entry cannot show {type(value).__name__}")


def form_path(tenant: str | None, object_id: str) -> str:
    """The object of a change, as the seal of a form names it."""
    return f"{tenant or ''}/{object_id}"


def state_of(value: object) -> Values:
    """The values of an object with which a form is compared: also a hidden one counts."""
    hidden = {VERSION: value.version} if isinstance(value, Subscription) else {}
    return shown(value) | hidden


def _endpoint(it: Endpoint) -> Values:
    return {
        "tenant": it.tenant,
        "url": it.url,
        "state": str(it.health.state),
        "attempts": it.health.attempts,
        "failures": it.health.failures,
        "consecutive_failures": it.health.consecutive_failures,
        "enabled_since": _time(it.health.enabled_since),
        "manual_enable_at": _time(it.health.manual_enable_at),
    }


def _subscription(it: Subscription) -> Values:
    values: Values = {"tenant": it.tenant}
    for name, field in SPEC.items():
        value = getattr(it, name)
        if field.secret and value is not None:
            pairs = field.kind is Kind.PAIRS
            value = dict.fromkeys((key for key, _ in value), HIDDEN) if pairs else HIDDEN
        values[name] = value
    values["secrets"] = len(it.secrets)
    if it.receiver is not None:
        values["receiver"] = msgspec.to_builtins(replace(it.receiver, said={}))
    if it.paused_since is not None:
        values["paused_since"] = _time(it.paused_since)
    if it.workfront is not None:
        own = it.workfront
        times = {"version_at": _time(own.version_at), "until": _time(own.until)}
        values["workfront"] = msgspec.to_builtins(own) | times
    return values


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)


def before_and_after(
    before: object | None, after: object | None, changed: Iterable[str] = ()
) -> tuple[str, str]:
    """The two texts of an entry. Of an object that stays, only the values that change.

    ``changed`` names the hidden values that change: the stored ones are encrypted, and differ even
    where they say the same.
    """
    old = None if before is None else shown(before)
    new = None if after is None else shown(after)
    if old is not None and new is not None:
        marked = {name for name in changed if new.get(name)}
        differ = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        kept = [*differ, *sorted(marked - set(differ))]
        old = {name: old.get(name) for name in kept}
        new = {name: CHANGED if name in marked else new.get(name) for name in kept}
    return _text(old), _text(new)


def _text(values: Values | None) -> str:
    """JSON of at most ``SHOWN_BYTES_MAX`` bytes; empty without values."""
    if values is None:
        return ""
    text = msgspec.json.encode(_cut(values), order="sorted")
    if len(text) > SHOWN_BYTES_MAX:
        short = {name: _brief(value) for name, value in list(values.items())[:ITEMS_MAX]}
        text = msgspec.json.encode(short, order="sorted")
    return text.decode()


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return f"{value[:TEXT_CHARS_MAX]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        kept = {_cut(key): _cut(it) for key, it in list(value.items())[:ITEMS_MAX]}
        more = len(value) - len(kept)
        return {**kept, "…": f"{more:,} more"} if more > 0 else kept
    if isinstance(value, list | tuple):
        items = [_cut(it) for it in value[:ITEMS_MAX]]
        return [*items, f"… ({len(value):,} items)"] if len(value) > ITEMS_MAX else items
    return value


def _brief(value: Any) -> Any:
    """A value of at most about a hundred bytes."""
    if isinstance(value, str):
        return value if len(value) <= 20 else f"{value[:20]}… ({len(value):,} characters)"
    if isinstance(value, dict | list | tuple):
        return f"… ({len(value):,} items)"
    return value


# --- digests --------------------------------------------------------------------------------


def entry_key(key: bytes, number: int) -> bytes:
    """The key of one entry: a process that writes entries need not have the key of the log."""
    return hmac.digest(key, b"entry %d" % number, "sha256")


def digest_of(entry: AuditEntry, key: bytes) -> bytes:
    """The digest of an entry; ``key`` is the entry's own."""
    who = entry.who
    values = (
        entry.id,
        entry.at,
        entry.tenant,
        who.name,
        who.key_id,
        who.tenant,
        who.address,
        who.person,
        entry.action,
        entry.object,
        entry.before,
        entry.after,
        entry.refused,
        entry.count,
    )
    return hmac.digest(key, msgspec.json.encode(values), "sha256")


def segment_hash(key: bytes, number: int, previous: bytes, digests: Iterable[bytes]) -> bytes:
    """The hash of a segment with the digests of its entries, in the order of their ids."""
    mac = hmac.new(key, b"segment %d " % number, "sha256")
    mac.update(len(previous).to_bytes(1) + previous)
    for digest in digests:
        mac.update(len(digest).to_bytes(1) + digest)
    return mac.digest()


def head_mac(key: bytes, head: Head) -> bytes:
    """The signature of the head."""
    values: tuple[object, ...] = (
        head.last,
        head.last_hash.hex(),
        head.removed,
        head.removed_hash.hex(),
        head.removed_entries,
    )
    if head.damaged:  # Without damage it is that of earlier versions.
        values += (head.damaged,)
    return hmac.digest(key, b"head " + msgspec.json.encode(values), "sha256")


def is_signed(key: bytes, head: Head) -> bool:
    """Whether Homing wrote the head, in exactly this form."""
    return hmac.compare_digest(head_mac(key, head), head.mac)


def is_genuine(key: bytes, entry: AuditEntry) -> bool:
    """Whether Homing wrote the entry, in exactly this form."""
    return hmac.compare_digest(digest_of(entry, entry_key(key, entry.id)), entry.digest)
