"""The settings that say where Homing may connect to, and the rules they make."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated

from msgspec import Meta, Struct

from homing.errors import Invalid
from homing.policy.networks import Network
from homing.policy.reach import DENIED_PORTS, PORTS, PortRange, Reach
from homing.policy.url import parse_url


def _show(ranges: tuple[PortRange, ...]) -> tuple[str, ...]:
    return tuple(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _list(sentence: str, allowed: str) -> Meta:
    return Meta(description=sentence, extra={"allowed": f"a list of {allowed}"})


class ReachSettings(Struct, frozen=True, kw_only=True):
    """Only an operator has these: nothing that a tenant sends can widen them."""

    allow_networks: Annotated[
        tuple[str, ...],
        _list(
            "Private and special networks that may be sent to; never loopback or metadata.",
            "networks like 10.0.0.0/8",
        ),
    ] = ()
    allow_hosts: Annotated[
        tuple[str, ...],
        _list(
            "Hosts that may be sent to at private addresses; never loopback or metadata.",
            "names, or *.name for all below it",
        ),
    ] = ()
    allow_loopback: Annotated[
        bool, Meta(description="Whether this machine's loopback addresses may be sent to.")
    ] = False
    allow_metadata: Annotated[
        bool,
        Meta(description="Whether link-local addresses and clouds' metadata may be sent to."),
    ] = False
    allow_ports: Annotated[
        tuple[str, ...],
        _list("Ports that may be sent to, less deny_ports.", "ports and ranges like 1024-65535"),
    ] = _show(PORTS)
    deny_ports: Annotated[
        tuple[str, ...],
        _list(
            "Ports that are never sent to: of databases, brokers, remote control.",
            "ports and ranges",
        ),
    ] = _show(DENIED_PORTS)

    def reach(self) -> Reach:
        """The rules; raises WrongReach."""
        return Reach(
            networks=tuple(_network(text) for text in self.allow_networks),
            hosts=tuple(_host(text) for text in self.allow_hosts),
            loopback=self.allow_loopback,
            metadata=self.allow_metadata,
            ports=tuple(_ports(text, "allow_ports") for text in self.allow_ports),
            denied_ports=tuple(_ports(text, "deny_ports") for text in self.deny_ports),
        )


class WrongReach(Exception):
    """Which of the settings is wrong, and what it must be."""

    def __init__(self, setting: str, allowed: str) -> None:
        super().__init__(setting)
        self.setting, self.allowed = setting, allowed


def read_list(text: str) -> tuple[str, ...]:
    """What the environment and flags give: parted by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise WrongReach("allow_networks", f"a list of networks ({error})") from None


def _host(text: str) -> str:
    below = text.startswith("*.")
    try:
        normal, target = parse_url(f"http://{text[2:] if below else text}")
    except Invalid as error:
        reason = error.problems[0].reason
        raise WrongReach("allow_hosts", f"a list of names ({text} {reason})") from None
    if normal != f"http://{target.host}/":
        raise WrongReach("allow_hosts", f"a list of names without port and path (not {text})")
    return f"*.{target.host}" if below else target.host


def _ports(text: str, setting: str) -> PortRange:
    first, dash, last = text.partition("-")
    last = last if dash else first
    plain = all(one.isascii() and one.isdigit() and len(one) <= 5 for one in (first, last))
    if not plain or not 1 <= int(first) <= int(last) <= 65_535:
        raise WrongReach(setting, f"a list of ports and ranges from 1 to 65535 (not {text})")
    return int(first), int(last)
