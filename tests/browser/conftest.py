"""A real server, a real Chromium, and a loud word where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from browser.person import Person
from homing.testing import HomingServer, running_server

# A folder for pictures of the pages, if somebody wants them: SCREENSHOTS=… pytest tests/browser
SHOTS = Path(os.environ["SCREENSHOTS"]) if "SCREENSHOTS" in os.environ else None
PATIENCE_MS = 60_000  # The machine may be busy: a page of the simulator is seconds of work.


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For one module: while it is there its thread has a loop, and no other test could run one."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("NO CHROMIUM: the dashboard is not looked at (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def server() -> Iterator[HomingServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def person(chromium: Browser, server: HomingServer) -> Iterator[Person]:
    """Somebody at a desk, not signed in yet; what the page complains of fails the test."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, locale="en-GB")
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    person = Person(context.new_page(), server, shots=SHOTS)
    yield person
    context.close()
    assert not person.complaints, person.complaints
    assert not person.alerts, "a script from outside ran"
