"""The Helm chart, rendered by Helm and read as objects of Kubernetes: how they fit together.

Needs ``helm``; ``make deploy-check`` builds it, and decodes the objects strictly.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.programs import DEPLOY, needs, output_of
from homing.server.settings import load_settings, settings_table

CHART = DEPLOY / "helm" / "homing"
Manifest = dict[str, Any]
COMPONENT = "app.kubernetes.io/component"
ALL_ON = ("serviceMonitor.enabled=true", "serviceMonitor.keySecret.name=prometheus")


def rendered(*settings: str, release: str = "homing") -> str:
    """The text of all objects; each setting is a ``--set`` option of Helm."""
    options = [option for it in settings for option in ("--set", it)]
    return output_of("helm", "template", release, CHART, "--namespace", "hooks", *options)


def objects(*settings: str) -> list[Manifest]:
    return [it for it in yaml.safe_load_all(rendered(*settings)) if it]


def of_kind(kind: str, manifests: list[Manifest]) -> list[Manifest]:
    return [it for it in manifests if it["kind"] == kind]


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    for kind in ("Deployment", "Job"):
        yield from (it["spec"]["template"] for it in of_kind(kind, manifests))


def selects(labels: dict[str, str], pod: Manifest) -> bool:
    return bool(labels.items() <= pod["metadata"]["labels"].items())


@needs("helm")
def test_helm_finds_nothing_wrong() -> None:
    assert "0 chart(s) failed" in output_of("helm", "lint", "--strict", CHART)


@needs("helm")
@pytest.mark.parametrize("wrong", ["replicas=2", "api.replicas=0", "image.repository="])
def test_a_value_that_the_chart_does_not_know_is_refused(wrong: str) -> None:
    with pytest.raises(AssertionError, match="values don't meet the specifications"):
        rendered(wrong)


@needs("helm")
def test_no_pod_has_privileges_or_a_writable_root() -> None:
    for pod in pods(objects(*ALL_ON)):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False  # A service "homing" would set HOMING_PORT.
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            mounted = {it["name"] for it in container["volumeMounts"]}
            assert mounted == {it["name"] for it in spec["volumes"]}


@needs("helm")
def test_pods_get_settings_that_exist_and_time_to_stop() -> None:
    known = {it.env for it in settings_table()}
    for deployment in of_kind("Deployment", objects("drainSeconds=7", "graceSeconds=20")):
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        environ = {it["name"]: it["value"] for it in container["env"]}
        assert set(environ) <= known
        assert environ["HOMING_ROLE"] == deployment["metadata"]["labels"][COMPONENT]
        assert (environ["HOMING_DRAIN_MS"], environ["HOMING_GRACE_MS"]) == ("7000", "20000")
        assert spec["terminationGracePeriodSeconds"] > 7 + 20 + 5


@needs("helm")
def test_pods_run_commands_that_exist() -> None:
    from homing.cli.main import app

    commands = {it.name or getattr(it.callback, "__name__", "") for it in app.registered_commands}
    for pod in pods(objects()):
        (container,) = pod["spec"]["containers"]
        (command,) = container["args"]
        assert command in commands


@needs("helm")
def test_selectors_find_the_pods_that_they_are_meant_for() -> None:
    manifests = objects(*ALL_ON)
    made = {it["metadata"]["labels"][COMPONENT]: it for it in pods(manifests)}
    assert set(made) == {"api", "deliver", "migrate"}
    for deployment in of_kind("Deployment", manifests):
        component = deployment["metadata"]["labels"][COMPONENT]
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert [name for name, pod in made.items() if selects(selector, pod)] == [component]
    found = {
        it["metadata"]["name"]: {
            name for name, pod in made.items() if selects(it["spec"]["selector"], pod)
        }
        for it in of_kind("Service", manifests)
    }
    assert found["homing"] == {"api"}
    assert {"api", "deliver"} <= found["homing-metrics"]
    budgets = of_kind("PodDisruptionBudget", manifests)
    guarded = [
        name
        for it in budgets
        for name, pod in made.items()
        if selects(it["spec"]["selector"]["matchLabels"], pod)
    ]
    assert guarded == ["api", "deliver"]
    (monitor,) = of_kind("ServiceMonitor", manifests)
    scraped = [
        it["metadata"]["name"]
        for it in of_kind("Service", manifests)
        if monitor["spec"]["selector"]["matchLabels"].items() <= it["metadata"]["labels"].items()
    ]
    assert scraped == ["homing-metrics"]
    policies = of_kind("NetworkPolicy", manifests)
    covered = [
        {n for n, pod in made.items() if selects(it["spec"]["podSelector"]["matchLabels"], pod)}
        for it in policies
    ]
    assert covered == [{"api"}, {"api", "deliver", "migrate"}]


@needs("helm")
def test_pods_may_send_to_the_internet_but_not_to_private_networks() -> None:
    policy = next(it for it in of_kind("NetworkPolicy", objects()) if "egress" in it["spec"])
    blocks = {
        peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"]
        for rule in policy["spec"]["egress"]
        for peer in rule.get("to", ())
    }
    assert set(blocks) == {"0.0.0.0/0", "::/0"}
    assert {"10.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16"} <= set(blocks["0.0.0.0/0"])


@needs("helm")
def test_the_configuration_is_a_settings_file_that_homing_reads(tmp_path: Path) -> None:
    (config,) = of_kind("ConfigMap", objects())
    file = tmp_path / "homing.toml"
    file.write_text(config["data"]["homing.toml"])
    assert load_settings(config=str(file), environ={}).telemetry.log_format == "json"


@needs("helm")
def test_everything_optional_can_be_switched_off() -> None:
    off = ("podDisruptionBudget", "networkPolicy", "migrations", "serviceMonitor")
    kinds = {it["kind"] for it in objects(*(f"{it}.enabled=false" for it in off))}
    assert kinds == {"ConfigMap", "Service", "Deployment"}
