"""The guard: private and special-use addresses are never dialled unless the operator allows them.

It judges addresses, not names, after every look-up and before every connection: a name that
answers with a public address today and with 127.0.0.1 tomorrow is caught tomorrow. One forbidden
address among several refuses the target as a whole, or the order of a DNS answer would decide.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

from homing.model import Failure
from homing.net.trouble import Trouble

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ODD_IPV4 = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}", re.IGNORECASE)


class Guard:
    """Which addresses may be dialled."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private

    def check(self, host: str, addresses: Iterable[str]) -> Trouble | None:
        """None if every address may be dialled."""
        for text in addresses:
            address = ipaddress.ip_address(text)
            if not self._allowed(address):
                return self._refusal(host, address)
        return None

    def check_literal(self, host: str) -> Trouble | None:
        """For use at the door: refuses a host that is forbidden whatever a resolver says of it."""
        name = host.lower().rstrip(".")
        if name == "localhost" or name.endswith(".localhost"):
            return None if self._allow_private else self._refusal(host, None)
        address = _literal(name)
        if address is None or self._allowed(address):
            return None
        return self._refusal(host, address)

    def _allowed(self, address: _IP) -> bool:
        if _embedded(address).is_multicast or address.is_multicast:
            return False  # There is no TCP to a group, whoever allows it.
        return self._allow_private or _is_public(address)

    def _refusal(self, host: str, address: _IP | None) -> Trouble:
        what = f"{host} ({address})" if address and str(address) != host else host
        if address is not None and self._allow_private:
            return Trouble(Failure.FORBIDDEN_ADDRESS, f"{what} is a multicast address")
        return Trouble(
            Failure.FORBIDDEN_ADDRESS,
            f"{what} is a private or special-use address; such targets need --allow-private",
        )


def _is_public(address: _IP) -> bool:
    inner = _embedded(address)
    if inner is not address:
        return inner.is_global
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global


def _embedded(address: _IP) -> _IP:
    """The IPv4 address that packets to this IPv6 address end at; otherwise the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address if inner is None else inner


def _literal(host: str) -> _IP | None:
    """The address that this text is, also in the odd forms that resolvers take (``127.1``)."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not _ODD_IPV4.fullmatch(host):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
