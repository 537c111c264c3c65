"""Which addresses are dialled, and what a refusal says."""

from __future__ import annotations

import pytest

from homing.model import Failure
from homing.net.guard import Guard

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
]
FORBIDDEN = {
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "0.0.0.0": "this host",
    "0.1.2.3": "this network",
    "10.0.0.1": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "169.254.169.254": "link-local, the metadata of clouds",
    "100.64.0.1": "carrier NAT",
    "192.0.2.1": "documentation",
    "198.18.0.1": "benchmarks",
    "198.51.100.1": "documentation",
    "203.0.113.9": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "IPv4-compatible loopback",
    "::ffff:127.0.0.1": "mapped loopback",
    "::ffff:10.0.0.1": "mapped private",
    "::ffff:169.254.169.254": "mapped metadata",
    "64:ff9b::7f00:1": "NAT64 to loopback",
    "64:ff9b::a9fe:a9fe": "NAT64 to metadata",
    "64:ff9b:1::1": "local NAT64",
    "2002:7f00:1::": "6to4 of loopback",
    "2002:a00:1::": "6to4 of private",
    "2001:0:7f00:1::": "Teredo",
    "2001:db8::1": "documentation",
    "100::1": "discard",
    "fc00::1": "unique local",
    "fd12:3456::1": "unique local",
    "fe80::1": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "ff0e::1": "global multicast",
}


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_dialled(address: str) -> None:
    assert Guard(allow_private=False).check("host.test", [address]) is None
    assert Guard(allow_private=False).check_literal(address) is None


@pytest.mark.parametrize("address", FORBIDDEN, ids=FORBIDDEN.values())
def test_a_special_address_is_refused(address: str) -> None:
    refusal = Guard(allow_private=False).check("host.test", [address])
    assert refusal is not None
    assert refusal.failure is Failure.FORBIDDEN_ADDRESS
    assert "host.test" in refusal.detail
    assert "--allow-private" in refusal.detail
    assert Guard(allow_private=False).check_literal(address) is not None


def test_one_forbidden_address_refuses_all() -> None:
    guard = Guard(allow_private=False)
    assert guard.check("host.test", ["8.8.8.8", "1.1.1.1"]) is None
    assert guard.check("host.test", ["8.8.8.8", "10.0.0.1"]) is not None


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.1.1", "::1", "fd00::1", "0.0.0.0"])
def test_an_operator_may_allow_private_addresses(address: str) -> None:
    assert Guard(allow_private=True).check("host.test", [address]) is None
    assert Guard(allow_private=True).check_literal(address) is None


@pytest.mark.parametrize("address", ["224.0.0.1", "ff02::1", "::ffff:224.0.0.1"])
def test_a_group_is_never_dialled(address: str) -> None:
    refusal = Guard(allow_private=True).check("host.test", [address])
    assert refusal is not None
    assert "multicast" in refusal.detail


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "127.1",
        "10.1",
        "0",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
    ],
)
def test_the_door_knows_other_spellings(host: str) -> None:
    assert Guard(allow_private=False).check_literal(host) is not None
    assert Guard(allow_private=True).check_literal(host) is None


@pytest.mark.parametrize(
    "host", ["example.com", "localhost.example.com", "mylocalhost", "1.2.3.4.example", "134744072"]
)
def test_the_door_lets_names_pass(host: str) -> None:
    assert Guard(allow_private=False).check_literal(host) is None
