"""TLS is verified against the name while the checked address is dialled."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from homing.model import Failure
from homing.net.resolver import Resolver
from homing.net.sender import HttpSender, SenderOptions
from homing.net.tls import client_context
from homing.policy.reach import Reach
from net.certificates import Authority
from net.receiver import Call, a_request, a_target, ask, names, receiver, say_ok
from net.zoo import BAD, GOOD, Zoo


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return Zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture
async def sender(anyio_backend: Any, authority: Authority) -> AsyncIterator[HttpSender]:
    lookup = names(hook_test="127.0.0.1", other_test="127.0.0.1")
    sender = HttpSender(
        SenderOptions(reach=Reach(loopback=True), ca_file=str(authority.ca_file)),
        resolver=Resolver(getaddrinfo=lookup),
    )
    yield sender
    await sender.close()


async def test_a_good_name_is_delivered_to_and_the_connection_kept(
    sender: HttpSender, authority: Authority
) -> None:
    context = authority.server("hook.test")
    context.set_alpn_protocols(["h2", "http/1.1"])
    seen: list[str | None] = []
    context.sni_callback = lambda _, name, __: seen.append(name)
    async with receiver(say_ok, tls=context) as peer:
        target = a_target(peer.port, scheme="https", host="hook.test")
        first = await ask(sender, a_request(target, body=b"x" * 300_000))
        second = await ask(sender, a_request(target))
        tls = peer.calls[0].writer.get_extra_info("ssl_object")
    assert (first.code, second.code) == (200, 200)
    assert len(peer.calls) == 1
    assert seen == ["hook.test"]
    assert tls.selected_alpn_protocol() == "http/1.1"
    assert first.address == f"127.0.0.1:{peer.port}"
    assert first.phases.connect_us is not None
    assert first.phases.tls_us is not None
    assert second.phases.tls_us is None


async def test_an_address_is_verified_against_addresses(
    sender: HttpSender, authority: Authority
) -> None:
    async with receiver(say_ok, tls=authority.server("127.0.0.1")) as peer:
        response = await ask(sender, a_request(a_target(peer.port, scheme="https")))
    assert response.code == 200
    async with receiver(say_ok, tls=authority.server("hook.test", "127.0.0.2")) as peer:
        response = await ask(sender, a_request(a_target(peer.port, scheme="https")))
    assert response.failure is Failure.TLS
    assert "IP address mismatch" in response.detail


PAYLOAD = b"for the right receiver only"


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_peer_gets_no_byte_of_the_request(zoo: Zoo, case: str) -> None:
    async def listen(call: Call) -> None:
        await call.gone()

    sender = _trusting(zoo)
    async with receiver(listen, tls=zoo.bad_peer(case)) as peer:
        target = a_target(peer.port, scheme="https", host="hook.test")
        response = await ask(sender, a_request(target, body=PAYLOAD))
    assert response.failure is Failure.TLS, response
    assert response.detail.startswith(("certificate refused: ", "TLS failed: "))
    assert response.phases.connect_us is not None
    assert all(call.got == b"" for call in peer.calls)
    await sender.close()


def test_every_python_judges_certificates_alike() -> None:
    assert client_context().verify_flags == ssl.VERIFY_X509_TRUSTED_FIRST


@pytest.mark.parametrize("case", GOOD)
async def test_a_good_peer_is_delivered_to(zoo: Zoo, case: str) -> None:
    sender = _trusting(zoo)
    async with receiver(say_ok, tls=zoo.good_peer(case)) as peer:
        target = a_target(peer.port, scheme="https", host="hook.test")
        assert (await ask(sender, a_request(target, body=PAYLOAD))).code == 200
    assert peer.calls[0].got.endswith(PAYLOAD)
    await sender.close()


def _trusting(zoo: Zoo) -> HttpSender:
    return HttpSender(
        SenderOptions(reach=Reach(loopback=True), ca_file=str(zoo.ca_file)),
        resolver=Resolver(getaddrinfo=names(hook_test="127.0.0.1")),
    )


async def test_plain_http_on_a_tls_port_is_named(sender: HttpSender) -> None:
    async def plain(call: Call) -> None:
        await call.reader.read(100)
        await call.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with receiver(plain) as peer:
        target = a_target(peer.port, scheme="https", host="hook.test")
        response = await ask(sender, a_request(target))
    assert response.failure is Failure.TLS
    assert response.detail == "TLS failed: wrong version number"


async def test_the_wrong_scheme_the_other_way_round_is_an_end(
    sender: HttpSender, authority: Authority
) -> None:
    async with receiver(say_ok, tls=authority.server("hook.test")) as peer:
        response = await ask(sender, a_request(a_target(peer.port, host="hook.test")))
    assert response.failure in {Failure.CLOSED, Failure.RESET, Failure.BAD_RESPONSE}


@pytest.mark.parametrize("reset", [False, True])
async def test_an_end_in_the_handshake_is_told(sender: HttpSender, reset: bool) -> None:
    async def leave(call: Call) -> None:
        await call.reader.read(100)
        if reset:
            call.reset()

    async with receiver(leave) as peer:
        target = a_target(peer.port, scheme="https", host="hook.test")
        response = await ask(sender, a_request(target))
    assert response.failure is (Failure.RESET if reset else Failure.TLS), response
    assert response.detail


async def test_a_silent_handshake_ends_with_the_deadline(sender: HttpSender) -> None:
    async def silent(call: Call) -> None:
        await call.gone()

    async with receiver(silent) as peer:
        target = a_target(peer.port, scheme="https", host="hook.test")
        response = await ask(sender, a_request(target, deadline_ms=1_000))
    assert response.failure is Failure.TIMEOUT
    assert "TLS handshake" in response.detail


async def test_a_peer_that_wants_a_client_certificate_is_a_tls_failure(
    sender: HttpSender, authority: Authority
) -> None:
    context = authority.server("hook.test")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=authority.ca_file)
    async with receiver(say_ok, tls=context) as peer:
        target = a_target(peer.port, scheme="https", host="hook.test")
        response = await ask(sender, a_request(target))
    assert response.failure in {Failure.TLS, Failure.RESET, Failure.CLOSED}, response


async def test_names_on_one_address_do_not_share_a_connection(
    sender: HttpSender, authority: Authority
) -> None:
    async with receiver(say_ok, tls=authority.server("hook.test", "other.test")) as peer:
        for host in ("hook.test", "other.test"):
            target = a_target(peer.port, scheme="https", host=host)
            assert (await ask(sender, a_request(target))).code == 200
    assert len(peer.calls) == 2


async def test_a_broken_store_of_authorities_is_our_trouble(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for ca_file in (tmp_path / "missing.pem", empty):
        sender = HttpSender(SenderOptions(reach=Reach(loopback=True), ca_file=str(ca_file)))
        response = await ask(sender, a_request(a_target(443, scheme="https")))
        assert response.failure is Failure.SENDER_TLS, response
        assert response.address is None
        await sender.close()
