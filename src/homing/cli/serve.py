"""``homing serve``: serve the API and deliver, until SIGTERM."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from homing import __version__
from homing.cli.arguments import ConfigFlag
from homing.cli.import_structlog import import_structlog_alone
from homing.server.settings import ignored_variables, settings_and_sources, settings_table

if TYPE_CHECKING:
    from homing.server.admin_key import AdminKey

_SETTINGS = {setting.name: setting for setting in settings_table()}


def _flag(name: str) -> Any:
    setting = _SETTINGS[name]
    default = "empty" if setting.default in {"", ()} else str(setting.default)
    default = default.lower() if isinstance(setting.default, bool) else default
    text = f"{setting.sentence} ({setting.allowed}; default {default})"
    names = (setting.flag,)
    if setting.default is False:
        names = (f"{setting.flag}/--no-{setting.flag[2:]}",)
    return typer.Option(*names, help=text, show_default=False)


def serve(
    *,
    config: ConfigFlag = None,
    listen: Annotated[str | None, _flag("listen")] = None,
    data: Annotated[str | None, _flag("data")] = None,
    database_url: Annotated[str | None, _flag("database_url")] = None,
    allow_networks: Annotated[str | None, _flag("allow_networks")] = None,
    allow_hosts: Annotated[str | None, _flag("allow_hosts")] = None,
    allow_loopback: Annotated[bool | None, _flag("allow_loopback")] = None,
    allow_metadata: Annotated[bool | None, _flag("allow_metadata")] = None,
    hosts: Annotated[str | None, _flag("hosts")] = None,
    outbox_url: Annotated[str | None, _flag("outbox_url")] = None,
    policy: Annotated[str | None, _flag("policy")] = None,
    ca_file: Annotated[str | None, _flag("ca_file")] = None,
    fresh_slots: Annotated[str | None, _flag("fresh_slots")] = None,
    retry_slots: Annotated[str | None, _flag("retry_slots")] = None,
    endpoint_slots: Annotated[str | None, _flag("endpoint_slots")] = None,
    grace_ms: Annotated[str | None, _flag("grace_ms")] = None,
    retention_days: Annotated[str | None, _flag("retention_days")] = None,
    role: Annotated[str | None, _flag("role")] = None,
    processes: Annotated[str | None, _flag("processes")] = None,
    lease_ms: Annotated[str | None, _flag("lease_ms")] = None,
    log_level: Annotated[str | None, _flag("log_level")] = None,
    log_format: Annotated[str | None, _flag("log_format")] = None,
) -> None:
    """Serve the API and deliver events, until SIGTERM."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    settings, sources = settings_and_sources(flags, config=config)

    import_structlog_alone()

    import structlog

    from homing.cli.logs import configure_logs
    from homing.server.admin_key import admin_key

    configure_logs(level=settings.telemetry.log_level, form=settings.telemetry.log_format)
    if ignored := ignored_variables():
        structlog.get_logger("homing").info(
            "ignored variables that Kubernetes sets for services named homing…",
            first=ignored[0],
            count=len(ignored),
        )
    key = admin_key(settings)

    from homing.server.serve import serve as serve_until_signal

    serve_until_signal(
        settings,
        admin_key=key.value,
        ready=lambda address: _print_start(address, key),
        sources=sources,
    )


def _print_start(address: str, key: AdminKey) -> None:
    print(f"Homing {__version__} serves {address}")
    if sys.stdout.isatty():  # Otherwise the output is a log, which other people may read.
        from homing.cli.sign_in_link import link_to

        print(f"Sign in with this link (once, within 15 minutes): {link_to(address, key.value)}")
        if key.created:
            print(f"The admin key, shown only once: {key.value}")
    if key.path is not None:
        print(f"The admin key is stored in {key.path}")
    sys.stdout.flush()
