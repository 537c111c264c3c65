"""Descriptors are given back, and running out of them is a sender-side failure."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
from contextlib import suppress

from homing.model import Failure, Target
from homing.net.sender import HttpSender
from homing.ports import Request
from net.receiver import (
    Call,
    a_free_port,
    a_request,
    a_target,
    ask,
    ask_all,
    receiver,
    say_ok,
)


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))


async def _settles_at(descriptors: int) -> bool:
    for _ in range(200):
        if _descriptors() <= descriptors:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_two_hundred_failing_attempts_leave_no_descriptor(sender: HttpSender) -> None:
    async def behave(call: Call) -> None:
        request = await call.request()
        match request[-1:]:
            case b"0":
                call.reset()
            case b"1":
                await call.say(b"garbage")
            case b"2":
                await call.gone()

    async with receiver(behave) as peer:
        await ask(sender, a_request(a_target(peer.port), body=b"1"))
        before = _descriptors()
        plain, tls = a_target(peer.port), a_target(peer.port, scheme="https")
        refused = a_target(a_free_port())
        requests: list[Request] = []
        for n in range(50):
            requests.append(a_request(plain, body=b"%d" % (n % 2)))
            requests.append(a_request(plain, body=b"2", deadline_ms=200))
            requests.append(a_request(tls, deadline_ms=200))  # a handshake that never ends
            requests.append(a_request(refused))
        responses = await ask_all(sender, requests)
        assert all(response.failure is not None for response in responses)
        assert await _settles_at(before)


async def test_a_connection_given_up_at_once_never_closes_the_descriptor_of_another(
    sender: HttpSender,
) -> None:
    """A socket object that outlives its descriptor would close it again when it is collected."""
    asyncio.get_running_loop().set_exception_handler(lambda _, __: None)
    async with receiver(say_ok) as peer:
        unsendable = Target("http", "127.0.0.1", peer.port, "/a b", "127.0.0.1")
        responses = await ask_all(sender, [a_request(unsendable) for _ in range(20)])
        assert {response.failure for response in responses} == {Failure.SENDER_FAULT}
        await asyncio.sleep(0.05)
        victims = [os.open(os.devnull, os.O_RDONLY) for _ in range(60)]
        gc.collect()
        try:
            assert all(os.fstat(victim) for victim in victims)
        finally:
            for victim in victims:
                with suppress(OSError):
                    os.close(victim)


async def test_running_out_of_descriptors_is_our_trouble(sender: HttpSender) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = a_target(a_free_port())
    with socket.socket() as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno(), hard))
        try:
            response = await ask(sender, a_request(target))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert response.failure is Failure.SENDER_LIMITS


async def test_idle_connections_give_way_when_descriptors_run_out(sender: HttpSender) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with receiver(say_ok) as peer:
        requests = [a_request(a_target(peer.port), tenant=str(key)) for key in range(8)]
        await ask_all(sender, requests)
        with socket.socket() as highest:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno(), hard))
            try:
                response = await ask(sender, a_request(a_target(peer.port), tenant="other"))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert response.code == 200
