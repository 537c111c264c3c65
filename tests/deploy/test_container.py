"""The container file, as far as no container engine is needed; the rest: check_container."""

from __future__ import annotations

import re
from fnmatch import fnmatch

import yaml

from deploy.programs import DEPLOY, ROOT
from homing.server.settings import DeliverySettings, settings_table

FILE = DEPLOY / "container" / "Containerfile"
COMPOSE = DEPLOY / "compose" / "compose.yaml"


def test_what_the_image_copies_exists_and_is_sent_to_the_engine() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    sent = [it.removeprefix("!") for it in lines if it.startswith("!")]
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", FILE.read_text(), re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert any(fnmatch(name, pattern) for pattern in sent), f"{name} is not sent"
    assert set(sent) == set(copied)


def test_containers_get_settings_that_exist() -> None:
    known = {it.env for it in settings_table()}
    assert set(re.findall(r"\bHOMING_[A-Z_]+", FILE.read_text())) <= known
    homing = yaml.safe_load(COMPOSE.read_text())["services"]["homing"]
    assert set(homing["environment"]) <= known
    grace_ms = int(homing["stop_grace_period"].removesuffix("s")) * 1000
    assert grace_ms > DeliverySettings().grace_ms + 5_000


def test_the_image_runs_without_privileges_and_knows_its_health() -> None:
    text = FILE.read_text()
    for line in ("USER 10001:10001", "STOPSIGNAL SIGTERM", "HEALTHCHECK ", "FROM scratch"):
        assert re.search(f"^{line}", text, re.MULTILINE)
