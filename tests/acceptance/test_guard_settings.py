"""A restart without ``--allow-loopback``: the deliveries wait, and the next start sends them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from acceptance.running import Receiver, Server


async def attempts(server: Server, event: str, count: int) -> list[dict[str, Any]]:
    """The attempts of the only delivery of an event, once there are so many."""
    line = server.line()
    async with asyncio.timeout(60):
        while True:
            found = (await line.ask("GET", f"/v1/deliveries?event={event}")).json["items"]
            shown = await line.ask("GET", f"/v1/deliveries/{found[0]['id']}")
            if len(shown.json["attempts"]) >= count:
                return list(shown.json["attempts"])
            await asyncio.sleep(0.05)


@pytest.mark.long
async def test_a_restart_with_other_settings_holds_what_they_refuse_and_blames_nobody(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path / "data")
    async with Receiver(tmp_path / "arrived").listening() as receiver:
        await server.start()
        document = {"url": receiver.url, "types": ["*"]}
        made = await server.line().ask("POST", "/v1/subscriptions", document)
        event = {"type": "a.b", "id": "before", "data": 1}
        await server.line().ask("POST", "/v1/events", event)
        (first,) = await attempts(server, "before", 1)
        assert first["outcome"] == "delivered"
        assert await server.terminate() == 0

        server.options = ()
        await server.start()
        await server.line().ask("POST", "/v1/events", {**event, "id": "during"})
        (refused,) = await attempts(server, "during", 1)
        assert (refused["outcome"], refused["failure"]) == ("sender_error", "forbidden_address")
        endpoint = await server.line().ask("GET", f"/v1/endpoints/{made.json['endpoint']}")
        counters = {it["name"]: it["value"] for it in endpoint.json["counters"]}
        assert (endpoint.json["state"], counters["failures"]) == ("enabled", 0)
        assert "no longer allow this target" in endpoint.json["sentence"]
        status = await server.line().ask("GET", "/v1/status")
        assert [it["url"] for it in status.json["refused_endpoints"]] == [receiver.url]
        door = await server.line().ask("POST", "/v1/subscriptions", document)
        assert (door.status, "allow_loopback" in door.body.decode()) == (422, True)
        tried = await server.line().ask("POST", f"/v1/subscriptions/{made.json['id']}/test")
        assert tried.json["outcome"] == "sender_error"
        assert await server.terminate() == 0

        server.options = ("--allow-loopback",)
        await server.start()
        line, id_ = server.line(), made.json["endpoint"]
        await line.ask("POST", f"/v1/endpoints/{id_}/enable")  # ends the hold of a minute
        *_, last = await attempts(server, "during", 2)
        assert (last["outcome"], len(receiver.arrivals["during"])) == ("delivered", 1)
        assert not (await line.ask("GET", "/v1/status")).json["refused_endpoints"]
        assert await server.terminate() == 0
