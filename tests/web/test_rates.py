"""Rates as people set them: over HTTP, with the client, on the command line, and for a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.terminal import Terminal
from homing.errors import BadSetting
from homing.server.settings import Settings, load_settings
from homing.testing import KEY, HomingServer, running_server
from homing_client import Homing, Invalid
from web.house import URL, House, live
from web.outage import receivers


def test_a_rate_is_kept_shown_changed_and_taken_away() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(rate_per_second=2.5)
        at = f"/v1/subscriptions/{made['id']}"
        assert made["rate_per_second"] == 2.5
        assert (await house.client.get(at)).json["rate_per_second"] == 2.5
        other = await house.client.patch(at, {"description": "x"})
        assert other.json["rate_per_second"] == 2.5
        changed = await house.client.patch(at, {"rate_per_second": 5})
        assert changed.json["rate_per_second"] == 5
        none = await house.client.patch(at, {"rate_per_second": None})
        assert none.json["rate_per_second"] is None

    live(story)


@pytest.mark.parametrize("wrong", [0, -1, 0.001, 1_001, "5", True, [1]])
def test_a_wrong_rate_is_refused_at_both_doors(wrong: Any) -> None:
    async def story(house: House) -> None:
        document = {"url": URL, "types": ["*"], "rate_per_second": wrong}
        refused = await house.client.post("/v1/subscriptions", document)
        assert refused.status == 422
        assert refused.json["problems"][0]["field"] == "rate_per_second"
        made = await house.subscribe()
        at = f"/v1/subscriptions/{made['id']}"
        assert (await house.client.patch(at, {"rate_per_second": wrong})).status == 422
        assert (await house.client.get(at)).json["rate_per_second"] is None

    live(story)


def test_deliveries_of_a_rated_subscription_wait_and_say_why() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(rate_per_second=1)
        for _ in range(4):
            await house.world.publish()
        await house.world.wait(1_500)
        listed = await house.client.get(f"/v1/deliveries?subscription={made['id']}")
        rows = sorted(listed.json["items"], key=lambda row: str(row["id"]))
        assert [row["status"] for row in rows] == ["delivered", "delivered", "pending", "pending"]
        assert [row["attempts_made"] for row in rows] == [1, 1, 0, 0]
        shown = (await house.client.get(f"/v1/deliveries/{rows[-1]['id']}")).json
        why = "in its turn: its subscription or host has a limit of attempts per second"
        assert why in shown["explanation"]

    live(story)


def _delivered(client: Homing) -> int:
    return sum(row.status == "delivered" for row in client.deliveries())


def test_the_client_and_the_command_line_set_a_rate(tmp_path: Path) -> None:
    with running_server() as server, receivers() as urls:
        made = server.client.subscribe(urls[0], ["a"], rate_per_second=4)
        assert server.client.subscription(made.id).rate_per_second == 4
        changed = server.client.change_subscription(made.id, rate_per_second=None)
        assert changed.rate_per_second is None
        with pytest.raises(Invalid, match="rate_per_second"):
            server.client.subscribe(urls[0], ["a"], rate_per_second=0)
        at = ("--server", server.url, "--key", KEY)
        typed = Terminal(tmp_path).well(
            "subscribe", urls[1], "b", "--rate-per-second", "0.5", "--json", *at
        )
        assert typed.document["rate_per_second"] == 0.5
        refused = Terminal(tmp_path).run("subscribe", urls[1], "--rate-per-second", "5000", *at)
        assert refused.code != 0
        assert "rate_per_second must be 0.01 to 1000" in refused.err
        for _ in range(3):
            server.client.publish("b", 1)
        server.settle()
        assert _delivered(server.client) == 1
        server.live_through(4.1)
        assert _delivered(server.client) == 3


def _host_of(server: HomingServer, urls: list[str]) -> None:
    for url in urls:
        server.client.subscribe(url, ["*"])
    for _ in range(2):
        server.client.publish("a", 1)


def test_the_operator_spares_a_host_over_all_its_urls() -> None:
    settings = Settings.of(
        listen="127.0.0.1:0", allow_loopback=True, grace_ms=1_000, host_rate_per_second=1
    )
    with running_server(settings) as server, receivers() as urls:
        _host_of(server, urls[:2])  # of one host
        server.settle()
        assert _delivered(server.client) == 1
        server.live_through(3.1)
        assert _delivered(server.client) == 4


def test_a_wrong_rate_for_hosts_stops_the_start() -> None:
    settings = load_settings(environ={"HOMING_HOST_RATE_PER_SECOND": "0.5"})
    assert settings.delivery.host_rate_per_second == 0.5
    for wrong in ("-1", "many", "100001"):
        with pytest.raises(BadSetting, match="host_rate_per_second"):
            load_settings(environ={"HOMING_HOST_RATE_PER_SECOND": wrong})
