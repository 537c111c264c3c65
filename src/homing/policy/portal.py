"""The customer portal: its links, their sessions, and how the portal of a tenant looks.

A link is made for one tenant and one role. It works once, for a short time: whoever opens it has a
session. The texts of a link and of a session are ``plk_…``, a secret of 256 bits and a signature,
with dots between them; only the SHA-256 of the secret is stored. A text with a wrong signature is
refused without a read of the database.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from homing.errors import FieldProblem
from homing.languages.sentences import say
from homing.model import read_id, show_id
from homing.policy.keys import Role
from homing.policy.moments import read_duration
from homing.policy.text import ascii_lower

LINK = "plk"
SECRET_BYTES = 32
OPEN_WITHIN_MS = 15 * 60_000
OPEN_WITHIN_MS_MAX = 24 * 3_600_000
SESSION_MS = 8 * 3_600_000
SESSION_MS_MAX = 24 * 3_600_000
SPAN_MS_MIN = 1_000
KEPT_MS = 24 * 3_600_000  # a link that ended is remembered, so that its page can say why
LIVE_LINKS_MAX = 1_000  # of one tenant: links that can be opened, and open sessions
SUBJECT_CHARS_MAX = 100
NAME_CHARS_MAX = 60
ORIGINS_MAX = 20
LOGO_BYTES_MAX = 64 * 1024
TOKEN_CHARS_MAX = 200

# The roles that a link may have, each with the roles of the keys that may make such a link.
ROLES = {
    Role.VIEWER: frozenset({Role.ADMIN, Role.MANAGER, Role.VIEWER}),
    Role.MANAGER: frozenset({Role.ADMIN, Role.MANAGER}),
}


class LinkState(StrEnum):
    """What a link is good for now."""

    WAITING = "waiting"  # it can be opened
    OPEN = "open"  # it was opened, and its session works
    EXPIRED = "expired"  # nobody opened it in time
    ENDED = "ended"  # the time of its session is over
    REVOKED = "revoked"


class PortalLink(Struct, frozen=True, kw_only=True):
    """A link and the one session that it opens; without its secrets."""

    id: int
    tenant: str
    role: Role
    subject: str  # who gets it, as the application names the person; may be empty
    hash: bytes  # of the link's secret
    made_by: str  # the name of the key, or the person, that made it
    key_id: int | None  # the link works only while this key does; None: it depends on no key
    created_at: int
    opens_until: int
    session_ms: int
    opened_at: int | None = None
    session_hash: bytes | None = None
    session_until: int | None = None
    revoked_at: int | None = None

    def state(self, now: int) -> LinkState:
        if self.revoked_at is not None:
            return LinkState.REVOKED
        if self.session_until is not None:
            return LinkState.OPEN if now < self.session_until else LinkState.ENDED
        return LinkState.WAITING if now < self.opens_until else LinkState.EXPIRED

    @property
    def caller_name(self) -> str:
        """How the audit log names the person who uses the portal."""
        link = f"portal link {show_id(LINK, self.id)}"
        return f"{self.subject} ({link})" if self.subject else link

    def __repr__(self) -> str:
        return f"PortalLink({show_id(LINK, self.id)}, {self.role}, {self.tenant})"


# --- the texts of links and sessions ---------------------------------------------------------


class Use(StrEnum):
    """A text for one use is refused for the other."""

    LINK = "link"
    SESSION = "session"


class TokenText(Struct, frozen=True):
    """The text of a link or a session: which link, and the hash of the secret."""

    link_id: int
    hash: bytes

    def fits(self, stored: bytes | None) -> bool:
        """Whether this hash is the stored one; compared in constant time."""
        return stored is not None and hmac.compare_digest(self.hash, stored)


def hash_of(secret: bytes) -> bytes:
    """The stored part of a secret."""
    return hashlib.sha256(secret).digest()


def write_token(key: bytes, use: Use, link_id: int, secret: bytes) -> str:
    """The text of a link or a session."""
    text = f"{show_id(LINK, link_id)}.{_base64(secret)}"
    return f"{text}.{_signature(key, use, text)}"


def read_token(key: bytes, use: Use, token: str) -> TokenText | None:
    """The parts of a text; None if this installation did not make it for this use."""
    if len(token) > TOKEN_CHARS_MAX or not token.isascii():
        return None
    text, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature, _signature(key, use, text)):
        return None
    shown, _, secret = text.partition(".")
    link_id = read_id(LINK, shown)
    assert link_id is not None
    return TokenText(link_id, hash_of(b64decode(secret.encode() + b"==", altchars=b"-_")))


def _signature(key: bytes, use: Use, text: str) -> str:
    return _base64(hmac.digest(key, f"{use}:{text}".encode(), "sha256")[:16])


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


# --- what a caller asks for --------------------------------------------------------------------


class LinkDraft(Struct, frozen=True):
    """A link as a request describes it; durations are texts like ``15m``."""

    role: str = Role.VIEWER
    subject: str = ""
    open_within: str | None = None
    session: str | None = None


class LinkTerms(Struct, frozen=True):
    """The checked values of a draft."""

    role: Role
    subject: str
    open_within_ms: int
    session_ms: int


def check_link(draft: LinkDraft) -> tuple[LinkTerms | None, list[FieldProblem]]:
    """The terms of a link; None, and the problems of its fields."""
    problems: list[FieldProblem] = []
    if draft.role not in ROLES:
        one, other = ROLES
        reason = say(
            "must be {one} or {other}: a portal link has no other role",
            one=one.value,
            other=other.value,
        )
        problems.append(FieldProblem("role", reason))
    if len(draft.subject) > SUBJECT_CHARS_MAX or not draft.subject.isprintable():
        reason = say("must be at most {limit} printable characters", limit=SUBJECT_CHARS_MAX)
        problems.append(FieldProblem("subject", reason))
    spans = []
    for name, text, default, longest in (
        ("open_within", draft.open_within, OPEN_WITHIN_MS, OPEN_WITHIN_MS_MAX),
        ("session", draft.session, SESSION_MS, SESSION_MS_MAX),
    ):
        span = default if text is None else read_duration(text)
        if span is None or not SPAN_MS_MIN <= span <= longest:
            reason = say("must be a duration from 1s to 24h, like 15m")
            problems.append(FieldProblem(name, reason))
        else:
            spans.append(span)
    if problems:
        return None, problems
    return LinkTerms(Role(draft.role), draft.subject.strip(), *spans), []


# --- how the portal of a tenant looks ----------------------------------------------------------


class Theme(StrEnum):
    """Light and dark pages; ``auto`` follows the setting of the viewer's system."""

    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


class Logo(Struct, frozen=True):
    """A picture in a format that cannot hold scripts."""

    type: str
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:32]

    def __repr__(self) -> str:
        return f"Logo({self.type}, {len(self.content)} bytes)"


class PortalSettings(Struct, frozen=True, kw_only=True):
    """The name and the looks of a tenant's portal, and the sites that may show it in a frame."""

    tenant: str
    name: str = ""
    accent_color: str = ""  # #rrggbb; empty: the default
    header_color: str = ""
    theme: Theme = Theme.AUTO
    frame_ancestors: tuple[str, ...] = ()  # origins; none: no site may frame it
    logo_type: str = ""  # empty: no logo
    logo_digest: str = ""
    logo_bytes: int = 0
    updated_at: int | None = None  # None: nothing was ever set

    @property
    def title(self) -> str:
        """The name that pages show."""
        return self.name or say("Webhooks")


class PortalDraft(Struct, frozen=True, kw_only=True):
    """Settings as a request describes them."""

    name: str = ""
    accent_color: str = ""
    header_color: str = ""
    theme: str = Theme.AUTO
    frame_ancestors: tuple[str, ...] = ()


_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_ORIGIN = re.compile(rf"(https?)://({_LABEL}(?:\.{_LABEL})*)(?::([0-9]{{1,5}}))?")
_PICTURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_DATA_URL = re.compile(r"data:([a-z/+.-]{1,40});base64,([A-Za-z0-9+/]*={0,2})")


def check_settings(draft: PortalDraft) -> tuple[PortalDraft, list[FieldProblem]]:
    """The draft in its normal form, and the problems of its fields."""
    problems: list[FieldProblem] = []
    name = draft.name.strip()
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        reason: str = say("must be at most {limit} printable characters", limit=NAME_CHARS_MAX)
        problems.append(FieldProblem("name", reason))
    for field in ("accent_color", "header_color"):
        given = getattr(draft, field)
        if given and not _COLOR.fullmatch(given):
            reason = say("must be a colour like {example}, or empty", example="#2b50c8")
            problems.append(FieldProblem(field, reason))
    if draft.theme not in set(Theme):
        reason = say("must be one of {names}", names=", ".join(Theme))
        problems.append(FieldProblem("theme", reason))
    if len(draft.frame_ancestors) > ORIGINS_MAX:
        reason = say("must have at most {limit} origins", limit=ORIGINS_MAX)
        problems.append(FieldProblem("frame_ancestors", reason))
    given_origins = draft.frame_ancestors[: ORIGINS_MAX + 1]
    origins = [ascii_lower(it.strip()).rstrip("/") for it in given_origins]
    for number, origin in enumerate(origins):
        if reason := origin_problem(origin):
            problems.append(FieldProblem(f"frame_ancestors[{number}]", reason))
    checked = PortalDraft(
        name=name,
        accent_color=draft.accent_color.lower(),
        header_color=draft.header_color.lower(),
        theme=draft.theme,
        frame_ancestors=tuple(dict.fromkeys(origins)),
    )
    return checked, problems


def origin_problem(origin: str) -> str:
    """Why a site cannot be named as a frame ancestor; empty if it can."""
    found = _ORIGIN.fullmatch(origin)
    if found is None or len(origin) > 260 or int(found[3] or 443) not in range(1, 65_536):
        return say(
            "must be an origin like {example}, without a path and without *",
            example="https://app.example.com",
        )
    host = found[2]
    if found[1] == "http" and host != "localhost" and not host.endswith(".localhost"):
        return say("must begin with https://: a page over http can be changed on its way")
    return ""


def check_logo(data_url: str) -> tuple[Logo | None, str]:
    """The picture in a data URL, and why it is refused (empty: it is not)."""
    kinds = ", ".join(it.removeprefix("image/") for it in _PICTURES)
    if len(data_url) > LOGO_BYTES_MAX * 4 // 3 + 100:
        return None, say("must have at most {kib} KiB", kib=LOGO_BYTES_MAX // 1024)
    found = _DATA_URL.fullmatch(data_url)
    if found is None or found[1] not in _PICTURES:
        return None, say("must be a data URL with base64 of a picture: {kinds}", kinds=kinds)
    try:
        content = b64decode(found[2], validate=True)
    except (NotBase64, ValueError):
        return None, say("must be valid base64")
    if len(content) > LOGO_BYTES_MAX:
        return None, say("must have at most {kib} KiB", kib=LOGO_BYTES_MAX // 1024)
    is_webp = found[1] != "image/webp" or content[8:12] == b"WEBP"
    if not content.startswith(_PICTURES[found[1]]) or not is_webp:
        return None, say("is not a picture of the type {type}", type=found[1])
    return Logo(found[1], content), ""


# --- colours that can be read ------------------------------------------------------------------

CONTRAST_MIN = 4.5  # WCAG 2.2, level AA
_STEPS = 40
_SOFT = 0.12  # of the colour in the background of badges and selected rows
_LIGHT = ("#ffffff", "#f6f6f3", "#efeeea")  # the backgrounds of tokens.css: card, paper, sunk
_DARK = ("#1b1e22", "#131518", "#16181b")
WHITE, BLACK = "#ffffff", "#000000"


class Palette(Struct, frozen=True):
    """A colour for links and buttons, the text on it, and its soft background."""

    accent: str
    ink: str
    soft: str


def palette(accent: str, *, dark: bool) -> Palette:
    """The colour, made darker (on dark pages: lighter) until it can be read everywhere."""
    backgrounds, towards = (_DARK, WHITE) if dark else (_LIGHT, BLACK)
    for step in range(_STEPS + 1):
        color = mix(towards, accent, step / _STEPS)
        soft = mix(color, backgrounds[0], _SOFT)
        if min(contrast(color, it) for it in (*backgrounds, soft)) >= CONTRAST_MIN:
            return Palette(color, ink_on(color), soft)
    raise AssertionError(f"no step towards {towards} can be read")


def ink_on(background: str) -> str:
    """Black or white: one of them has a contrast of at least 4.58 with every colour."""
    return max((WHITE, BLACK), key=lambda ink: contrast(ink, background))


def mix(color: str, other: str, share: float) -> str:
    """``share`` of the first colour and the rest of the other."""
    pairs = zip(_parts(color), _parts(other), strict=True)
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2: 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _parts(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


def _luminance(color: str) -> float:
    red, green, blue = (_linear(it / 255) for it in _parts(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def is_color(text: str) -> bool:
    return _COLOR.fullmatch(text) is not None


def policy_sources(origins: Iterable[str]) -> str:
    """The value of ``frame-ancestors``."""
    return " ".join(origins) or "'none'"
