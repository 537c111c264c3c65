"""Reads networks, hosts, ports, addresses and proxies, which an operator writes as text."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from homing.errors import Invalid
from homing.policy.egress import Proxy
from homing.policy.networks import Network
from homing.policy.reach import DENIED_PORTS, PORTS, PortRange
from homing.policy.url import parse_url


def _show(ranges: tuple[PortRange, ...]) -> tuple[str, ...]:
    return tuple(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


ALLOW_PORTS = _show(PORTS)
DENY_PORTS = _show(DENIED_PORTS)


class WrongReach(Exception):
    """A reach setting that cannot be read: its key, and what it must be."""

    def __init__(self, setting: str, allowed: str) -> None:
        super().__init__(setting)
        self.setting, self.allowed = setting, allowed


def read_network(text: str, setting: str) -> Network:
    """``10.0.0.0/8``; raises WrongReach."""
    try:
        return ip_network(text)
    except ValueError as error:
        raise WrongReach(setting, f"a list of networks ({error})") from None


def read_host(text: str, setting: str = "allow_hosts") -> str:
    """``name`` or ``*.name``, normalised as in a URL; raises WrongReach."""
    below = text.startswith("*.")
    try:
        normal, target = parse_url(f"http://{text[2:] if below else text}")
    except Invalid as error:
        reason = error.problems[0].reason
        raise WrongReach(setting, f"a list of names ({text} {reason})") from None
    if normal != f"http://{target.host}/":
        raise WrongReach(setting, f"a list of names without port and path (not {text})")
    return f"*.{target.host}" if below else target.host


def read_ports(text: str, setting: str) -> PortRange:
    """``443`` or ``1024-65535``; raises WrongReach."""
    first, dash, last = text.partition("-")
    last = last if dash else first
    plain = all(one.isascii() and one.isdigit() and len(one) <= 5 for one in (first, last))
    if not plain or not 1 <= int(first) <= int(last) <= 65_535:
        raise WrongReach(setting, f"a list of ports and ranges from 1 to 65535 (not {text})")
    return int(first), int(last)


PROXY_PORT = 3128
_PROXY_FORM = "empty, or http://host:port or http://user:password@host:port"


def read_proxy(text: str, direct_hosts: Iterable[str], *, resolves: bool) -> Proxy | None:
    """The proxy of the installation, or None without one; raises WrongReach."""
    hosts = tuple(read_host(one, "egress_direct_hosts") for one in direct_hosts)
    if not text:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port or PROXY_PORT
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        raise WrongReach("egress_proxy", _PROXY_FORM) from None
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query:
        raise WrongReach("egress_proxy", _PROXY_FORM)
    return Proxy(parts.hostname, port, user, password, hosts, resolves)


def read_sources(texts: Iterable[str]) -> dict[int, str]:
    """The address to send from, by family; raises WrongReach."""
    setting, found = "egress_source_addresses", {}
    for text in texts:
        try:
            address = ip_address(text)
        except ValueError:
            raise WrongReach(setting, f"a list of IP addresses (not {text})") from None
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        if int(family) in found:
            raise WrongReach(setting, "at most one IPv4 and one IPv6 address")
        found[int(family)] = str(address)
    return found
