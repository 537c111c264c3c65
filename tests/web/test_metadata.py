"""Metadata of a subscription: kept, shown and changed everywhere, and never sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.terminal import Terminal
from homing.testing import KEY, running_server
from web.house import URL, House, live
from web.outage import receivers
from web.test_pages import Person


def test_metadata_is_kept_shown_merged_and_removed() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(metadata={"customer": "4711", "Customer": "x"})
        at = f"/v1/subscriptions/{made['id']}"
        assert made["metadata"] == {"customer": "4711", "Customer": "x"}
        other = await house.client.patch(at, {"description": "x"})
        assert other.json["metadata"] == {"customer": "4711", "Customer": "x"}
        merged = await house.client.patch(at, {"metadata": {"Customer": None, "team": "billing"}})
        assert merged.json["metadata"] == {"customer": "4711", "team": "billing"}
        rotated = await house.client.post(f"{at}/secret/rotate", {})
        assert rotated.json["metadata"] == merged.json["metadata"]
        assert (await house.client.get(at)).json["metadata"] == merged.json["metadata"]
        none = await house.client.patch(at, {"metadata": None})
        assert none.json["metadata"] == {}

    live(story)


def test_metadata_is_never_sent() -> None:
    async def story(house: House) -> None:
        await house.subscribe(metadata={"customer": "quite-unheard-of"})
        await house.world.publish()
        await house.world.wait(1_500)
        hits = house.world.sender.hits
        assert hits
        assert not any("quite-unheard-of" in f"{hit.headers} {hit.body!r}" for hit in hits)

    live(story)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({f"n{n}": "" for n in range(21)}, "metadata"),
        ({"": "x"}, "metadata.0"),
        ({"team": "x" * 501}, "metadata.team"),
        ({"team": 5}, "metadata[...]"),
        (["team"], "metadata"),
    ],
)
def test_wrong_metadata_is_refused_with_its_field(wrong: Any, field: str) -> None:
    async def story(house: House) -> None:
        document = {"url": URL, "types": ["*"], "metadata": wrong}
        refused = await house.client.post("/v1/subscriptions", document)
        assert refused.status == 422
        assert refused.json["problems"][0]["field"] == field

    live(story)


def test_metadata_goes_through_the_dashboard_and_the_client() -> None:
    with running_server() as server, receivers() as urls:
        made = server.client.subscribe(urls[0], ["*"], metadata={"customer": "4711"})
        person, at = Person(server), f"/subscriptions/{made.id}"
        assert "customer: 4711" in person.see(at)
        assert "customer: 4711" in person.see(f"{at}/edit")
        metadata = "customer: 4711\r\nteam: billing"
        response, _ = person.do(
            f"{at}/edit", at, url=made.url, types="*", metadata=metadata, active="on"
        )
        assert response.status == 303
        assert server.client.subscription(made.id).metadata == {
            "customer": "4711",
            "team": "billing",
        }
        response, page = person.do(
            f"{at}/edit", at, url=made.url, types="*", metadata="a: " + "x" * 501
        )
        assert response.status == 422
        assert "a must be at most 500 characters" in page
        changed = server.client.change_subscription(made.id, metadata={"team": None})
        assert changed.metadata == {"customer": "4711"}


def test_metadata_is_given_on_the_command_line(tmp_path: Path) -> None:
    with running_server() as server, receivers() as urls:
        terminal, at = Terminal(tmp_path), ("--server", server.url, "--key", KEY)
        given = ("--metadata", "customer: 4711", "--metadata", "team:billing", *at)
        made = terminal.well("subscribe", urls[0], *given, "--json").document
        assert made["metadata"] == {"customer": "4711", "team": "billing"}
        shown = terminal.well("subscribe", urls[0], *given).out
        assert "customer: 4711, team: billing" in shown
        refused = terminal.run("subscribe", urls[0], "--metadata", "customer", *at)
        assert "--metadata 'customer' must be like 'name: value'" in refused.err
