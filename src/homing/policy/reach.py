"""Where this installation may connect to: the operator's rules, which no tenant can widen.

A target with several addresses is refused if one of them is forbidden; otherwise the order of a DNS
response would decide. Loopback and metadata have settings of their own, so that a wide network in
``allow_networks`` never allows them by accident. A refusal names its rule and the setting, for
operators only. A tenant learns that the target is not allowed, and nothing about the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from ipaddress import ip_address

from msgspec import Struct

from homing.languages.sentences import Sentence, say
from homing.model import Target
from homing.policy.networks import Address, Kind, Network, kinds_of

PortRange = tuple[int, int]  # first and last

REFUSED = say("is not allowed as a target")
REFUSED_SINCE = say(
    "the settings of this installation were changed and no longer allow this target"
)
PORTS: tuple[PortRange, ...] = ((80, 80), (443, 443), (1024, 65_535))
# Services that speak no HTTP, or that obey every client that reaches them.
DENIED_PORTS: tuple[PortRange, ...] = (
    (1433, 1434),  # SQL Server
    (1521, 1521),  # Oracle
    (1719, 1720),  # H.323
    (1723, 1723),  # PPTP
    (2049, 2049),  # NFS
    (2375, 2377),  # Docker
    (2379, 2380),  # etcd
    (3306, 3306),  # MySQL
    (3389, 3389),  # RDP
    (3659, 3659),  # Apple's SASL
    (4045, 4045),  # NFS locks
    (4190, 4190),  # Sieve
    (5060, 5061),  # SIP
    (5432, 5432),  # PostgreSQL
    (5672, 5672),  # AMQP
    (5900, 5903),  # VNC
    (5984, 5984),  # CouchDB
    (6000, 6000),  # X11
    (6379, 6379),  # Redis
    (6443, 6443),  # Kubernetes
    (6566, 6566),  # SANE
    (6660, 6669),  # IRC
    (6679, 6679),
    (6697, 6697),
    (8500, 8500),  # Consul
    (9042, 9042),  # Cassandra
    (9092, 9092),  # Kafka
    (9200, 9200),  # Elasticsearch
    (9300, 9300),
    (10_250, 10_250),  # kubelet
    (11_211, 11_211),  # memcached
    (27_017, 27_019),  # MongoDB
)


def _why(address: str, kind: Kind) -> Sentence:
    match kind:
        case Kind.NEVER:
            return say(
                "{address} is no address of a receiver; no setting allows it", address=address
            )
        case Kind.LOOPBACK:
            return say(
                "{address} is a loopback address; the setting allow_loopback allows it",
                address=address,
            )
        case Kind.METADATA:
            return say(
                "{address} is a link-local or metadata address; the setting allow_metadata allows "
                "it",
                address=address,
            )
        case Kind.SPECIAL:
            return say(
                "{address} is a private or special-use address; the settings allow_networks and "
                "allow_hosts can allow it",
                address=address,
            )


class Reach(Struct, frozen=True):
    """The addresses that an operator allows beyond public ones, and the ports."""

    networks: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()  # names, and *.name for all below one
    loopback: bool = False
    metadata: bool = False
    ports: tuple[PortRange, ...] = PORTS
    denied_ports: tuple[PortRange, ...] = DENIED_PORTS

    def fingerprint(self) -> int:
        """A number that changes with these settings; never 0."""
        parts = (
            sorted(map(str, self.networks)),
            sorted(self.hosts),
            self.loopback,
            self.metadata,
            sorted(self.ports),
            sorted(self.denied_ports),
        )
        return int.from_bytes(sha256(repr(parts).encode()).digest()[:7]) + 1

    def refuses(self, target: Target) -> str:
        """Why a URL is forbidden regardless of DNS, or ""; asked when a subscription is created.

        Names are not looked up: the response would show strangers what the resolver knows.
        """
        if why := self._port(target.port):
            return why
        if is_loopback_name(target.host):
            return "" if self.loopback else _why(target.host, Kind.LOOPBACK)
        address = read_address(target.host)
        return "" if address is None else self._address(target.host, address)

    def forbids(self, target: Target, addresses: Iterable[str]) -> str:
        """Why the port or one of the addresses may not be dialled, or ""."""
        if why := self._port(target.port):
            return why
        for text in addresses:
            address = read_address(text)
            if address is None:
                return f"{text} is not an address"
            if why := self._address(target.host, address):
                return why
        return ""

    def _port(self, port: int) -> str:
        if _within(port, self.denied_ports):
            return say("port {port} is in deny_ports", port=str(port))
        if _within(port, self.ports):
            return ""
        return say("port {port} is not in allow_ports", port=str(port))

    def _address(self, host: str, address: Address) -> str:
        for one, kind in kinds_of(address):
            if not self._allows(host, one, kind):
                return _why(str(address), kind)
        return ""

    def _allows(self, host: str, address: Address, kind: Kind) -> bool:
        match kind:
            case Kind.NEVER:
                return False
            case Kind.LOOPBACK:
                return self.loopback
            case Kind.METADATA:
                return self.metadata
            case Kind.SPECIAL:
                return self._named(host) or any(
                    address in network
                    for network in self.networks
                    if network.version == address.version
                )

    def _named(self, host: str) -> bool:
        return any(
            host.endswith(one[1:]) if one.startswith("*.") else host == one for one in self.hosts
        )


def settings_changed(passed_under: int, fingerprint: int) -> bool:
    """Whether the settings changed since an endpoint passed the guard; 0: it never did."""
    return passed_under not in {0, fingerprint}


def names_address(target: Target) -> bool:
    """Whether the host is an address, or a name for loopback: ``refuses`` says all about it."""
    return is_loopback_name(target.host) or read_address(target.host) is not None


def is_loopback_name(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def read_address(text: str) -> Address | None:
    """The address, or None if the text is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _within(port: int, ranges: tuple[PortRange, ...]) -> bool:
    return any(first <= port <= last for first, last in ranges)
