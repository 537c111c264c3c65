"""The alert rules and the dashboard, as far as no server is needed; the rest: check_monitoring."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from deploy.programs import DEPLOY, ROOT, needs, output_of

PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = DEPLOY / "grafana" / "homing.json"
_NAME = re.compile(r"\b(?:homing|process)_[a-z_]+\b(?!\()")
OF_THE_CLIENT_LIBRARY = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
}


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    return list(group["rules"])


def queries() -> list[str]:
    """Every query of the dashboard, as it is in the file."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def documented() -> set[str]:
    """The metrics of the reference page; a histogram also has the series of its buckets."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    return {f"{name}_bucket" if kind == "histogram" else name for name, kind in rows}


def test_rules_and_queries_use_metrics_that_exist() -> None:
    used = {name for text in queries() for name in _NAME.findall(text)}
    used |= {name for rule in alerts() for name in _NAME.findall(rule["expr"])}
    assert used - documented() - OF_THE_CLIENT_LIBRARY == set()


def test_every_alert_says_what_happened_and_what_to_do_and_has_a_test() -> None:
    tests = (PROMETHEUS / "alerts_test.yaml").read_text()
    for rule in alerts():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert f'alertname="{rule["alert"]}", alertstate="firing"' in tests


@needs("promtool")
def test_the_rules_pass_their_tests() -> None:
    said = output_of("promtool", "check", "rules", PROMETHEUS / "alerts.yaml")
    assert f"SUCCESS: {len(alerts())} rules found" in said
    output_of("promtool", "check", "config", "--syntax-only", PROMETHEUS / "prometheus.yaml")
    assert "SUCCESS" in output_of("promtool", "test", "rules", PROMETHEUS / "alerts_test.yaml")


def test_panels_of_the_dashboard_have_titles_descriptions_and_do_not_overlap() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [it for it in dashboard["panels"] if it["type"] != "row"]
    assert all(it["title"] and it["description"] for it in panels)
    assert len({it["id"] for it in dashboard["panels"]}) == len(dashboard["panels"])
    cells: set[tuple[int, int]] = set()
    for it in dashboard["panels"]:
        place = it["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells
        assert place["x"] + place["w"] <= 24
        cells |= own
