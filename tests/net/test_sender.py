"""The sender says exactly what it should and gives one response of the right class.

Promised: what-homing-promises.md#attempts.
"""

from __future__ import annotations

import asyncio
import os
import socket

import msgspec
import pytest

from homing.model import Failure, Target
from homing.net.guard import REFUSAL
from homing.net.resolver import Resolver
from homing.net.response import ResponseReader
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.reach import Reach
from homing.ports import Response
from net.receiver import (
    OK,
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

PRIVATE = SenderOptions(reach=Reach(loopback=True))


async def test_the_bytes_on_the_wire_are_exactly_these(sender: HttpSender) -> None:
    async with receiver(say_ok) as peer:
        response = await ask(sender, a_request(a_target(peer.port), body=b'{"a": 1}'))
    assert peer.calls[0].got == (
        b"POST /hook?a=1 HTTP/1.1\r\n"
        b"host: 127.0.0.1:%d\r\n"
        b"content-type: application/json\r\n"
        b"content-length: 8\r\n"
        b"\r\n"
        b'{"a": 1}' % peer.port
    )
    assert response.code == 200
    assert response.headers == b"content-length: 2\r\n"
    assert response.excerpt == b"ok"


async def test_another_method_is_sent_as_it_is_given(sender: HttpSender) -> None:
    async with receiver(say_ok) as peer:
        asked = a_request(a_target(peer.port), body=b"")
        response = await ask(sender, msgspec.structs.replace(asked, method=b"OPTIONS"))
        await ask(sender, asked)
    first, _, second = peer.calls[0].got.partition(b"\r\n\r\n")
    assert first.startswith(b"OPTIONS /hook?a=1 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert second.startswith(b"POST /hook?a=1 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert response.code == 200


async def test_phases_are_those_that_happened(sender: HttpSender) -> None:
    async with receiver(say_ok) as peer:
        first = (await ask(sender, a_request(a_target(peer.port)))).phases
        second = (await ask(sender, a_request(a_target(peer.port)))).phases
    assert first.dns_us is not None
    assert first.connect_us is not None
    assert first.tls_us is None
    assert first.first_byte_us is not None
    parts = first.dns_us + first.connect_us + first.first_byte_us
    assert 0 < parts <= first.total_us
    assert (second.dns_us, second.connect_us, second.tls_us) == (None, None, None)
    assert second.first_byte_us is not None
    assert 0 < second.first_byte_us <= second.total_us


@pytest.mark.parametrize("body_bytes", [0, 1, 65_536, 65_537, 1_048_576])
async def test_a_body_of_any_size_arrives_whole(sender: HttpSender, body_bytes: int) -> None:
    body = os.urandom(body_bytes)
    async with receiver(say_ok) as peer:
        assert (await ask(sender, a_request(a_target(peer.port), body=body))).code == 200
        assert (await ask(sender, a_request(a_target(peer.port), body=body))).code == 200
    assert len(peer.calls) == 1
    assert peer.calls[0].got.count(body) >= 1
    assert peer.calls[0].got.endswith(body)


@pytest.mark.parametrize("reset", [False, True])
async def test_an_early_response_to_a_big_body_counts(sender: HttpSender, reset: bool) -> None:
    async def behave(call: Call) -> None:
        await call.reader.readuntil(b"\r\n\r\n")
        await call.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await asyncio.sleep(0.05)
        if reset:
            call.reset()

    async with receiver(behave) as peer:
        request = a_request(a_target(peer.port), body=b"x" * 8_000_000)
        assert (await ask(sender, request)).code == 413
        assert (await ask(sender, request)).code == 413
    assert len(peer.calls) == 2, "a request half written ends its connection"


async def test_a_receiver_that_speaks_first_is_refused(sender: HttpSender) -> None:
    async def behave(call: Call) -> None:
        await call.say(b"220 mail.test ESMTP\r\n")
        await call.gone()

    async with receiver(behave) as peer:
        response = await ask(sender, a_request(a_target(peer.port)))
    assert response.failure is Failure.BAD_RESPONSE


async def test_a_refused_connection(sender: HttpSender) -> None:
    port = a_free_port()
    response = await ask(sender, a_request(a_target(port)))
    assert response.failure is Failure.REFUSED
    assert response.address == f"127.0.0.1:{port}"
    assert response.detail == "connection refused"


async def test_an_unknown_name_is_theirs_and_a_silent_resolver_is_the_senders() -> None:
    lookup = names(
        gone_test=socket.gaierror(socket.EAI_NONAME, "not known"),
        dark_test=socket.gaierror(socket.EAI_AGAIN, "try again"),
    )
    sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=lookup))
    assert (await ask(sender, a_request(a_target(80, host="gone.test")))).failure is Failure.DNS
    assert (
        await ask(sender, a_request(a_target(80, host="dark.test")))
    ).failure is Failure.SENDER_DNS
    await sender.close()


async def test_a_forbidden_address_is_never_dialled() -> None:
    lookup = names(inner_test="127.0.0.1", mixed_test="8.8.8.8 127.0.0.1")
    sender = HttpSender(resolver=Resolver(getaddrinfo=lookup))
    async with receiver(say_ok) as peer:
        for host in ("inner.test", "mixed.test", "127.0.0.1", "::1"):
            response = await ask(sender, a_request(a_target(peer.port, host=host)))
            assert response.failure is Failure.FORBIDDEN_ADDRESS
            assert response.detail == REFUSAL.detail
            assert response.address is None
    assert peer.calls == []
    await sender.close()


async def test_the_next_address_is_tried() -> None:
    async with receiver(say_ok) as peer:
        lookup = names(two_test="127.0.0.2 127.0.0.1")
        sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=lookup))
        response = await ask(sender, a_request(a_target(peer.port, host="two.test")))
        await sender.close()
    assert response.code == 200
    assert response.address == f"127.0.0.1:{peer.port}"


async def test_a_refusal_tells_more_than_a_missing_route() -> None:
    lookup = names(two_test="127.0.0.1 ::1")
    sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=lookup))
    response = await ask(sender, a_request(a_target(a_free_port(), host="two.test")))
    assert response.failure is Failure.REFUSED
    await sender.close()


async def test_an_error_of_our_own_is_a_response(
    sender: HttpSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = _collect_reports()

    def broken(_: ResponseReader, __: bytes) -> None:
        raise ZeroDivisionError

    async with receiver(say_ok) as peer:
        with monkeypatch.context() as patch:
            patch.setattr(ResponseReader, "feed", broken)
            response = await ask(sender, a_request(a_target(peer.port)))
        assert response.failure is Failure.SENDER_FAULT
        bad = Target("http", "127.0.0.1", peer.port, "/a b\r\nx: y", "127.0.0.1")
        for _ in range(2):  # on a new connection, then on an idle one
            response = await ask(sender, a_request(bad))
            assert response.failure is Failure.SENDER_FAULT
            assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
    assert all(b"x: y" not in call.got for call in peer.calls)
    assert reported


async def test_a_callback_that_raises_harms_nobody(sender: HttpSender) -> None:
    reported = _collect_reports()

    def bad(_: Response) -> None:
        raise ZeroDivisionError

    async with receiver(say_ok) as peer:
        sender.send(a_request(a_target(peer.port)), bad)
        assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
        while not reported:
            await asyncio.sleep(0.01)
        assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
    assert [type(error) for error in reported] == [ZeroDivisionError], reported


def _collect_reports() -> list[BaseException]:
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    return reported


async def test_a_response_may_send_the_next_request(sender: HttpSender) -> None:
    """The engine sends from inside ``done``; the connection is free by then."""
    finished = asyncio.get_running_loop().create_future()
    left = 50

    async with receiver(say_ok) as peer:
        request = a_request(a_target(peer.port))

        def again(response: Response) -> None:
            nonlocal left
            left -= 1
            if left:
                sender.send(request, again)
            else:
                finished.set_result(response.code)

        sender.send(request, again)
        assert await finished == 200
    assert len(peer.calls) == 1


async def test_many_at_once_are_each_answered_once(sender: HttpSender) -> None:
    async def moody(call: Call) -> None:
        while request := await call.request():
            match request[-1] % 4:
                case 0:
                    await call.say(OK)
                case 1:
                    return
                case 2:
                    call.reset()
                    return
                case _:
                    await call.say(b"HTTP/1.1 503 B\r\ncontent-length: 0\r\n\r\n")

    async with receiver(moody) as peer:
        requests = [
            a_request(a_target(peer.port), body=bytes([n % 4]), tenant=str(n % 7))
            for n in range(400)
        ]
        responses = await ask_all(sender, requests)
    for request, response in zip(requests, responses, strict=True):
        expected = [200, Failure.CLOSED, Failure.RESET, 503][request.body[0]]
        assert (response.code or response.failure) == expected
