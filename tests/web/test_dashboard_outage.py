"""A sender outage is shown on every page."""

from __future__ import annotations

from homing.server.settings import Settings
from homing.testing import running_server
from web.outage import begin_outage
from web.test_pages import Person


def test_a_sender_outage_is_shown_on_the_overview_and_changes_no_endpoint() -> None:
    with running_server() as server:
        person = Person(server)
        begin_outage(server, lambda: "because of a sender outage" in person.see("/"))
        assert "healthy" in person.see("/")
        states = {it.state for it in server.client.endpoints()}
        assert states == {"enabled"}


def test_the_system_page_says_when_outages_are_not_detected() -> None:
    settings = Settings.of(listen="127.0.0.1:0", outage_detection=False)
    with running_server(settings) as server:
        assert "not detected (outage_detection is off)" in Person(server).see("/system")
