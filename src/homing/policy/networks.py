"""Which addresses are special, by a table in this module.

The standard library's ``is_private`` and ``is_global`` follow one registry as of one Python
version. They miss metadata services on public-looking addresses, and IPv4 addresses embedded in
IPv6 ones. This table lists every block with its reason; every address that is not a plain public
unicast address is special. IPv6 is public only within 2000::/3, without the special blocks in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Kind(StrEnum):
    """Why an address is special; each kind is allowed by a setting of its own."""

    NEVER = "never"  # no receiver can be there, or it is this machine: never allowed
    LOOPBACK = "loopback"
    METADATA = "metadata"  # metadata services of clouds, which give out credentials; link-local
    SPECIAL = "special"  # private, shared, documentation, benchmarks, tunnels, reserved


# The first match counts, so narrow blocks come first.
_IPV4 = (
    ("0.0.0.0/8", Kind.NEVER),  # "this network": Linux treats it as loopback
    ("224.0.0.0/4", Kind.NEVER),  # multicast
    ("255.255.255.255/32", Kind.NEVER),  # broadcast
    ("127.0.0.0/8", Kind.LOOPBACK),
    ("169.254.0.0/16", Kind.METADATA),  # link-local: .169.254, ECS .170.2, Scaleway .42.42, …
    ("168.63.129.16/32", Kind.METADATA),  # Azure's wire server, public-looking
    ("100.100.100.200/32", Kind.METADATA),  # Alibaba Cloud
    ("100.96.0.96/32", Kind.METADATA),  # Volcengine
    ("192.0.0.192/32", Kind.METADATA),  # Oracle Cloud, the classic one
    ("10.0.0.0/8", Kind.SPECIAL),  # private
    ("100.64.0.0/10", Kind.SPECIAL),  # shared, behind carriers' NAT
    ("172.16.0.0/12", Kind.SPECIAL),  # private
    ("192.0.0.0/24", Kind.SPECIAL),  # protocol assignments
    ("192.0.2.0/24", Kind.SPECIAL),  # documentation
    ("192.31.196.0/24", Kind.SPECIAL),  # AS112
    ("192.52.193.0/24", Kind.SPECIAL),  # AMT
    ("192.88.99.0/24", Kind.SPECIAL),  # relays of 6to4
    ("192.168.0.0/16", Kind.SPECIAL),  # private
    ("192.175.48.0/24", Kind.SPECIAL),  # AS112
    ("198.18.0.0/15", Kind.SPECIAL),  # benchmarks
    ("198.51.100.0/24", Kind.SPECIAL),  # documentation
    ("203.0.113.0/24", Kind.SPECIAL),  # documentation
    ("240.0.0.0/4", Kind.SPECIAL),  # reserved
)
_IPV6 = (
    ("::/128", Kind.NEVER),
    ("ff00::/8", Kind.NEVER),  # multicast
    ("::1/128", Kind.LOOPBACK),
    ("fe80::/10", Kind.METADATA),  # link-local
    ("fd00:ec2::/32", Kind.METADATA),  # AWS: ::254, and ::23 of its containers
    ("fd20:ce::/32", Kind.METADATA),  # Google Cloud
    ("fd00:c1::/32", Kind.METADATA),  # Oracle Cloud
    ("fd00:42::/32", Kind.METADATA),  # Scaleway
    ("fd00:a9fe:a9fe::/48", Kind.METADATA),  # Akamai (Linode)
    ("2001::/23", Kind.SPECIAL),  # protocol assignments: Teredo, ORCHID, benchmarks, AMT
    ("2001:db8::/32", Kind.SPECIAL),  # documentation
    ("2002::/16", Kind.SPECIAL),  # 6to4
    ("2620:4f:8000::/48", Kind.SPECIAL),  # AS112
    ("3ffe::/16", Kind.SPECIAL),  # the former 6bone
    ("3fff::/20", Kind.SPECIAL),  # documentation
)
# Addresses that only stand for an IPv4 address: only that address decides.
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")

_COMPATIBLE = IPv6Network("::/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
_LOW_HALF = (_MAPPED, _NAT64, _COMPATIBLE, _TRANSLATED)
_ISATAP = frozenset((0x0000_5EFE, 0x0200_5EFE))  # the upper half of the interface's id

_RANGES = {
    version: tuple(
        (int(network[0]), int(network[-1]), kind)
        for network, kind in ((ip_network(text), kind) for text, kind in table)
    )
    for version, table in ((4, _IPV4), (6, _IPV6))
}


def kinds_of(address: Address) -> Iterator[tuple[Address, Kind]]:
    """The kinds of an address and of the IPv4 addresses in it; none if all of them are public."""
    kind = _own_kind(address)
    if kind is not None:
        yield address, kind
    if isinstance(address, IPv6Address):
        for inner in hidden(address):
            inner_kind = _own_kind(inner)
            if inner_kind is not None:
                yield inner, inner_kind


def hidden(address: IPv6Address) -> Iterator[IPv4Address]:
    """Every IPv4 address that packets to this IPv6 address may reach."""
    number = int(address)
    low = number & 0xFFFF_FFFF
    if number > 1 and any(address in block for block in _LOW_HALF):
        yield IPv4Address(low)
    if address in _NAT64_LOCAL:
        yield from _in_local_nat64(number)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if number >> 32 & 0xFFFF_FFFF in _ISATAP:
        yield IPv4Address(low)


def _in_local_nat64(number: int) -> Iterator[IPv4Address]:
    """RFC 6052: its place depends on the length of the prefix; the other bits are zero."""
    for found in (
        number & 0xFFFF_FFFF,
        (number >> 64 & 0xFFFF) << 16 | (number >> 40 & 0xFFFF),
        (number >> 64 & 0xFF) << 24 | (number >> 32 & 0xFF_FFFF),
        number >> 24 & 0xFFFF_FFFF,
    ):
        if found >> 24:
            yield IPv4Address(found)


def _own_kind(address: Address) -> Kind | None:
    number = int(address)
    for first, last, kind in _RANGES[address.version]:
        if first <= number <= last:
            return kind
    if isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST:
        return None
    return None if address in _MAPPED or address in _NAT64 else Kind.SPECIAL
