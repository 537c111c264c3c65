"""An outage of our own is told on every page."""

from __future__ import annotations

from homing.testing import running_server
from web.outage import close_gate
from web.test_pages import Person


def test_a_closed_gate_is_told_on_the_overview_and_changes_no_endpoint() -> None:
    with running_server() as server:
        person = Person(server)
        close_gate(server, lambda: "because of a sender outage" in person.see("/"))
        assert "healthy" in person.see("/")
        states = {it.state for it in server.client.endpoints()}
        assert states == {"enabled"}
