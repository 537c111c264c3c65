"""The proxy of the installation: tinyproxy up, down, refusing, slow; and proxies that misbehave."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from homing.model import Failure, Outcome
from homing.net.resolver import Resolver
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.egress import Proxy
from homing.policy.outage import could_be_hosts
from homing.policy.outcome import judge
from homing.policy.reach import Reach
from net.certificates import Authority
from net.nginx import wait_for_port
from net.receiver import (
    Call,
    a_free_port,
    a_request,
    a_target,
    ask,
    ask_all,
    names,
    receiver,
    say_ok,
)
from policy.test_reach import FORBIDDEN

LOOKUP = names(
    hook_test="127.0.0.1",
    two_test="127.0.0.9 127.0.0.1",
    proxy_test="127.0.0.1",
    in_test="127.0.0.1",
)


@contextmanager
def tinyproxy(folder: Path, *more: str) -> Iterator[int]:
    """A tinyproxy of its own; skips if there is none."""
    program = shutil.which("tinyproxy")
    if program is None:
        pytest.skip("tinyproxy is not installed: the proxy was NOT tested with it")
    port = a_free_port()
    config = folder / "tinyproxy.conf"
    lines = (f"Port {port}", "Listen 127.0.0.1", "Timeout 60", "MaxClients 100", "LogLevel Info")
    own = (f'LogFile "{folder}/log"', *more)
    config.write_text("\n".join((*lines, *own)) + "\n")
    process = subprocess.Popen([program, "-d", "-c", str(config)], stdout=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield port
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def sending(
    proxy: Proxy | None, *, reach: Reach | None = None, lookup: Any = LOOKUP, **more: Any
) -> AsyncIterator[HttpSender]:
    sender = HttpSender(
        SenderOptions(reach=reach or Reach(loopback=True), proxy=proxy, **more),
        resolver=Resolver(getaddrinfo=lookup),
    )
    try:
        yield sender
    finally:
        await sender.close()


# --- tinyproxy --------------------------------------------------------------------------------


async def test_http_and_https_go_through_a_tunnel_to_the_checked_address(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with tinyproxy(tmp_path) as port:
        async with (
            sending(Proxy("proxy.test", port), ca_file=str(authority.ca_file)) as sender,
            receiver(say_ok) as plain,
            receiver(say_ok, tls=authority.server("hook.test")) as secure,
        ):
            targets = [
                a_target(plain.port, host="hook.test"),
                a_target(secure.port, scheme="https", host="hook.test"),
            ]
            for target in targets * 2:
                response = await ask(sender, a_request(target))
                assert (response.code, response.proxied) == (200, True), response
                assert response.address == f"127.0.0.1:{target.port}"
            assert (len(plain.calls), len(secure.calls)) == (1, 1), "tunnels are kept, too"
            assert b"host: hook.test" in plain.calls[0].got
        said = (tmp_path / "log").read_text()
        assert f"CONNECT 127.0.0.1:{plain.port}" in said
        assert "hook.test" not in said, "the proxy is told addresses, not names"


async def test_a_proxy_that_resolves_is_told_the_name(tmp_path: Path) -> None:
    def no_resolver(host: str, port: int, **_: object) -> Any:
        assert host == "proxy.test", "only the proxy itself is looked up"
        return LOOKUP(host, port)

    with tinyproxy(tmp_path) as port:
        proxy = Proxy("proxy.test", port, resolves=True)
        async with sending(proxy, lookup=no_resolver) as sender, receiver(say_ok) as peer:
            # tinyproxy finds localhost in /etc/hosts; the guard allows it here.
            response = await ask(sender, a_request(a_target(peer.port, host="localhost")))
            assert response.code == 200, response
        assert f"CONNECT localhost:{peer.port}" in (tmp_path / "log").read_text()


async def test_hosts_that_are_excepted_are_dialled_directly(tmp_path: Path) -> None:
    proxy = Proxy("127.0.0.1", a_free_port(), direct_hosts=("hook.test", "*.inner.test"))
    lookup = names(hook_test="127.0.0.1", a_inner_test="127.0.0.1", in_test="127.0.0.1")
    async with sending(proxy, lookup=lookup) as sender, receiver(say_ok) as peer:
        for host in ("hook.test", "a.inner.test"):
            response = await ask(sender, a_request(a_target(peer.port, host=host)))
            assert (response.code, response.proxied) == (200, False)
        away = await ask(sender, a_request(a_target(peer.port, host="in.test")))
        assert away.failure is Failure.SENDER_PROXY


async def test_the_user_and_password_of_the_proxy(tmp_path: Path) -> None:
    with tinyproxy(tmp_path, "BasicAuth homing s3cret") as port:
        async with receiver(say_ok) as peer:
            request = a_request(a_target(peer.port, host="hook.test"))
            for proxy, code in (
                (Proxy("127.0.0.1", port, "homing", "s3cret"), 200),
                (Proxy("127.0.0.1", port, "homing", "wrong"), None),
                (Proxy("127.0.0.1", port), None),
            ):
                async with sending(proxy) as sender:
                    response = await ask(sender, request)
                assert response.code == code, response
                if code is None:
                    _is_ours_alone(response)
                    assert "s3cret" not in response.detail


async def test_a_proxy_that_refuses_the_target_is_our_failure(tmp_path: Path) -> None:
    with tinyproxy(tmp_path, "ConnectPort 443") as port:
        async with sending(Proxy("127.0.0.1", port)) as sender, receiver(say_ok) as peer:
            response = await ask(sender, a_request(a_target(peer.port, host="hook.test")))
        _is_ours_alone(response)
        assert "(403)" in response.detail
        assert peer.calls == []


async def test_a_target_that_the_proxy_cannot_reach_is_told_apart(tmp_path: Path) -> None:
    with tinyproxy(tmp_path) as port:
        async with sending(Proxy("127.0.0.1", port)) as sender:
            target = a_target(a_free_port(), host="hook.test")
            response = await ask(sender, a_request(target))
    assert response.failure is Failure.SENDER_TUNNEL, response
    assert judge(None, response.failure) is Outcome.SENDER_ERROR
    assert could_be_hosts(response.failure), "after ten minutes in which others got through"


async def test_the_next_address_is_tried_if_the_proxy_cannot_reach_the_first(
    tmp_path: Path,
) -> None:
    with tinyproxy(tmp_path) as port:
        async with sending(Proxy("127.0.0.1", port)) as sender, receiver(say_ok) as peer:
            response = await ask(sender, a_request(a_target(peer.port, host="two.test")))
            assert response.code == 200, response
            assert response.address == f"127.0.0.1:{peer.port}"


def _is_ours_alone(response: Any) -> None:
    assert response.failure is Failure.SENDER_PROXY, response
    assert judge(None, response.failure) is Outcome.SENDER_ERROR
    assert not could_be_hosts(response.failure)
    assert response.proxied


# --- proxies that are away or misbehave ---------------------------------------------------------


async def test_a_proxy_that_is_down_is_our_failure() -> None:
    async with sending(Proxy("127.0.0.1", a_free_port())) as sender:
        response = await ask(sender, a_request(a_target(80, host="hook.test")))
    _is_ours_alone(response)
    assert "connection refused" in response.detail


async def test_a_proxy_whose_name_is_unknown_is_our_failure() -> None:
    lookup = names(hook_test="127.0.0.1", proxy_test=socket.gaierror(socket.EAI_NONAME, "gone"))
    async with sending(Proxy("proxy.test", 3128), lookup=lookup) as sender:
        _is_ours_alone(await ask(sender, a_request(a_target(80, host="hook.test"))))


async def test_a_slow_proxy_ends_with_the_deadline() -> None:
    async def silent(call: Call) -> None:
        await call.gone()

    async with receiver(silent) as proxy, sending(Proxy("127.0.0.1", proxy.port)) as sender:
        request = a_request(a_target(80, host="hook.test"), deadline_ms=1_000)
        response = await ask(sender, request)
    assert response.failure is Failure.SENDER_TUNNEL
    assert response.detail == "the proxy did not reach the target within 1000 ms"


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        (b"", "closed the connection without a response"),
        (b"HTTP/1.1 200", "closed the connection without a response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is not HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "is not HTTP"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://login/\r\n\r\n", "(302)"),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", "(403)"),
        (b"HTTP/1.1 407 Who are you\r\n\r\n", "(407)"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "more than its response"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 20_000, "too large"),
    ],
)
async def test_a_proxy_that_misbehaves_is_our_failure(said: bytes, detail: str) -> None:
    async def behave(call: Call) -> None:
        await call.reader.readuntil(b"\r\n\r\n")
        await call.say(said)

    async with receiver(behave) as proxy, sending(Proxy("127.0.0.1", proxy.port)) as sender:
        response = await ask(sender, a_request(a_target(80, host="hook.test")))
    _is_ours_alone(response)
    assert detail in response.detail


async def test_a_gateway_error_of_the_proxy_is_told_apart() -> None:
    async def behave(call: Call) -> None:
        await call.reader.readuntil(b"\r\n\r\n")
        await call.say(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")

    async with receiver(behave) as proxy, sending(Proxy("127.0.0.1", proxy.port)) as sender:
        response = await ask(sender, a_request(a_target(80, host="hook.test")))
    assert response.failure is Failure.SENDER_TUNNEL
    assert response.detail == "the proxy could not connect to the target (502)"


# --- the guard, behind the proxy ------------------------------------------------------------------


def _resolving_to(address: str) -> Callable[..., Any]:
    return names(evil_example=address)


@pytest.mark.parametrize("resolves", [False, True])
async def test_no_forbidden_address_is_asked_of_the_proxy(resolves: bool) -> None:
    """As a literal, and, where names are looked up here, behind a name."""
    asked: list[bytes] = []

    async def note(call: Call) -> None:
        asked.append(await call.reader.readuntil(b"\r\n\r\n"))

    async with receiver(note) as peer:
        proxy = Proxy("127.0.0.1", peer.port, resolves=resolves)
        for address in FORBIDDEN:
            async with sending(
                proxy, reach=Reach(), lookup=_resolving_to(address.partition("%")[0])
            ) as sender:
                hosts = [address] if "%" not in address else []
                hosts += [] if resolves else ["evil.example"]
                requests = [a_request(a_target(443, host=host)) for host in hosts]
                for response in await ask_all(sender, requests):
                    assert response.failure is Failure.FORBIDDEN_ADDRESS, address
        control = a_request(a_target(443, host="93.184.216.34"))
        async with sending(proxy, reach=Reach()) as sender:
            assert (await ask(sender, control)).failure is Failure.SENDER_PROXY
    assert [one.split()[1] for one in asked] == [b"93.184.216.34:443"]


async def test_a_port_that_is_denied_is_not_asked_of_a_proxy_that_resolves() -> None:
    async with sending(Proxy("127.0.0.1", 9, resolves=True), reach=Reach()) as sender:
        for host, port in (("a.example", 6379), ("localhost", 443), ("x.localhost", 443)):
            response = await ask(sender, a_request(a_target(port, host=host)))
            assert response.failure is Failure.FORBIDDEN_ADDRESS


# --- source addresses -----------------------------------------------------------------------------


async def test_requests_leave_from_the_source_address() -> None:
    async with (
        receiver(say_ok) as peer,
        sending(None, sources={socket.AF_INET: "127.0.0.7"}) as sender,
    ):
        assert (await ask(sender, a_request(a_target(peer.port, host="hook.test")))).code == 200
        assert peer.calls[0].writer.get_extra_info("peername")[0] == "127.0.0.7"


async def test_a_source_address_that_this_machine_lacks_is_our_failure() -> None:
    async with (
        receiver(say_ok) as peer,
        sending(None, sources={socket.AF_INET: "203.0.113.9"}) as sender,
    ):
        response = await ask(sender, a_request(a_target(peer.port, host="hook.test")))
    assert response.failure is Failure.SENDER_LIMITS
    assert "203.0.113.9 in egress_source_addresses cannot be used" in response.detail
    assert not could_be_hosts(response.failure)


async def test_a_family_without_a_source_address_is_not_used() -> None:
    async with (
        receiver(say_ok) as peer,
        sending(None, sources={socket.AF_INET6: "::1"}) as sender,
    ):
        response = await ask(sender, a_request(a_target(peer.port, host="hook.test")))
    assert response.failure is Failure.SENDER_NETWORK
    assert peer.calls == []
