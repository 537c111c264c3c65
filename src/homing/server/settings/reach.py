"""Reads the networks, hosts and ports of the reach settings, which an operator writes as text."""

from __future__ import annotations

from ipaddress import ip_network

from homing.errors import Invalid
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


def read_host(text: str) -> str:
    """``name`` or ``*.name``, normalised as in a URL; raises WrongReach."""
    below = text.startswith("*.")
    try:
        normal, target = parse_url(f"http://{text[2:] if below else text}")
    except Invalid as error:
        reason = error.problems[0].reason
        raise WrongReach("allow_hosts", f"a list of names ({text} {reason})") from None
    if normal != f"http://{target.host}/":
        raise WrongReach("allow_hosts", f"a list of names without port and path (not {text})")
    return f"*.{target.host}" if below else target.host


def read_ports(text: str, setting: str) -> PortRange:
    """``443`` or ``1024-65535``; raises WrongReach."""
    first, dash, last = text.partition("-")
    last = last if dash else first
    plain = all(one.isascii() and one.isdigit() and len(one) <= 5 for one in (first, last))
    if not plain or not 1 <= int(first) <= int(last) <= 65_535:
        raise WrongReach(setting, f"a list of ports and ranges from 1 to 65535 (not {text})")
    return int(first), int(last)
