"""``homing doctor``: one check after the other, each with a sentence, and with what to do."""

from __future__ import annotations

from collections.abc import Iterator

from homing.cli.checks import Check, Verdict
from homing.cli.checks_fleet import check_fleet
from homing.cli.checks_here import check_here, check_settings
from homing.cli.checks_outbox import check_outbox
from homing.cli.checks_server import check_server
from homing.cli.output import console, dim, plain, row, say_json, table
from homing.errors import BadSetting
from homing.server.settings import Settings, settings_and_sources, settings_table

_MARKS = {
    Verdict.WELL: ("✓", "green"),
    Verdict.LOOK: ("!", "yellow"),
    Verdict.WRONG: ("✗", "bold red"),
    Verdict.UNKNOWN: ("·", "dim"),
}


def run_doctor(
    *, config: str | None, data: str | None, server: str | None, key: str | None, json: bool
) -> bool:
    """Whether nothing is wrong."""
    try:
        settings, sources = settings_and_sources({"data": data}, config=config)
    except BadSetting as error:
        checks = [Check("settings", Verdict.WRONG, error.detail, "Correct it and ask again.")]
        _say(checks, [], json=json)
        return False
    rows = list(_settings_rows(settings, sources))
    checks = [check_settings(sources)]
    checks += check_here(settings)
    checks += check_fleet(settings)
    checks += check_outbox(settings)
    checks += check_server(settings, server=server, key=key)
    _say(checks, rows, json=json)
    return not any(check.verdict is Verdict.WRONG for check in checks)


def _settings_rows(settings: Settings, sources: dict[str, str]) -> Iterator[dict[str, str]]:
    for setting in settings_table():
        yield {
            "name": setting.name,
            "value": setting.shown(settings),
            "source": sources.get(setting.name, "default"),
        }


def _say(checks: list[Check], settings: list[dict[str, str]], *, json: bool) -> None:
    if json:
        well = not any(check.verdict is Verdict.WRONG for check in checks)
        say_json({"ok": well, "settings": settings, "checks": checks})
        return
    from rich.text import Text

    out = console()
    for check in checks:
        mark, style = _MARKS[check.verdict]
        line = Text.assemble((f"{mark} ", style), (f"{check.name:<10} ", "bold"))
        line.append(plain(check.sentence))
        out.print(line, soft_wrap=True)
        if check.advice:
            out.print(Text(f"             → {plain(check.advice)}", style="yellow"), soft_wrap=True)
    changed = [one for one in settings if one["source"] != "default"]
    if changed:
        out.print()
        made = table("setting", "is", "from")
        for one in changed:
            row(made, one["name"], one["value"], dim(one["source"]))
        out.print(made)
    wrong = sum(check.verdict is Verdict.WRONG for check in checks)
    out.print()
    if wrong:
        out.print(f"{wrong} of {len(checks)} checks found something wrong.", style="bold red")
    else:
        out.print("Nothing is wrong.", style="green")
