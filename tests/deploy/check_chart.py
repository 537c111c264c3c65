"""The objects of the chart and the Compose file, read by the libraries of those who will read them.

Helm, the types of Kubernetes and the library of Docker Compose come as source from Go's module
proxy, in the versions and with the hashes of ``go.mod`` and ``go.sum``.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from deploy import test_chart
from deploy.programs import DEPLOY, find, needs

MODULE = Path(__file__).parent / "go"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
VALUES = (
    (),
    test_chart.ALL_ON,
    (
        "podDisruptionBudget.enabled=false",
        "networkPolicy.enabled=false",
        "migrations.enabled=false",
    ),
    (
        "networkPolicy.databaseTo[0].ipBlock.cidr=10.1.2.3/32",
        "networkPolicy.extraEgress[0].ports[0].port=587",
        "networkPolicy.metricsFrom=null",
        "image.pullSecrets[0].name=registry",
        "extraEnv[0].name=HOMING_LOG_LEVEL",
        "extraEnv[0].value=debug",
        "tolerations[0].operator=Exists",
        "nodeSelector.pool=hooks",
        "podAnnotations.team=hooks",
        "service.type=LoadBalancer",
        "podDisruptionBudget.maxUnavailable=50%",
    ),
)


def go(*argv: str, given: str = "", **environ: str) -> str:
    program = find("go")
    assert program is not None
    done = subprocess.run(
        [program, *argv],
        cwd=MODULE,
        input=given,
        capture_output=True,
        env={**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", **environ},
        timeout=3_000,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def helm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A Helm of its own, unless one is installed."""
    if find("go") and not find("helm"):
        folder = tmp_path_factory.mktemp("helm")
        go("build", "-o", str(folder / "helm"), "helm.sh/helm/v4/cmd/helm")
        os.environ["PATH"] += os.pathsep + str(folder)


@needs("go")
@pytest.mark.parametrize("settings", VALUES)
def test_kubernetes_knows_every_field_of_every_object(settings: tuple[str, ...]) -> None:
    text = test_chart.rendered(*settings)
    kinds = go("run", "./kubernetes", given=text).split()
    print(", ".join(f"{count} {kind}" for kind, count in sorted(Counter(kinds).items())))
    assert sorted(kinds) == sorted(it["kind"] for it in yaml.safe_load_all(text) if it)


@needs("go")
def test_a_field_that_kubernetes_does_not_know_is_noticed() -> None:
    text = test_chart.rendered()
    with pytest.raises(AssertionError, match="enableServiceLink"):
        go("run", "./kubernetes", given=text.replace("enableServiceLinks", "enableServiceLink"))
    with pytest.raises(AssertionError, match="cannot unmarshal"):
        go("run", "./kubernetes", given=text.replace("replicas: 2", "replicas: two"))


@needs("go")
@pytest.mark.parametrize(
    "test",
    [
        test_chart.test_helm_finds_nothing_wrong,
        test_chart.test_no_pod_has_privileges_or_a_writable_root,
        test_chart.test_pods_get_settings_that_exist_and_time_to_stop,
        test_chart.test_pods_run_commands_that_exist,
        test_chart.test_selectors_find_the_pods_that_they_are_meant_for,
        test_chart.test_pods_may_send_to_the_internet_but_not_to_private_networks,
        test_chart.test_everything_optional_can_be_switched_off,
    ],
)
def test_as_where_helm_is_installed(test: object) -> None:
    assert callable(test)
    test()


@needs("go")
def test_compose_reads_its_file() -> None:
    secrets = {"POSTGRES_PASSWORD": "p", "HOMING_ADMIN_KEY": "k", "HOMING_SECRET_KEY": "s"}
    project = yaml.safe_load(go("run", "./compose", str(COMPOSE), **secrets))
    homing = project["services"]["homing"]
    assert homing["environment"]["HOMING_DATABASE_URL"] == "postgresql://homing:p@postgres/homing"
    assert homing["read_only"] is True
    with pytest.raises(AssertionError, match="Write it to the file"):
        go("run", "./compose", str(COMPOSE))
