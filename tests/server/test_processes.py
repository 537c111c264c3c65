"""Several processes on one port: how many, who accepts a connection, when one is started again."""

from __future__ import annotations

import asyncio
import copy
import os
import socket
from pathlib import Path

import pytest
from prometheus_client.core import CounterMetricFamily, Metric

from homing.errors import BadSetting
from homing.server.listener import Listener
from homing.server.metrics_exchange import MetricsExchange, replying
from homing.server.settings import PROCESSES_MAX, Settings, load_settings
from homing.server.siblings import Siblings
from homing.server.supervisor import LONG_LIFE_S, PAUSE_MAX_S, pause_s, process_count, usable_cores
from homing.web.metrics import metrics_text, of_all_processes

POSTGRES = "postgresql://h/db"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- the setting ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "url", "count"),
    [
        (1, "", 1),
        ("auto", "", 1),
        (1, POSTGRES, 1),
        (3, POSTGRES, 3),
        ("auto", POSTGRES, min(usable_cores(), PROCESSES_MAX)),
    ],
)
def test_how_many_processes_serve(processes: int | str, url: str, count: int) -> None:
    assert process_count(Settings.of(processes=processes, database_url=url)) == count


def test_auto_counts_the_cores_that_may_be_used() -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
@pytest.mark.parametrize("given", ["2", "64"])
def test_sqlite_refuses_more_than_one_and_says_what_to_do(given: str, source: str) -> None:
    if source == "file":
        Path("homing.toml").write_text(f"processes = {given}\n")
    environ = {"HOMING_PROCESSES": given} if source == "environment" else {}
    with pytest.raises(BadSetting) as caught:
        load_settings({"processes": given} if source == "flag" else {}, environ=environ)
    text = str(caught.value)
    assert f"processes = {given}" in text
    assert "1 or auto: SQLite serves one process; set database_url for more" in text


@pytest.mark.parametrize("given", ["auto", "1", "2", "64"])
def test_postgresql_takes_any_number(given: str) -> None:
    environ = {"HOMING_DATABASE_URL": POSTGRES}
    settings = load_settings({"processes": given}, environ=environ)
    assert str(settings.fleet.processes) == given
    text = '"auto"' if given == "auto" else given
    Path("homing.toml").write_text(f"processes = {text}\n")
    assert load_settings(environ=environ) == settings


@pytest.mark.parametrize("given", ["0", "-1", "65", "1.5", "many", "", "²"])
def test_another_value_stops_the_start(given: str) -> None:
    with pytest.raises(BadSetting, match="must be auto, or 1 to 64 processes"):
        load_settings(environ={"HOMING_PROCESSES": given, "HOMING_DATABASE_URL": POSTGRES})


# --- starting again -------------------------------------------------------------------------


def test_the_pause_before_a_start_grows_and_is_bounded() -> None:
    pauses = [pause_s(lives) for lives in range(100)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses == sorted(pauses)
    assert max(pauses) == PAUSE_MAX_S < LONG_LIFE_S


# --- who accepts ----------------------------------------------------------------------------


class _Sink(asyncio.Protocol):
    """Notes its process's open connections."""

    def __init__(self, connections: set[asyncio.Protocol]) -> None:
        self._connections = connections

    def connection_made(self, _transport: asyncio.BaseTransport) -> None:
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)


class _Three:
    """Three processes of one supervisor, played by one event loop."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1_000)
        self.port = int(listener.getsockname()[1])
        shared = Siblings(listener, 3)
        self.wake, waker = socket.socketpair()
        self.siblings = []
        for number in range(3):
            one = copy.copy(shared)
            one.listener = listener.dup()
            one.become(number, alone=False, wake=waker)
            self.siblings.append(one)
        listener.close()
        self.open: list[set[asyncio.Protocol]] = [set(), set(), set()]
        self.clients: list[asyncio.StreamWriter] = []
        self.listeners = [
            Listener(one.listener, connections_max=1_000, siblings=one) for one in self.siblings
        ]

    def serve(self, *numbers: int) -> None:
        for number in numbers:
            mine = self.open[number]
            self.listeners[number].open(lambda mine=mine: _Sink(mine), mine)  # type: ignore[misc]

    async def connect(self, count: int) -> list[asyncio.StreamWriter]:
        """Connections one by one, each accepted before the next."""
        for _ in range(count):
            expected = sum(map(len, self.open)) + 1
            self.clients.append((await asyncio.open_connection("127.0.0.1", self.port))[1])
            await self.until(expected)
        return self.clients

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while sum(map(len, self.open)) != count:
                await asyncio.sleep(0)

    async def close(self) -> None:
        for one in self.listeners:
            await one.close()


@pytest.fixture
def three() -> _Three:
    return _Three()


async def test_connections_are_spread_evenly(three: _Three) -> None:
    three.serve(0, 1, 2)
    assert three.wake.recv(100) == b"\0\0\0"  # The supervisor hears of each.
    await three.connect(30)
    sizes = sorted(map(len, three.open))
    assert sizes[0] >= 8, sizes
    assert sizes[2] <= 12, sizes
    await three.close()


async def test_a_burst_is_spread_too(three: _Three) -> None:
    kept = [socket.create_connection(("127.0.0.1", three.port)) for _ in range(60)]
    three.serve(0, 1, 2)
    await three.until(60)
    assert min(map(len, three.open)) >= 10, [len(one) for one in three.open]
    await three.close()
    for one in kept:
        one.close()


async def test_a_process_that_does_not_respond_gets_no_connections_and_blocks_none(
    three: _Three,
) -> None:
    three.serve(0, 1)
    three.siblings[2].serves()  # It says so, and hangs.
    await three.connect(10)
    assert len(three.open[2]) == 0
    await three.close()


async def test_a_process_that_stops_leaves_connections_to_the_others(three: _Three) -> None:
    three.serve(0, 1, 2)
    await three.connect(3)
    await three.listeners[0].close()
    mine = len(three.open[0])
    await three.connect(8)
    assert len(three.open[0]) == mine
    await three.listeners[1].close()
    await three.listeners[2].close()
    assert not three.siblings[0].somebody_serves()


async def test_the_counts_follow_connections_that_close(three: _Three) -> None:
    three.serve(0, 1, 2)
    for one in await three.connect(9):
        one.close()
    await three.until(0)
    for listener in three.listeners:
        listener.report()
    assert three.siblings[0].fewest_connections() == 0
    await three.close()


# --- metrics --------------------------------------------------------------------------------


def _published(count: int) -> list[Metric]:
    return [CounterMetricFamily("homing_events_published", "Events.", value=count)]


def _lines(metrics: list[Metric]) -> list[str]:
    text = metrics_text(metrics).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_each_sample_has_the_label_of_its_process() -> None:
    found = of_all_processes("2", _published(7), {"1": _published(5), "3": None})
    assert _lines(found) == [
        'homing_process_up{process="1"} 1.0',
        'homing_process_up{process="2"} 1.0',
        'homing_process_up{process="3"} 0.0',
        'homing_events_published_total{process="1"} 5.0',
        'homing_events_published_total{process="2"} 7.0',
    ]
    assert metrics_text(found).decode().count("# TYPE homing_events_published_total counter") == 1


async def test_a_process_asks_the_others_for_their_metrics(three: _Three) -> None:
    first, second, third = (
        MetricsExchange(one, lambda count=number: _published(count))  # type: ignore[misc]
        for number, one in enumerate(three.siblings)
    )
    async with replying(first), replying(second), replying(third):
        asked = await asyncio.gather(first.others(), first.others(), second.others())
    assert [set(one) for one in asked] == [{"2", "3"}, {"2", "3"}, {"1", "3"}]
    assert asked[0] is asked[1]  # one question for both
    assert _lines(list(asked[2]["3"] or ())) == ["homing_events_published_total 2.0"]


async def test_a_process_that_does_not_reply_is_missing(
    three: _Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homing.server.metrics_exchange.REPLY_WITHIN_S", 0.02)
    first = MetricsExchange(three.siblings[0], list)
    second = MetricsExchange(three.siblings[1], lambda: _published(1))
    async with replying(first):
        for _ in range(20):  # More questions than an inbox holds.
            assert await first.others() == {"2": None, "3": None}
        async with replying(second), asyncio.timeout(30):  # It finds old questions first.
            while (found := await first.others())["2"] is None:
                pass
    assert _lines(list(found["2"] or ())) == ["homing_events_published_total 1.0"]
