"""``homing relay``: what was committed into an outbox is published through the API."""

from __future__ import annotations

from typing import Annotated

import typer

from homing.cli.outbox import DatabaseFlag, wanted
from homing.cli.serve import ConfigFlag
from homing.cli.where import KeyFlag, ServerFlag, find
from homing.server.settings import load_settings


def relay(
    *,
    database: DatabaseFlag = None,
    config: ConfigFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    metrics: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Serve /metrics at this port of 127.0.0.1."),
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing waits, instead of staying.")
    ] = False,
) -> None:
    """Publish what is committed into an application's outbox, until SIGTERM.

    Any number may run at once. Killed at any point it loses and doubles nothing.
    """
    settings = load_settings({}, config=config)
    address = wanted(database, config)
    where = find(server, key, settings)

    from homing.cli.logs import configure_logs
    from homing.cli.relaying import run_relay

    configure_logs(level=settings.telemetry.log_level, form=settings.telemetry.log_format)
    run_relay(
        address,
        where,
        poll_ms=settings.outbox.poll_ms,
        metrics_port=metrics,
        until_empty=until_empty,
        grace_ms=settings.delivery.grace_ms,
    )
