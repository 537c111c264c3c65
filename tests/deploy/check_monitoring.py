"""A real Prometheus scrapes a real server: the queries of the dashboard and the alert rules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from acceptance.running import Receiver, Server
from deploy.programs import find, listening, needs, output_of, started
from deploy.test_monitoring import PROMETHEUS, alerts, queries
from net.receiver import a_free_port
from postgres import Server as Postgres

PATIENCE_S = 300


class Prometheus:
    """The HTTP API of a running Prometheus."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/"

    async def get(self, path: str, **arguments: str) -> Any:
        url = f"{self._base}{path}?{urllib.parse.urlencode(arguments)}"

        def read() -> Any:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)["data"]

        while True:
            try:
                return await asyncio.to_thread(read)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # It is still starting.
                    raise
            await asyncio.sleep(0.2)

    async def values(self, query: str) -> list[float]:
        """The current values of a query, without those that are not numbers."""
        found = (await self.get("query", query=query))["result"]
        values = [float(it["value"][1]) for it in found]
        return [it for it in values if not math.isnan(it)]

    async def states(self) -> dict[str, tuple[str, str]]:
        """Of every alert rule: its state, and whether it can be evaluated."""
        (group,) = (await self.get("rules"))["groups"]
        return {it["name"]: (it["state"], it["health"]) for it in group["rules"]}


async def publish(server: Server) -> None:
    """Ten events in a second, for ever."""
    line, number = server.line(), 0
    while True:
        number += 1
        await line.ask("POST", "/v1/events", {"type": "a.b", "id": f"e-{number}", "data": {}})
        await asyncio.sleep(0.1)


def configuration(folder: Path, server: Server, key: str) -> Path:
    """The example, with this server as its target and a second for every interval."""
    (folder / "homing.key").write_text(key)
    (folder / "alerts.yaml").write_text((PROMETHEUS / "alerts.yaml").read_text())
    text = (PROMETHEUS / "prometheus.yaml").read_text().replace("15s", "1s")
    text = text.replace("/etc/prometheus/homing.key", str(folder / "homing.key"))
    text = text.replace('"10.0.0.11:8700", "10.0.0.12:8700"', f'"127.0.0.1:{server.port}"')
    file = folder / "prometheus.yaml"
    file.write_text(text)
    output_of("promtool", "check", "config", file)
    return file


@needs("prometheus", "promtool")
async def test_a_real_prometheus_answers_every_query_and_evaluates_every_rule(
    postgres: Postgres, tmp_path: Path
) -> None:
    database = await postgres.make()
    environ = {"HOMING_DATABASE_URL": database, "HOMING_OUTBOX_URL": database}
    output_of(sys.executable, "-m", "homing.cli.main", "outbox", "install", "--database", database)
    server = Server(
        tmp_path / "data", environ=environ, options=("--allow-loopback", "--processes", "2")
    )
    log, port = tmp_path / "prometheus.log", a_free_port()
    await server.start()
    line = server.line()
    async with asyncio.timeout(PATIENCE_S), Receiver(tmp_path / "seen").listening() as receiver:
        for url in (receiver.url, f"http://127.0.0.1:{a_free_port()}/refused"):
            made = await line.ask("POST", "/v1/subscriptions", {"url": url, "types": ["*"]})
            assert made.status == 201
        made = await line.ask("POST", "/v1/keys", {"name": "prometheus", "role": "metrics"})
        file = configuration(tmp_path, server, made.json["key"])
        place = ("--storage.tsdb.path", tmp_path / "tsdb")
        web = ("--web.listen-address", f"127.0.0.1:{port}")
        publishing = asyncio.create_task(publish(server))
        async with started("prometheus", "--config.file", file, *place, *web, log=log) as process:
            await listening(port, process, log)
            prometheus = Prometheus(port)
            for query in queries():
                await _answered(prometheus, query)
            print(f"{len(queries())} queries of the dashboard answered")
            await _evaluated(prometheus)
            metrics = (await line.ask("GET", "/metrics")).body
            _lint(metrics)
            publishing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await publishing
            assert await server.terminate() == 0
            while not {"HomingGone", "HomingServerDown"} <= await _pending(prometheus):
                await asyncio.sleep(0.2)
            print("a stopped server: HomingGone and HomingServerDown are pending")


async def _answered(prometheus: Prometheus, query: str) -> None:
    asked = query.replace("$job", "homing").replace("$__rate_interval", "30s")
    while not await prometheus.values(asked):
        await asyncio.sleep(0.2)


async def _evaluated(prometheus: Prometheus) -> None:
    """Until every rule was evaluated without an error; no alert fires for a healthy server."""
    while {it[1] for it in (await prometheus.states()).values()} != {"ok"}:
        await asyncio.sleep(0.2)
    states = await prometheus.states()
    assert set(states) == {it["alert"] for it in alerts()}
    assert "firing" not in {it[0] for it in states.values()}
    print(f"{len(states)} alert rules evaluated; none fires")


async def _pending(prometheus: Prometheus) -> set[str]:
    return {name for name, it in (await prometheus.states()).items() if it[0] != "inactive"}


def _lint(metrics: bytes) -> None:
    """Prometheus's own rules for names and texts of metrics."""
    promtool = find("promtool")
    assert promtool is not None
    done = subprocess.run(
        [promtool, "check", "metrics"], input=metrics, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
