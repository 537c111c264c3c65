"""What every test shares: asyncio, the stores, and a count of what ran on each store."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import pytest
import structlog

# No test depends on the machine's speed.
hypothesis.settings.register_profile(
    "homing", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("homing")

pytest_plugins = ["postgres", "stores"]

_configure = structlog.configure


def _configure_uncached(**given: Any) -> None:
    """A logger that a server in this process has cached would not be seen by ``capture_logs``."""
    _configure(**given | {"cache_logger_on_first_use": False})


structlog.configure = _configure_uncached  # type: ignore[assignment]  # Its arguments are the same.

_ran: Counter[str] = Counter()
_browser: Counter[str] = Counter()
_no_island: list[str] = []


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count on the process that collects the reports: it works with and without xdist."""
    from stores import STORES

    if report.nodeid.startswith("tests/browser/") and (report.when == "call" or report.skipped):
        _browser["skipped" if report.skipped else "ran"] += 1
    if report.nodeid.startswith("tests/security/test_cutoff") and report.skipped:
        _no_island.append(report.nodeid)
    if report.when != "call" or report.skipped:
        return
    for store in STORES:
        if f"[{store}" in report.nodeid or f"-{store}" in report.nodeid:
            _ran[store] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from stores import STORES

    if _ran:
        counts = ", ".join(f"{store} {_ran[store]}" for store in STORES)
        terminalreporter.write_line(f"store tests: {counts}")
    if _browser["skipped"]:
        said = f"BROWSER TESTS WERE SKIPPED: {_browser['skipped']}; no Chromium on this machine"
        terminalreporter.write_line(said, red=True, bold=True)
    elif _browser["ran"]:
        terminalreporter.write_line(f"browser tests: {_browser['ran']}")
    if _no_island:
        from security.outages import NO_ISLAND

        terminalreporter.write_line(NO_ISLAND, red=True, bold=True)


def _whole_run(config: pytest.Config) -> bool:
    return not (config.option.keyword or config.option.collectonly)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that silently left PostgreSQL out proves nothing about it."""
    if hasattr(session.config, "workerinput") or not _ran or not _whole_run(session.config):
        return
    asked = [arg for arg in session.config.args if "::" in arg]
    if not asked and _ran["postgres"] == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
