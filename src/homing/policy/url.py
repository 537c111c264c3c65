"""The normal form of a URL, which is stored, shown, compared and dialled.

An endpoint is a URL of a tenant, so two spellings of one URL must become one text, and the URL that
was checked must be exactly the URL that is dialled. Hence one strict parser here, instead of two
lenient parsers that differ: text that it does not understand is refused with a reason. Only parts
whose meaning cannot change are normalised (scheme, host, default port, fragment, empty path). Path,
percent-encoding and query belong to the receiver and stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

import idna

from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Sentence, say
from homing.model import Target

URL_CHARS_MAX = 2048
LABEL_CHARS_MAX = 63
HOST_CHARS_MAX = 253

_TOO_LONG = say("must be at most {limit} characters", limit=str(URL_CHARS_MAX))

_PORTS = {"http": 80, "https": 443}
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_AFTER_AUTHORITY = re.compile(r"[/?]")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_OCTET = re.compile(r"0|[1-9][0-9]{0,2}")


def parse_url(text: str) -> tuple[str, Target]:
    """The normal form and its parts; raises Invalid with the reason."""
    if len(text) > URL_CHARS_MAX:
        raise _refused(_TOO_LONG)
    if _UNSAFE.search(text):
        raise _refused(say("must not contain whitespace, control characters or backslashes"))
    scheme, colon, rest = text.partition("://")
    scheme = scheme.lower()
    if not colon or scheme not in _PORTS:
        raise _refused(say("must begin with http:// or https://"))
    rest = rest.partition("#")[0]
    found = _AFTER_AUTHORITY.search(rest)
    cut = found.start() if found else len(rest)
    authority, path = rest[:cut], rest[cut:]
    if not path.isascii():
        raise _refused(say("must percent-encode every non-ASCII character in its path and query"))
    if "@" in authority:
        raise _refused(say("must not contain a user name or password"))
    host, port, shown = _place(scheme, authority)
    path = path if path.startswith("/") else "/" + path
    normal = f"{scheme}://{shown}{path}"
    if len(normal) > URL_CHARS_MAX:
        raise _refused(_TOO_LONG)
    return normal, Target(scheme=scheme, host=host, port=port, path=path, authority=shown)


def host_of(normal: str) -> str:
    """The host of a URL in its normal form."""
    authority = normal.split("/", 3)[2]
    if authority.startswith("["):
        return authority[1 : authority.index("]")]
    return authority.partition(":")[0]


@lru_cache(maxsize=1_024)  # Many URLs have the same host.
def _place(scheme: str, authority: str) -> tuple[str, int, str]:
    """The host, the port, and the authority in its normal form."""
    host, port_text = _split_authority(authority)
    port = _port(port_text, default=_PORTS[scheme])
    shown_host = f"[{host}]" if ":" in host else host
    return host, port, shown_host if port == _PORTS[scheme] else f"{shown_host}:{port}"


def _split_authority(authority: str) -> tuple[str, str]:
    """The host in its normal form, and the text of the port."""
    if authority.startswith("["):
        inside, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _refused(say("must have an IPv6 address in one pair of brackets"))
        return _ipv6(inside), rest[1:]
    host, _, port = authority.partition(":")
    if not host:
        raise _refused(say("must have a host"))
    return _host(host), port


def _port(text: str, *, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise _refused(say("must have a port of 1 to 65535"))
    return int(text)


def _ipv6(text: str) -> str:
    if "%" in text:
        raise _refused(say("must not contain a zone id"))
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise _refused(say("must have an IPv6 address in its brackets")) from None
    if address.ipv4_mapped is not None:  # Python versions write such an address differently.
        number = int(address.ipv4_mapped)
        return f"::ffff:{number >> 16:x}:{number & 0xFFFF:x}"
    return address.compressed


def _host(text: str) -> str:
    """A name or IPv4 address: ASCII, lower-cased, without the trailing dot."""
    host = text.lower() if text.isascii() else _to_ascii(text)
    host = host.removesuffix(".")
    if not host:
        raise _refused(say("must have a host"))
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(labels if text.isascii() else [])
    if len(host) > HOST_CHARS_MAX:
        raise _refused(say("must have a host of at most {limit} characters", limit=HOST_CHARS_MAX))
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise _refused(
                say(
                    "must have a host of labels with letters, digits and inner hyphens, "
                    "1 to 63 each"
                )
            )
    return host


def _ipv4(labels: list[str]) -> str:
    """Four plain numbers only: systems read other spellings differently."""
    plain = all(_OCTET.fullmatch(label) and int(label) <= 255 for label in labels)
    if len(labels) != 4 or not plain:
        raise _refused(
            say("must write an IPv4 address as four decimal numbers without leading zeros")
        )
    return ".".join(labels)


def _to_ascii(text: str) -> str:
    """IDNA 2008 with the mapping of UTS 46, label by label; ASCII labels stay as they are."""
    try:
        mapped = idna.uts46_remap(text, std3_rules=False, transitional=False)
        return ".".join(
            label if label.isascii() else _label_to_ascii(label) for label in mapped.split(".")
        )
    except UnicodeError:
        raise _refused(say("must have a host that is a valid international name")) from None


def _label_to_ascii(label: str) -> str:
    """Encode a label; that costs the square of its length, so long labels are refused first."""
    if len(label) > LABEL_CHARS_MAX:
        raise UnicodeError
    return idna.alabel(label).decode("ascii")


def _refused(reason: Sentence) -> Invalid:
    return Invalid(problems=(FieldProblem("url", reason),))
