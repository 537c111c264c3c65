"""Three hundred receivers that drip delay no others, and all resources are freed after them."""

from __future__ import annotations

import asyncio
import os

from homing.model import Failure
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.reach import Reach
from net.receiver import Call, a_request, a_target, ask_all, receiver, say_ok

DRIPS = 300


async def _drip(call: Call) -> None:
    await call.request()
    await call.say(b"HTTP/1.1 200 OK\r\nx: ")
    while not call.writer.is_closing() and not call.reader.at_eof():
        call.writer.write(b"y")
        await asyncio.sleep(0.05)


async def test_drip_feeders_end_by_their_deadline_and_the_healthy_are_served_meanwhile() -> None:
    sender = HttpSender(SenderOptions(reach=Reach(loopback=True)))
    async with receiver(_drip) as slow, receiver(say_ok) as good:
        before = len(os.listdir("/dev/fd"))
        dripping = [
            a_request(a_target(slow.port), tenant=str(n), deadline_ms=1_500) for n in range(DRIPS)
        ]
        drips = asyncio.create_task(ask_all(sender, dripping))
        healthy = await ask_all(sender, [a_request(a_target(good.port)) for _ in range(50)])
        assert {one.code for one in healthy} == {200}
        responses = await drips
        # The last one: a very busy machine lets them wait in the sender's own queue first.
        late = {Failure.TIMEOUT, Failure.CONNECT_TIMEOUT, Failure.SENDER_LIMITS}
        assert {one.failure for one in responses} <= late
        await sender.close()
        async with asyncio.timeout(30):
            while len(os.listdir("/dev/fd")) > before + 4:
                await asyncio.sleep(0.05)
