"""``homing doctor``: runs every check and prints its result, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from homing.cli.doctor_checks import (
    Check,
    CheckStatus,
    check_fleet,
    check_machine,
    check_outbox,
    check_server,
    check_settings,
)
from homing.cli.output import console, dim, plain, print_json, print_list
from homing.errors import BadSetting
from homing.server.settings import Settings, settings_and_sources, settings_table

_MARKS = {
    CheckStatus.OK: ("✓", "green"),
    CheckStatus.WARNING: ("!", "yellow"),
    CheckStatus.ERROR: ("✗", "bold red"),
    CheckStatus.UNKNOWN: ("·", "dim"),
}


def run_doctor(
    *, config: str | None, data: str | None, server: str | None, key: str | None, json: bool
) -> bool:
    """Whether no check found an error."""
    try:
        settings, sources = settings_and_sources({"data": data}, config=config)
    except BadSetting as error:
        advice = "Correct it and run the doctor again."
        _print([Check("settings", CheckStatus.ERROR, error.detail, advice)], [], json=json)
        return False
    rows = list(_settings_rows(settings, sources))
    checks = [
        check_settings(sources),
        *check_machine(settings),
        *check_fleet(settings),
        *check_outbox(settings),
        *check_server(settings, server=server, key=key),
    ]
    _print(checks, rows, json=json)
    return not _errors(checks)


def _errors(checks: list[Check]) -> int:
    return sum(check.status is CheckStatus.ERROR for check in checks)


def _settings_rows(settings: Settings, sources: dict[str, str]) -> Iterator[dict[str, str]]:
    for setting in settings_table():
        yield {
            "name": setting.name,
            "value": setting.shown(settings),
            "source": sources.get(setting.name, "default"),
        }


def _print(checks: list[Check], settings: list[dict[str, str]], *, json: bool) -> None:
    errors = _errors(checks)
    if json:
        print_json({"ok": not errors, "settings": settings, "checks": checks})
        return
    out = console()
    for check in checks:
        mark, style = _MARKS[check.status]
        line = Text.assemble((f"{mark} ", style), (f"{check.name:<10} ", "bold"))
        line.append(plain(check.sentence))
        out.print(line, soft_wrap=True)
        if check.advice:
            out.print(Text(f"             → {plain(check.advice)}", style="yellow"), soft_wrap=True)
    changed = [one for one in settings if one["source"] != "default"]
    if changed:
        out.print()
        print_list(
            changed,
            columns=("setting", "value", "source"),
            row=lambda one: (one["name"], one["value"], dim(one["source"])),
            empty="",
            json=False,
        )
    out.print()
    if errors:
        out.print(f"{errors} of {len(checks)} checks found an error.", style="bold red")
    else:
        out.print("No errors found.", style="green")
