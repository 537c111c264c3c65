"""What may be connected to: every special block, every hiding place, every rule of the operator."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.errors import Invalid
from homing.model import Target
from homing.policy.networks import Kind, kinds_of
from homing.policy.reach import (
    DENIED_PORTS,
    Reach,
    names_address,
    read_address,
    settings_changed,
)
from homing.policy.url import parse_url

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "168.63.129.15",
    "168.63.129.17",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "2001:200::1",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]
FORBIDDEN: dict[str, Kind] = {
    "0.0.0.0": Kind.NEVER,
    "0.1.2.3": Kind.NEVER,
    "224.0.0.1": Kind.NEVER,
    "239.255.255.250": Kind.NEVER,
    "255.255.255.255": Kind.NEVER,
    "::": Kind.NEVER,
    "ff02::1": Kind.NEVER,
    "ff0e::1": Kind.NEVER,
    "::ffff:224.0.0.1": Kind.NEVER,
    "::ffff:0.0.0.0": Kind.NEVER,
    "127.0.0.1": Kind.LOOPBACK,
    "127.255.255.254": Kind.LOOPBACK,
    "::1": Kind.LOOPBACK,
    "::ffff:127.0.0.1": Kind.LOOPBACK,
    "64:ff9b::7f00:1": Kind.LOOPBACK,
    "169.254.169.254": Kind.METADATA,
    "169.254.170.2": Kind.METADATA,
    "169.254.42.42": Kind.METADATA,
    "169.254.0.1": Kind.METADATA,
    "168.63.129.16": Kind.METADATA,
    "100.100.100.200": Kind.METADATA,
    "100.96.0.96": Kind.METADATA,
    "192.0.0.192": Kind.METADATA,
    "fd00:ec2::254": Kind.METADATA,
    "fd00:ec2::23": Kind.METADATA,
    "fd20:ce::254": Kind.METADATA,
    "fd00:c1::a9fe:a9fe": Kind.METADATA,
    "fd00:42::42": Kind.METADATA,
    "fd00:a9fe:a9fe::1": Kind.METADATA,
    "fe80::1": Kind.METADATA,
    "fe80::a9fe:a9fe": Kind.METADATA,
    "fe80::1%eth0": Kind.METADATA,
    "::ffff:169.254.169.254": Kind.METADATA,
    "::ffff:168.63.129.16": Kind.METADATA,
    "64:ff9b::a9fe:a9fe": Kind.METADATA,
    "10.0.0.1": Kind.SPECIAL,
    "100.64.0.1": Kind.SPECIAL,
    "172.16.0.1": Kind.SPECIAL,
    "172.31.255.255": Kind.SPECIAL,
    "192.0.0.9": Kind.SPECIAL,
    "192.0.2.1": Kind.SPECIAL,
    "192.31.196.1": Kind.SPECIAL,
    "192.52.193.1": Kind.SPECIAL,
    "192.88.99.1": Kind.SPECIAL,
    "192.168.1.1": Kind.SPECIAL,
    "192.175.48.1": Kind.SPECIAL,
    "198.18.0.1": Kind.SPECIAL,
    "198.19.255.255": Kind.SPECIAL,
    "198.51.100.1": Kind.SPECIAL,
    "203.0.113.9": Kind.SPECIAL,
    "240.0.0.1": Kind.SPECIAL,
    "::ffff:10.0.0.1": Kind.SPECIAL,
    "::808:808": Kind.SPECIAL,  # IPv4-compatible
    "::ffff:0:808:808": Kind.SPECIAL,  # translated
    "64:ff9b:1::808:808": Kind.SPECIAL,  # local NAT64
    "100::1": Kind.SPECIAL,  # discard
    "2001:0:808:808::f7f7:f7f7": Kind.SPECIAL,  # Teredo
    "2001:2::1": Kind.SPECIAL,  # benchmarks
    "2001:10::1": Kind.SPECIAL,  # ORCHID
    "2001:db8::1": Kind.SPECIAL,
    "2002:808:808::1": Kind.SPECIAL,  # 6to4
    "2620:4f:8000::1": Kind.SPECIAL,
    "3fff::1": Kind.SPECIAL,
    "4000::1": Kind.SPECIAL,  # outside 2000::/3
    "5f00::1": Kind.SPECIAL,
    "fc00::1": Kind.SPECIAL,
    "fd12:3456::1": Kind.SPECIAL,
    "fec0::1": Kind.SPECIAL,
    "2606:4700::5efe:10.0.0.1": Kind.SPECIAL,  # ISATAP
    "2606:4700::200:5efe:192.168.0.1": Kind.SPECIAL,
}
WIDE = (ip_network("0.0.0.0/0"), ip_network("::/0"))


def target(host: str, port: int = 443) -> Target:
    return Target("https", host, port, "/", host)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_admitted(address: str) -> None:
    assert not Reach().forbids(target("a.example"), [address])
    assert not Reach().refuses(target(address))


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_special_address_is_refused_and_needs_its_own_permission(address: str) -> None:
    kind = FORBIDDEN[address]
    found = read_address(address)
    assert found is not None
    assert kind in {one for _, one in kinds_of(found)}
    opened = {
        Kind.LOOPBACK: Reach(loopback=True, networks=WIDE),
        Kind.METADATA: Reach(metadata=True, networks=WIDE),
        Kind.SPECIAL: Reach(networks=WIDE),
    }
    for reach in (Reach(), *(one for other, one in opened.items() if other != kind)):
        expected = kind is Kind.SPECIAL and reach.networks != ()
        assert (not reach.forbids(target("a.example"), [address])) is expected
        assert bool(reach.refuses(target(address))) is not expected
    if kind in opened:
        assert not opened[kind].forbids(target("a.example"), [address])
        assert not opened[kind].refuses(target(address))


@pytest.mark.parametrize("hides", ["127.0.0.1", "169.254.169.254", "168.63.129.16"])
def test_a_wide_permission_opens_no_hiding_place(hides: str) -> None:
    """Whatever way an IPv4 address hides, loopback and metadata need their switches."""
    reach = Reach(networks=WIDE, hosts=("a.example",))
    for hidden in hiding_places(IPv4Address(hides)):
        assert reach.forbids(target("a.example"), [str(hidden)]), hidden


def hiding_places(inner: IPv4Address) -> list[IPv6Address]:
    """Every way to write an IPv4 address as an IPv6 one that something may lead back."""
    n = int(inner)
    mask = 0xFFFF_FFFF
    return [
        IPv6Address(0xFFFF << 32 | n),  # mapped
        IPv6Address(n),  # compatible
        IPv6Address(0xFFFF << 48 | n),  # translated
        IPv6Address(0x0064_FF9B << 96 | n),  # NAT64
        IPv6Address(0x0064_FF9B_0001 << 80 | n),  # local NAT64, /96
        IPv6Address(0x0064_FF9B_0001 << 80 | (n >> 16) << 64 | (n & 0xFFFF) << 40),  # /48
        IPv6Address(0x0064_FF9B_0001 << 80 | (n >> 24) << 64 | (n & 0xFF_FFFF) << 32),  # /56
        IPv6Address(0x0064_FF9B_0001 << 80 | n << 24),  # /64
        IPv6Address(0x2002 << 112 | n << 80),  # 6to4
        IPv6Address(0x2001_0000 << 96 | n << 64),  # a Teredo server
        IPv6Address(0x2001_0000 << 96 | 0x0808_0808 << 64 | n ^ mask),  # a Teredo client
        IPv6Address(0x2606_4700 << 96 | 0x5EFE << 32 | n),  # ISATAP
        IPv6Address(0x2606_4700 << 96 | 0x0200_5EFE << 32 | n),
    ]


_FORBIDDEN_IPV4 = st.one_of(
    *(
        st.integers(int(net[0]), int(net[-1])).map(IPv4Address)
        for net in map(
            ip_network,
            (
                "0.0.0.0/8",
                "10.0.0.0/8",
                "100.64.0.0/10",
                "127.0.0.0/8",
                "169.254.0.0/16",
                "172.16.0.0/12",
                "192.168.0.0/16",
                "198.18.0.0/15",
                "224.0.0.0/3",
            ),
        )
    )
)


@given(inner=_FORBIDDEN_IPV4, place=st.integers(0, 12))
def test_nothing_forbidden_can_hide(inner: IPv4Address, place: int) -> None:
    assert Reach().forbids(target("a.example"), [str(inner)])
    assert Reach().forbids(target("a.example"), [str(hiding_places(inner)[place])])


@given(st.one_of(st.ip_addresses(), st.ip_addresses(v=6, network="2000::/3")))
def test_what_the_standard_library_calls_special_is_special_here(
    address: IPv4Address | IPv6Address,
) -> None:
    """A referee: our table may refuse more than theirs, never less.

    The two forms that stand for an IPv4 address are judged by that one, which they do not do.
    """
    if isinstance(address, IPv6Address) and int(address) >> 32 in {0xFFFF, 0x0064_FF9B << 64}:
        return
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert Reach().forbids(target("a.example"), [str(address)])


def test_one_forbidden_address_refuses_the_target() -> None:
    assert not Reach().forbids(target("a.example"), ["8.8.8.8", "1.1.1.1"])
    assert Reach().forbids(target("a.example"), ["8.8.8.8", "10.0.0.1"])
    assert Reach().forbids(target("a.example"), ["8.8.8.8", "what is this"])


def test_a_network_opens_what_is_in_it() -> None:
    reach = Reach(networks=(ip_network("10.1.0.0/16"), ip_network("fd12::/16")))
    assert not reach.forbids(
        target("a.example"), ["10.1.2.3", "fd12::1", "8.8.8.8", "::ffff:10.1.2.3"]
    )
    assert reach.forbids(target("a.example"), ["10.2.0.1"])
    assert not reach.refuses(target("10.1.2.3"))
    assert reach.refuses(target("10.2.0.1"))


@pytest.mark.parametrize(
    ("host", "open_"),
    [
        ("hooks.internal", True),
        ("x.hooks.internal", False),
        ("a.svc.local", True),
        ("a.b.svc.local", True),
        ("svc.local", False),
        ("evilsvc.local", False),
        ("other.example", False),
    ],
)
def test_a_host_opens_private_addresses_for_itself_alone(host: str, open_: bool) -> None:
    reach = Reach(hosts=("hooks.internal", "*.svc.local"))
    assert (not reach.forbids(target(host), ["10.0.0.1"])) is open_
    assert reach.forbids(target(host), ["127.0.0.1"])
    assert reach.forbids(target(host), ["169.254.169.254"])


@pytest.mark.parametrize("port", [80, 443, 1024, 8080, 8443, 65535])
def test_these_ports_are_open(port: int) -> None:
    assert not Reach().forbids(target("a.example", port), ["8.8.8.8"])
    assert not Reach().refuses(target("a.example", port))


@pytest.mark.parametrize("port", [1, 22, 25, 79, 444, 1023, *(first for first, _ in DENIED_PORTS)])
def test_these_ports_are_closed_at_every_door(port: int) -> None:
    assert Reach().forbids(target("a.example", port), ["8.8.8.8"])
    assert Reach().refuses(target("a.example", port))
    assert not Reach(ports=((port, port),), denied_ports=()).refuses(target("a.example", port))


@pytest.mark.parametrize("host", ["localhost", "a.localhost"])
def test_the_names_of_loopback_are_known_at_the_door(host: str) -> None:
    assert Reach(networks=WIDE, hosts=(host,)).refuses(target(host))
    assert not Reach(loopback=True).refuses(target(host))


@pytest.mark.parametrize(
    "host", ["example.com", "localhost.example.com", "mylocalhost", "metadata.google.internal"]
)
def test_the_door_judges_no_other_name(host: str) -> None:
    """It would have to look it up, and the answer would tell what our resolver knows."""
    assert not Reach().refuses(target(host))


SPELLINGS = [
    "0177.0.0.1",
    "0x7f.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "127.0.0.1.",
    "127.000.000.001",
    "１２７.0.0.1",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "0",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::127.0.0.1]",
    "[2002:7f00:1::]",
    "[fe80::1%25lo]",
    "LOCALHOST",
    "localhost.",
    "ｌocalhost",
    "x.LocalHost.",
    "user@127.0.0.1",
    "127.0.0.1%00.example.com",
    "169.254.169.254",
    "0xa9fea9fe",
    "[fd00:ec2::254]",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_this_machine_gets_through_the_door(spelling: str) -> None:
    try:
        _, found = parse_url(f"http://{spelling}/")
    except Invalid:
        return
    assert Reach().refuses(found)


FIRST = Reach(networks=WIDE, hosts=("a.example", "*.b.example"))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(FIRST, networks=()), id="networks"),
        pytest.param(replace(FIRST, hosts=("a.example",)), id="hosts"),
        pytest.param(replace(FIRST, loopback=True), id="loopback"),
        pytest.param(replace(FIRST, metadata=True), id="metadata"),
        pytest.param(replace(FIRST, ports=((443, 443),)), id="ports"),
        pytest.param(replace(FIRST, denied_ports=()), id="denied ports"),
    ],
)
def test_every_setting_changes_the_fingerprint(other: Reach) -> None:
    assert other.fingerprint() != FIRST.fingerprint()
    assert 0 < other.fingerprint() < 1 << 63


def test_the_order_of_a_list_does_not_change_the_fingerprint() -> None:
    turned = replace(FIRST, networks=WIDE[::-1], hosts=("*.b.example", "a.example"))
    assert turned.fingerprint() == FIRST.fingerprint()


def test_settings_changed_only_for_what_passed_under_other_settings() -> None:
    assert not settings_changed(0, 5)
    assert not settings_changed(5, 5)
    assert settings_changed(4, 5)


def test_a_url_names_its_address_or_a_name_that_must_be_looked_up() -> None:
    assert names_address(target("10.0.0.1"))
    assert names_address(target("a.localhost"))
    assert not names_address(target("a.example"))
