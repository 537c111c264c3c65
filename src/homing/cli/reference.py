"""The reference pages that are made from the code; a test fails when they are stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

from homing import errors as error_tree
from homing.config import ENV_CONFIG, settings_table
from homing.config_tables import HEALTH_RANGES, PolicyTable
from homing.errors import HomingError
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS
from homing.web import problems
from homing.web.operation import Operation
from homing.web.routes import OPERATIONS

_MADE = "<!-- Made from the code by `make docs`; change it there. -->\n"


def write_pages(directory: Path) -> Iterator[Path]:
    """Write every page; their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path = directory / name
        path.write_text(page(), encoding="utf-8")
        yield path


# --- settings -------------------------------------------------------------------------------


def settings_page() -> str:
    lines = [
        _MADE,
        "# Settings",
        "",
        "They come from `homing.toml` (or the file that `--config` or "
        f"`{ENV_CONFIG}` names), then the environment, then flags; the later wins. What is "
        "unknown or out of range stops the start.",
        "",
        "| setting | environment | default | allowed | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{one.name}` | `{one.env}` | {_value(one.default)} | {_cell(one.allowed)} "
        f"| {_cell(one.sentence)} |"
        for one in settings_table()
    ]
    lines += ["", *_policies(), "", *_health(), "", *_tenants()]
    return "\n".join(lines) + "\n"


def _policies() -> Iterator[str]:
    fields = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(PolicyTable))
    yield "## `[policies.NAME]`"
    yield ""
    yield (
        f"A retry policy of your own: {fields}. Give either `base_ms` and `retries` "
        "(retry n is due after (2ⁿ − 1) × base) or `delays_ms`. `anchor` is `first_failure` "
        "(offsets from the first failure) or `previous_failure` (delays from one to the next). "
        "Presets:"
    )
    yield ""
    yield "| name | retries | anchor | window | deadline |"
    yield "|---|---|---|---|---|"
    for one in PRESETS.values():
        yield (
            f"| `{one.name}` | {len(one.delays_ms)} | `{one.anchor}` "
            f"| {one.window_ms:,} ms | {one.deadline_ms:,} ms |"
        )


def _health() -> Iterator[str]:
    rules = HealthRules()
    yield "## `[health]`"
    yield ""
    yield "The numbers of the rules that disable and freeze an endpoint."
    yield ""
    yield "| setting | default | range |"
    yield "|---|---|---|"
    for name, (low, high) in HEALTH_RANGES.items():
        yield f"| `{name}` | {getattr(rules, name):,} | {low:,} to {high:,} |"


def _tenants() -> Iterator[str]:
    yield "## `[tenants.NAME]`"
    yield ""
    yield (
        "What a tenant has of its own: `policy` (a name) and a table `health` with those "
        "numbers that differ from the installation's."
    )


# --- API ------------------------------------------------------------------------------------


def api_page() -> str:
    lines = [
        _MADE,
        "# API",
        "",
        "JSON over HTTP; the same as OpenAPI 3.1 is served at `/openapi.json`. Every request "
        "carries `Authorization: Bearer <key>`, except where it says *open*. Unknown fields and "
        "parameters are refused. Errors are problem documents (RFC 9457), see "
        "[errors](errors.md).",
        "",
        "Lists answer `{items, next_cursor}`, newest first. A page may hold fewer items than "
        "asked for; the end is where `next_cursor` is null.",
    ]
    for operation in OPERATIONS:
        lines += ["", *_operation(operation)]
    return "\n".join(lines) + "\n"


def _operation(operation: Operation) -> Iterator[str]:
    yield f"## {operation.method} {operation.path}"
    yield ""
    yield operation.summary + (" *Open.*" if operation.open else "")
    if operation.params:
        yield ""
        yield "| parameter | meaning |"
        yield "|---|---|"
        for param in operation.params:
            words = ", ".join(f"`{word}`" for word in param.schema.get("enum", ()))
            meaning = f"{param.sentence} {words}".strip()
            yield f"| `{param.name}` | {_cell(meaning)} |"
    if operation.request is not None:
        yield ""
        yield f"Body: {_fields(operation.request)}"
    yield ""
    good = {operation.status: operation.answer, **operation.also}
    for status, kind in good.items():
        yield f"- `{status}`" + (f": {_fields(kind)}" if kind is not None else "")
    codes = ", ".join(f"`{error.http_status}` {error.code}" for error in operation.errors)
    if codes:
        yield f"- errors: {codes}"


def _fields(kind: type[msgspec.Struct]) -> str:
    return ", ".join(
        f"`{field.encode_name}`" + ("" if field.required else "?")
        for field in msgspec.structs.fields(kind)
    )


# --- errors ---------------------------------------------------------------------------------


def errors_page() -> str:
    lines = [
        _MADE,
        "# Errors",
        "",
        "A refusal is a problem document (RFC 9457, `application/problem+json`) with `type`, "
        "`title`, `status`, `detail`, `code` and `problems`: a list of `{field, reason}`. "
        f"`type` is `{problems.TYPE_PREFIX}` and the code. A `503` carries `Retry-After`; after "
        "one an event may exist, so publish it again with the same id.",
        "",
        "| status | code | meaning |",
        "|---|---|---|",
    ]
    kinds = {*_tree(HomingError)} - {HomingError, error_tree.Stale}
    shown = [
        kind
        for kind in kinds
        if not issubclass(kind, (error_tree.Stale, error_tree.BadSetting, error_tree.DataInUse))
    ]
    lines += [
        f"| {kind.http_status} | `{kind.code}` | {_cell((kind.__doc__ or '').strip())} |"
        for kind in sorted(shown, key=lambda kind: (kind.http_status, kind.code))
    ]
    return "\n".join(lines) + "\n"


def _tree(kind: type[HomingError]) -> Iterator[type[HomingError]]:
    if kind.__module__ in (error_tree.__name__, problems.__name__):
        yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


# --- command line ---------------------------------------------------------------------------


def cli_page() -> str:
    from homing.cli.main import app

    group: Any = typer.main.get_command(app)
    lines = [_MADE, "# Command line"]
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        lines += ["", f"## `homing {name}`", "", (command.help or "").strip(), ""]
        lines += ["| flag | meaning |", "|---|---|"]
        for param in command.params:
            flags = ", ".join(f"`{flag}`" for flag in (*param.opts, *param.secondary_opts))
            lines.append(f"| {flags} | {_cell(param.help or '')} |")
    lines += [
        "",
        "`homing --version` shows the version. Exit codes: 0 after a stop by SIGTERM or SIGINT; "
        "2 when a setting is wrong, the address is in use or another process holds the data; 1 "
        "for anything else.",
    ]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if value == "":
        return "empty"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "api.md": api_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
}
