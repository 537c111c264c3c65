"""Client certificates: what nginx and other servers that ask for one see, and who is to blame."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from homing.model import Failure, Outcome, TlsIdentity
from homing.net.identity_files import LOOK_EVERY_S
from homing.net.resolver import Resolver
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.causes import key_of
from homing.policy.certificates import make_identity
from homing.policy.egress import IdentityPaths
from homing.policy.outcome import judge
from homing.policy.reach import Reach
from homing.ports import Response
from net.certificates import DAY, NOW, Authority
from net.nginx import Nginx, nginx_with
from net.receiver import a_request, a_target, ask, ask_all, names, receiver, say_ok


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "another authority")


def a_sender(**more: Any) -> HttpSender:
    return HttpSender(
        SenderOptions(reach=Reach(loopback=True), **more),
        resolver=Resolver(getaddrinfo=names(hook_test="127.0.0.1")),
    )


def an_identity(pair: tuple[str, str], authority: Authority) -> TlsIdentity:
    found = make_identity(
        certificate=pair[0], key=pair[1], authorities=authority.ca_file.read_text()
    )
    assert found is not None
    return found


# --- nginx with ssl_verify_client on ----------------------------------------------------------


@pytest.fixture(scope="module")
def revoked(authority: Authority) -> tuple[str, str]:
    return authority.client("revoked")


@pytest.fixture(scope="module")
def nginx(
    authority: Authority, revoked: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    server = authority.server_file("hook.test")
    with nginx_with(
        tmp_path_factory.mktemp("nginx"),
        f"""
        ssl_certificate {server}; ssl_certificate_key {server};
        ssl_client_certificate {authority.ca_file}; ssl_verify_client on;
        ssl_crl {authority.revoke(revoked[0])};
        location / {{ return 200 '$ssl_client_s_dn $connection'; }}
        """,
        tls=True,
    ) as found:
        yield found


async def _ask_nginx(nginx: Nginx, identity: TlsIdentity | None, **more: Any) -> Response:
    sender = a_sender(**more)
    target = a_target(nginx.port, scheme="https", host="hook.test")
    response = await ask(sender, a_request(target, tls=identity))
    await sender.close()
    return response


async def test_nginx_accepts_the_right_certificate(nginx: Nginx, authority: Authority) -> None:
    response = await _ask_nginx(nginx, an_identity(authority.client("our sender"), authority))
    assert response.code == 200, response
    assert response.excerpt.startswith(b"CN=our sender ")


async def test_nginx_refuses_a_revoked_certificate_and_that_is_failed(
    nginx: Nginx, authority: Authority, revoked: tuple[str, str]
) -> None:
    response = await _ask_nginx(nginx, an_identity(revoked, authority))
    assert response.code == 400
    assert judge(response.code, response.failure) is Outcome.FAILED


async def test_nginx_refuses_a_certificate_of_another_authority_and_that_is_failed(
    nginx: Nginx, authority: Authority, stranger: Authority
) -> None:
    response = await _ask_nginx(nginx, an_identity(stranger.client(), authority))
    assert response.code == 400
    assert judge(response.code, response.failure) is Outcome.FAILED


async def test_nginx_refuses_a_request_without_a_certificate(
    nginx: Nginx, authority: Authority
) -> None:
    response = await _ask_nginx(nginx, None, ca_file=str(authority.ca_file))
    assert response.code == 400
    assert b"No required SSL certificate" in response.excerpt


async def test_an_expired_certificate_of_ours_never_reaches_nginx(
    nginx: Nginx, authority: Authority
) -> None:
    pair = authority.client(until=NOW - DAY)
    response = await _ask_nginx(nginx, an_identity(pair, authority))
    assert response.failure is Failure.SENDER_CERTIFICATE
    assert response.detail.startswith("the client certificate expired on ")
    assert response.phases.connect_us is None
    assert judge(response.code, response.failure) is Outcome.SENDER_ERROR


async def test_a_certificate_that_is_not_valid_yet_is_not_used(
    nginx: Nginx, authority: Authority
) -> None:
    pair = authority.client(since=NOW + dt.timedelta(hours=1))
    response = await _ask_nginx(nginx, an_identity(pair, authority))
    assert response.failure is Failure.SENDER_CERTIFICATE
    assert "is not valid before" in response.detail


async def test_a_key_that_does_not_fit_is_our_failure(nginx: Nginx, authority: Authority) -> None:
    pair = authority.client()[0], authority.client()[1]
    response = await _ask_nginx(nginx, an_identity(pair, authority))
    assert response.failure is Failure.SENDER_CERTIFICATE
    assert "does not fit" in response.detail


# --- connections and trust --------------------------------------------------------------------


async def test_a_connection_is_never_shared_by_two_identities(
    nginx: Nginx, authority: Authority
) -> None:
    sender = a_sender()
    target = a_target(nginx.port, scheme="https", host="hook.test")
    identities = [an_identity(authority.client(f"client{n}"), authority) for n in range(3)]
    for _ in range(3):
        requests = [a_request(target, tls=one) for one in identities]
        responses = await ask_all(sender, requests)
        who = [one.excerpt.split()[0] for one in responses]
        assert who == [b"CN=client0", b"CN=client1", b"CN=client2"]
    connections = {one.excerpt.split()[1] for one in responses}
    again = {(await ask(sender, one)).excerpt.split()[1] for one in requests}
    assert again == connections, "each identity uses its own connection again"
    await sender.close()


async def test_authorities_of_one_request_are_trusted_for_that_one_only(
    sender: HttpSender, authority: Authority
) -> None:
    trusting = make_identity(authorities=authority.ca_file.read_text())
    async with receiver(say_ok, tls=authority.server("127.0.0.1")) as peer:
        target = a_target(peer.port, scheme="https")
        assert (await ask(sender, a_request(target, tls=trusting))).code == 200
        other = await ask(sender, a_request(target))
        assert other.failure is Failure.TLS
        assert other.detail.startswith("certificate refused")
        assert (await ask(sender, a_request(target, tls=trusting))).code == 200


async def test_a_server_of_another_authority_is_refused_whatever_is_trusted_besides(
    sender: HttpSender, authority: Authority, stranger: Authority
) -> None:
    trusting = make_identity(authorities=authority.ca_file.read_text())
    async with receiver(say_ok, tls=stranger.server("127.0.0.1")) as peer:
        response = await ask(sender, a_request(a_target(peer.port, scheme="https"), tls=trusting))
    assert response.failure is Failure.TLS
    assert peer.calls == [] or peer.calls[0].got == b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_refusal_with_a_tls_alert_is_failed_and_names_the_certificate(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    """In TLS 1.3 the alert arrives after the handshake, when the response is read."""
    context = authority.server("hook.test")
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=authority.ca_file)
    sender = a_sender()
    with blocking_server(context) as port:
        target = a_target(port, scheme="https", host="hook.test")
        for pair, reason in (
            (stranger.client(), "client_certificate"),
            (("", ""), "no_client_certificate"),
        ):
            response = await ask(sender, a_request(target, tls=an_identity(pair, authority)))
            assert response.failure is Failure.TLS, response
            assert judge(None, response.failure) is Outcome.FAILED
            if reason == "client_certificate" or version is ssl.TLSVersion.TLSv1_3:
                assert key_of(response.failure, response.detail, None).reason == reason
    await sender.close()


@contextmanager
def blocking_server(context: ssl.SSLContext) -> Iterator[int]:
    """A server on a thread: those of asyncio close a failed handshake without its alert."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                raw = sock.dup()
                tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                with suppress(OSError):
                    tls.do_handshake()
                    tls.recv(65536)
                with suppress(OSError):  # Until the client has gone: a reset would drop the alert.
                    while raw.recv(65536):
                        pass
                raw.close()
                tls.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(20)


# --- the files of tenants and of the installation ------------------------------------------------


def _files(folder: Path, pair: tuple[str, str], name: str) -> IdentityPaths:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_text(pair[0])
    key.write_text(pair[1])
    return IdentityPaths(str(certificate), str(key))


async def test_the_most_specific_certificate_is_presented(
    nginx: Nginx, authority: Authority, tmp_path: Path
) -> None:
    sender = a_sender(
        ca_file=str(authority.ca_file),
        identity=_files(tmp_path, authority.client("installation"), "installation"),
        tenant_identities={"acme": _files(tmp_path, authority.client("acme"), "acme")},
    )
    target = a_target(nginx.port, scheme="https", host="hook.test")
    own = make_identity(certificate=(pair := authority.client("own"))[0], key=pair[1])
    only_trust = make_identity(authorities=authority.ca_file.read_text())
    for tenant, identity, presented in (
        ("other", None, b"CN=installation "),
        ("acme", None, b"CN=acme "),
        ("acme", own, b"CN=own "),
        ("acme", only_trust, b"CN=acme "),
        ("other", only_trust, b"CN=installation "),
    ):
        response = await ask(sender, a_request(target, tenant=tenant, tls=identity))
        assert response.excerpt.startswith(presented), (tenant, response)
    await sender.close()


async def test_a_renewed_file_is_used_without_a_restart_and_a_broken_one_is_our_failure(
    nginx: Nginx, authority: Authority, tmp_path: Path
) -> None:
    now = [1000.0]
    paths = _files(tmp_path, authority.client("first"), "ours")
    sender = HttpSender(
        SenderOptions(reach=Reach(loopback=True), ca_file=str(authority.ca_file), identity=paths),
        resolver=Resolver(getaddrinfo=names(hook_test="127.0.0.1")),
        monotonic=lambda: now[0],
    )
    request = a_request(a_target(nginx.port, scheme="https", host="hook.test"))
    assert (await ask(sender, request)).excerpt.startswith(b"CN=first ")

    async def after(pair: tuple[str, str]) -> Response:
        _files(tmp_path, pair, "ours")
        os.utime(paths.certificate, ns=(int(now[0]), int(now[0])))
        now[0] += LOOK_EVERY_S * 2
        await sender.close()  # No kept connection: the next request makes a new one.
        return await ask(sender, request)

    assert (await after(authority.client("second"))).excerpt.startswith(b"CN=second ")
    broken = await after((authority.client()[0], "no key at all"))
    assert broken.failure is Failure.SENDER_CERTIFICATE
    assert "private key in PEM" in broken.detail
    assert (await after(authority.client("third"))).excerpt.startswith(b"CN=third ")
    Path(paths.key).unlink()
    now[0] += LOOK_EVERY_S * 2
    missing = await ask(sender, request)
    assert missing.failure is Failure.SENDER_CERTIFICATE
    assert "cannot be read: no such file" in missing.detail
    await sender.close()


async def test_many_identities_of_one_tenant_leave_room_for_another(
    nginx: Nginx, authority: Authority
) -> None:
    sender = a_sender()
    target = a_target(nginx.port, scheme="https", host="hook.test")
    many = [an_identity(authority.client(f"many{n}"), authority) for n in range(6)]
    one = an_identity(authority.client("one"), authority)
    loop = asyncio.get_running_loop()
    ended: list[str] = []
    futures = []
    for tenant, identity in [*(("busy", it) for it in many), ("quiet", one)]:
        future: asyncio.Future[Response] = loop.create_future()
        request = a_request(target, tenant=tenant, tls=identity)

        def done(response: Response, who: str = tenant, future: Any = future) -> None:
            ended.append(who)
            future.set_result(response)

        sender.send(request, done)
        futures.append(future)
    responses = [await it for it in futures]
    assert {it.code for it in responses} == {200}
    assert ended.index("quiet") < len(many), "the quiet tenant did not wait for all of the other's"
    await sender.close()
