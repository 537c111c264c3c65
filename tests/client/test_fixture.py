"""The fixture ``homing_server``: a real server whose time a test moves."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from client.hooks import hook
from homing.testing import HomingServer
from homing_client import AsyncHoming, verify

FORMULA_S = [((2**n) - 1) * 84.8 for n in range(1, 12)]


def test_it_delivers(homing_server: HomingServer) -> None:
    with hook() as receiver:
        made = homing_server.client.subscribe(receiver.url, ["*"])
        homing_server.client.publish("invoice.paid", {"invoice": 17})
        homing_server.settle()
    ((headers, body),) = receiver.came
    assert verify(headers, body, made.secret).event_type == "invoice.paid"


def test_a_retry_is_not_made_a_millisecond_early(homing_server: HomingServer) -> None:
    server = homing_server
    with hook(status=500) as receiver:
        server.client.subscribe(receiver.url, ["*"])
        server.client.publish("a", 1)
        server.settle()
        receiver.status = 204
        server.clock.advance(84.799)
        server.settle()
        assert len(receiver.came) == 1
        server.clock.advance(0.001)
        server.settle()
        assert len(receiver.came) == 2
    (delivery,) = server.client.deliveries()
    assert delivery.status == "delivered"


def test_two_days_are_lived_through_in_a_moment(homing_server: HomingServer) -> None:
    server, began = homing_server, homing_server.clock.now()
    with hook(status=500) as receiver:
        server.client.subscribe(receiver.url, ["a"])
        server.client.publish("a", 1)
        server.live_through(hours=49)
    (row,) = server.client.deliveries(type="a")
    delivery = server.client.delivery(row.id)
    assert (delivery.status, delivery.reason) == ("dropped", "exhausted")
    times = [int(headers["webhook-timestamp"]) for headers, _ in receiver.came]
    assert times == [int((began / 1000) + s) for s in [0.0, *FORMULA_S]]
    assert server.clock.now() == began + 49 * 3_600_000


def test_a_disabled_endpoint_is_probed_by_the_same_clock(homing_server: HomingServer) -> None:
    server = homing_server
    with hook(status=500) as receiver:
        made = server.client.subscribe(receiver.url, ["a"])
        for number in range(101):
            server.client.publish("a", number)
        server.settle()
        assert server.client.endpoint(made.endpoint).state == "disabled"
        receiver.status = 204
        server.live_through(minutes=9)
        assert server.client.endpoint(made.endpoint).state == "disabled"
        server.live_through(minutes=2)
        assert server.client.endpoint(made.endpoint).state == "enabled"


def test_its_clock_is_set_forwards_only(homing_server: HomingServer) -> None:
    clock = homing_server.clock
    later = clock.utc() + timedelta(days=1)
    clock.set(later)
    assert clock.utc() == later
    assert clock.time() * 1000 == clock.now()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


async def test_an_asynchronous_test_uses_it_as_well(homing_server: HomingServer) -> None:
    async with AsyncHoming(homing_server.url, homing_server.key) as homing:
        assert (await homing.publish("a", 1)).deliveries == 0
        await asyncio.to_thread(homing_server.live_through, hours=1)
        assert await homing.ready()


def test_each_test_has_a_server_of_its_own(homing_server: HomingServer) -> None:
    assert list(homing_server.client.events()) == []


def test_a_receiver_that_never_responds_is_told_by_a_timeout(homing_server: HomingServer) -> None:
    server = homing_server
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server.client.subscribe(f"http://127.0.0.1:{silent.getsockname()[1]}/", ["*"])
        server.client.publish("a", 1)
        with pytest.raises(TimeoutError, match="still busy"):
            server.settle(timeout=0.2)


def test_the_plugin_imports_nothing_of_the_server_until_it_is_used(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import sys\n"
        "def test_lazy(request):\n"
        "    assert 'homing.pytest_plugin' in sys.modules\n"
        "    assert not {'homing.engine', 'homing_client', 'uvicorn', 'apsw'} & set(sys.modules)\n"
        "def test_used(homing_server):\n"
        "    assert homing_server.client.ready()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
