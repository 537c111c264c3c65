"""Generates the reference pages from the code; a test fails while they are out of date."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from inspect import isclass
from pathlib import Path
from typing import Any, cast, get_args, get_origin

import msgspec
import typer

import homing
from homing import errors as error_tree
from homing.cli.arguments import JsonFlag, KeyFlag, ServerFlag
from homing.engine.certificates import expiring_event, expiring_notice
from homing.engine.engine import Pulse
from homing.engine.fan_out import FanOut
from homing.engine.fleet.membership import FleetPulse
from homing.engine.notices import Notices
from homing.engine.relay import RelayPulse
from homing.errors import HomingError
from homing.model import SPEC, Endpoint, Health, State
from homing.policy.admission import EventDraft
from homing.policy.certificates import CertificateFacts, WatchedCertificate
from homing.policy.health import HEALTH_PRESETS, Change, HalfWay
from homing.policy.keys import Role
from homing.policy.presets import PRESETS
from homing.policy.tables import DAY_MS, HEALTH_RANGES, PolicyTable
from homing.ports.views import StoreFigures
from homing.server.settings import ENV_CONFIG, settings_table
from homing.server.telemetry import dropped_metric
from homing.web import problems
from homing.web.fleet_metrics import fleet_metrics
from homing.web.metrics import metric_families, processes_up, store_metrics
from homing.web.operation import Operation
from homing.web.relay_metrics import relay_metrics
from homing.web.routes import OPERATIONS
from homing.web.schemas import json_default
from homing.web.workfront.api import OPERATIONS as WORKFRONT_OPERATIONS

_NOTICE = "<!-- Generated from the code by `make docs`: change the code, not this page. -->\n"
_AT = 1_767_225_600_000  # 2026-01-01
_MINUTE = 60_000
_LEVELS = {it: it for it in ("debug", "info", "warning", "error", "critical")} | {
    "exception": "error"
}


def write_pages(directory: Path) -> Iterator[Path]:
    """Write every page and yield its path."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path = directory / name
        path.write_text(page(), encoding="utf-8")
        yield path


# --- settings -------------------------------------------------------------------------------


def settings_page() -> str:
    lines = [
        _NOTICE,
        "# Settings",
        "",
        "Settings are read from `homing.toml` (or the file that `--config` or "
        f"`{ENV_CONFIG}` names), then from the environment, then from command line options; the "
        "last one wins. If a setting is unknown or out of range, the server does not start.",
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
        f"Your own retry policy, with the fields {fields}. Give either `base_ms` and `retries` "
        "(retry n is due after (2ⁿ − 1) × `base_ms`) or `delays_ms`; `retries = 0` or an empty "
        "list makes a policy without retries. `anchor` is `first_failure` (all delays count from "
        "the first failure) or `previous_failure` (each delay counts from the failure before it). "
        "`on_gone` says what the response 410 means: `retry` (a failure like any other) or "
        "`deactivate` (the subscription becomes inactive and its pending deliveries are "
        "cancelled). `retry_after` says what a `Retry-After` on 429 or 503 does: `obey` (the retry "
        "moves to that time, an hour away at most, and nothing is sent to the URL before) or "
        "`ignore` (nothing: the schedule alone decides). The presets retry a 410 and obey a "
        "`Retry-After`. "
        "These presets are built in:"
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
    yield "## `[health]`"
    yield ""
    yield (
        "The limits of the rules that disable and freeze an endpoint. `preset` names the rules "
        "that the other settings of the table change: `workfront` is the default; `workfront-faq` "
        "has the freeze rule of Adobe's FAQ, which waits seven days."
    )
    yield ""
    names = list(HEALTH_PRESETS)
    yield f"| setting | {' | '.join(f'`{name}`' for name in names)} | range |"
    yield f"|---|{'---|' * len(names)}---|"
    for name, (low, high) in HEALTH_RANGES.items():
        values = " | ".join(f"{getattr(it, name):,}" for it in HEALTH_PRESETS.values())
        yield f"| `{name}` | {values} | {low:,} to {high:,} |"


def _tenants() -> Iterator[str]:
    yield "## `[tenants.NAME]`"
    yield ""
    yield (
        "Settings of one tenant: `policy` (a name), its quotas (`publish_per_second`, "
        "`pending_max`, `subscriptions_max`, `changes_per_minute`), `retention_days` (1 to 3,650, "
        "shorter or longer than the installation's), `fair_by` (a path, or empty), `event_check` "
        "(`off`, `warn` or `refuse`), `unknown_event_types` (`allow` or `refuse`), "
        "`client_certificate_file` and `client_key_file`, `ca_file` (authorities that this tenant "
        "trusts besides the installation's), and a table `health` with the limits that differ from "
        "the installation's, or with a `preset`."
    )


# --- API ------------------------------------------------------------------------------------


def api_page() -> str:
    lines = [
        _NOTICE,
        "# API",
        "",
        "The API is JSON over HTTP. The server has the same description as OpenAPI 3.1 at "
        "`/openapi.json`. Every request needs `Authorization: Bearer <key>`, unless the operation "
        "is *open*. Each operation lists the roles whose keys it accepts; other keys get `403`. "
        "For a key of one tenant, objects of other tenants do not exist. Too many requests get "
        "`429` with `Retry-After`. Unknown fields and parameters are refused. Errors are problem "
        "documents (RFC 9457), see [errors](errors.md).",
        "",
        "Lists return `{items, next_cursor}`, newest first. A page may have fewer items than "
        "`limit`; the last page is the one whose `next_cursor` is null. A `?` marks an optional "
        "field.",
    ]
    for operation in OPERATIONS:
        lines += ["", *_operation(operation)]
        if operation.id == "createSubscription":
            lines += ["", *_subscription_fields()]
    lines += [
        "",
        "# Workfront-compatible API",
        "",
        "The same subscriptions through the event subscription API of Adobe Workfront. The key is "
        "in `sessionID`, in `X-User-Token`, or in `Authorization` without a scheme. An invalid "
        "field gets `400`. See [Develop a Workfront integration]"
        "(../howto/develop-a-workfront-integration.md).",
    ]
    for operation in WORKFRONT_OPERATIONS:
        lines += ["", *_operation(operation)]
    return "\n".join(lines) + "\n"


def _subscription_fields() -> Iterator[str]:
    yield "| field | default | meaning |"
    yield "|---|---|---|"
    for field in SPEC.values():
        default = "required"
        if not field.required:
            default = f"`{msgspec.json.encode(json_default(field)).decode()}`"
        yield f"| `{field.api_name}` | {default} | {_cell(field.sentence)} |"


def _operation(operation: Operation) -> Iterator[str]:
    yield f"## {operation.method} {operation.path}"
    yield ""
    roles = ", ".join(role for role in Role if role in operation.roles)
    yield f"{operation.summary} " + ("*Open.*" if operation.open else f"*Keys: {roles}.*")
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
    good = {operation.status: operation.response, **operation.also}
    for status, kind in good.items():
        yield f"- `{status}`" + (f": {_fields(kind)}" if kind is not None else "")
    codes = ", ".join(f"`{error.http_status}` {error.code}" for error in operation.errors)
    if codes:
        yield f"- errors: {codes}"


def _fields(kind: type[msgspec.Struct]) -> str:
    """The names of a structure's fields, with those of the items of its lists."""
    names = []
    for field in msgspec.structs.fields(kind):
        name = f"`{field.encode_name}`" + ("" if field.required else "?")
        items = [
            it for it in get_args(field.type) if isclass(it) and issubclass(it, msgspec.Struct)
        ]
        if get_origin(field.type) is list and items:
            name += f" (each: {_fields(items[0])})"
        names.append(name)
    return ", ".join(names)


# --- errors ---------------------------------------------------------------------------------


def errors_page() -> str:
    lines = [
        _NOTICE,
        "# Errors",
        "",
        "An error is a problem document (RFC 9457, `application/problem+json`) with `type`, "
        "`title`, `status`, `detail`, `code` and `problems`, a list of `{field, reason}`. "
        f"`type` is `{problems.TYPE_PREFIX}` followed by the code. A `503` has `Retry-After`. "
        "After a `503` to a publish the event may exist, so publish it again with the same id.",
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


# --- system events --------------------------------------------------------------------------


class _Recorder:
    """Takes the place of the engine's ``FanOut`` and keeps the events that are written."""

    def __init__(self) -> None:
        self.drafts: list[EventDraft] = []

    def event(self, draft: EventDraft, **_: object) -> None:
        self.drafts.append(draft)


def events_page() -> str:
    lines = [
        _NOTICE,
        "# Homing's own events",
        "",
        "Homing publishes these events in the tenant of the endpoint that they are about. "
        "Subscribe to `homing.*` like to any other type. An event about an endpoint is never sent "
        "to that endpoint, and is written in the same commit as the change that it reports. Times "
        "(`at`, `since`) are Unix milliseconds.",
    ]
    for name, meaning, data in _notices():
        lines += ["", f"## `{name}`", "", meaning, "", "```json"]
        lines += [json.dumps(data, indent=2, ensure_ascii=False), "```"]
    return "\n".join(lines) + "\n"


def _notices() -> Iterator[tuple[str, str, dict[str, Any]]]:
    recorder = _Recorder()
    # The engine writes the examples, so they are what subscribers get.
    notices = Notices(cast("FanOut", recorder), lambda: _AT)
    health = Health(state=State.ENABLED, since=_AT, enabled_since=_AT)
    endpoint = Endpoint(
        id=3_700_000_000_000_000_000,
        bucket=0,
        tenant="default",
        url="https://receiver.example/hook",
        created_at=_AT,
        generation=0,
        health=health,
    )
    rate = {"attempts": 101, "failures": 71, "limit_percent": 70}
    alone = {
        "consecutive_failures": 2_001,
        "limit": 2_000,
        "without_success_ms": 259_200_001,
        "limit_ms": 259_200_000,
    }
    row = {"consecutive_failures": 1_000, "limit": 2_000}
    disabled, frozen = State.DISABLED, State.FROZEN
    for meaning, change in (
        (
            "A rule disabled the endpoint: from now on it gets one probe every 10 minutes. `rule` "
            "is `failure_rate` or `consecutive_failures`; `numbers` are the counters and limits of "
            "that rule.",
            Change(State.ENABLED, disabled, "failure_rate", rate),
        ),
        (
            "A rule (`no_success`, `hopeless`) or a person (`frozen_by_person`, named in `by`) "
            "froze the endpoint: there are no attempts until a person enables it.",
            Change(disabled, frozen, "no_success", alone),
        ),
        (
            "The endpoint was enabled, by a successful probe (`success`) or by a person "
            "(`enabled_by_person`, named in `by`).",
            Change(disabled, State.ENABLED, "success", {"disabled_ms": 10 * _MINUTE}),
        ),
    ):
        notices.changed(endpoint, change, by="", now=_AT)
        yield _notice(recorder, meaning)
    notices.warning(endpoint, HalfWay("consecutive_failures", row), now=_AT)
    yield _notice(
        recorder,
        "Half of a rule's limit is reached. Published once, until the warning is withdrawn.",
    )
    notices.dropped(endpoint, count=12, since=_AT - _MINUTE, now=_AT)
    yield _notice(
        recorder,
        "Deliveries to the endpoint were dropped. `count` is their number since the last such "
        "event; there is at most one event a minute.",
    )
    notices.gone(endpoint, endpoint.id, now=_AT)
    yield _notice(
        recorder,
        "The receiver responded with 410, and the policy of the subscription obeys that: the "
        "subscription is inactive, and its pending deliveries are being cancelled.",
    )
    yield _certificate_event(endpoint)


def _certificate_event(endpoint: Endpoint) -> tuple[str, str, dict[str, Any]]:
    facts = CertificateFacts("CN=homing", "CN=my authority", "5b" * 32, 0, _AT + 30 * DAY_MS)
    watched = WatchedCertificate(endpoint.tenant, facts, "", endpoint.id, endpoint.id, endpoint.url)
    warned = watched.warning(wall=_AT)
    assert warned is not None
    draft = expiring_event(watched, expiring_notice(watched, warned, now=_AT))
    meaning = (
        "A client certificate expires within 30, 7 or 1 `days`, or has expired (0). Published once "
        "for each; `subscription` and `url` are null if the certificate is in the tenant's file."
    )
    return draft.type, meaning, json.loads(draft.data)


def _notice(recorder: _Recorder, meaning: str) -> tuple[str, str, dict[str, Any]]:
    draft = recorder.drafts[-1]
    return draft.type, meaning, json.loads(draft.data)


# --- metrics --------------------------------------------------------------------------------


def metrics_page() -> str:
    lines = [
        _NOTICE,
        "# Metrics",
        "",
        "`GET /metrics` returns the text format of Prometheus. It needs a key with the role "
        "`metrics` or `admin`, or a client whose address is in `metrics_networks`. No label has a "
        "URL, a tenant or an id. Each server has its own metrics. One with several `processes` "
        "shows the metrics of all of them, each sample with the label `process` (1, 2, …), except "
        "those of the whole database. Those of buckets and "
        "heartbeats exist on PostgreSQL only, those of the outbox only where an outbox is relayed "
        "(`homing relay --metrics PORT` serves only these). The usual `process_…` metrics are "
        "there too.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    relay = relay_metrics(RelayPulse(), now=_AT)  # Only where an outbox is relayed.
    fleet = fleet_metrics(FleetPulse())  # Only on PostgreSQL.
    engine = metric_families(_pulse(), now=_AT)
    store = store_metrics(StoreFigures(0, 0, 0))
    up = processes_up({"1": 1})  # Only with several processes.
    telemetry = dropped_metric(0)  # Only with a collector of OpenTelemetry.
    for family in (*engine, *store, *fleet, *relay, up, telemetry):
        end = "_total" if family.type == "counter" else ""
        labels = sorted({f"`{name}`" for sample in family.samples for name in sample.labels})
        lines.append(
            f"| `{family.name}{end}` | {family.type} | {', '.join(labels)} "
            f"| {family.documentation} |"
        )
    return "\n".join(lines) + "\n"


def _pulse() -> Pulse:
    """One sample of every kind, so that every label occurs."""
    one = {"one": 1}
    return Pulse(
        draining=False,
        store_ok=True,
        slots=one,
        in_flight=one,
        ready=one,
        due_since=None,
        oldest_due=None,
        unsettled=0,
        endpoints=one,
        published=0,
        accepted=0,
        finished=one,
        attempts={("fresh", "delivered", ""): 1},
        commits=one,
        memory_bytes=0,
    )


# --- command line ---------------------------------------------------------------------------


_FLAGS: tuple[Any, ...] = (ServerFlag, KeyFlag, JsonFlag)
_SHARED = frozenset(flag.__metadata__[0].help for flag in _FLAGS)


def log_lines_page() -> str:
    """Every line that the program logs, read from its source."""
    lines = [
        _NOTICE,
        "# Log lines",
        "",
        "A line has a time, a level, its text and fields. The texts below are stable: search and"
        ' alert by them. With `log_format = "json"` the text is the field `event`. A line of an'
        " attempt has `trace_id` if its event has a trace. A line has at most 500 characters; only"
        " at the level debug lines are whole and exceptions have their traceback.",
        "",
        "The fields of `attempt` are `delivery`, `number`, `endpoint`, `lane`, `outcome`, `code`,"
        " `failure`, `ms`, `decided`, `retry`, `due_at` and `trace_id`.",
        "",
        "| Level | Text | Fields | Module |",
        "|---|---|---|---|",
    ]
    rows: dict[tuple[str, str, str], dict[str, None]] = {}
    root = Path(homing.__file__).parent
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for level, text, names in _log_calls(ast.parse(path.read_text(encoding="utf-8"))):
            rows.setdefault((level, text, module), {}).update(dict.fromkeys(names))
    for (level, text, module), fields in sorted(rows.items(), key=lambda it: it[0][2]):
        shown = ", ".join(f"`{name}`" for name in fields)
        lines.append(f"| {level} | {_cell(text)} | {shown} | `{module}` |")
    return "\n".join(lines) + "\n"


def _log_calls(tree: ast.AST) -> Iterator[tuple[str, str, list[str]]]:
    """The level, text and fields of each call of a logger."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Name(id="log" | "_log") | ast.Attribute(attr="_log"), attr=level
                ),
                args=[ast.Constant(value=str(text)), *_],
                keywords=keywords,
            ) if level in _LEVELS:
                fields = [it.arg for it in keywords if it.arg and it.arg != "exc_info"]
                fields += ["…"] * any(it.arg is None for it in keywords)
                if level == "exception" or any(it.arg == "exc_info" for it in keywords):
                    fields.append("exception")
                yield _LEVELS[level], text, fields


def cli_page() -> str:
    from homing.cli.main import app

    root: Any = typer.main.get_command(app)
    lines = [
        _NOTICE,
        "# Command line",
        "",
        "`homing COMMAND --help` prints the same. Commands that call a server take these options:",
        "",
        "| flag | meaning |",
        "|---|---|",
        *dict.fromkeys(_shared(root)),
        "",
        "The commands find a server on this machine by themselves: its address is the setting "
        "`listen`, and its key is in the data directory. With `--json`, a list is one line of JSON "
        "per item, and all other output is one document. There are no colours if the output is "
        "not a terminal or `NO_COLOR` is set.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | Success; also after SIGTERM or SIGINT. |",
        "| 1 | The server refused the command, a check failed, or outcomes could not be written "
        "before the stop. |",
        "| 2 | The command or a setting is invalid, or another process uses the address or the "
        "data. |",
        "| 3 | No server responds. |",
        "",
        "`homing --version` prints the version. `homing --install-completion` installs completion "
        "of commands and options for your shell.",
    ]
    for command, path in _commands(root, ()):
        lines += ["", *_command(command, path)]
    return "\n".join(lines) + "\n"


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Every command in the order of the help, those of a group after it."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        yield command, (*path, name)
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))


def _shared(root: Any) -> Iterator[str]:
    for command, _ in _commands(root, ()):
        yield from (_flag_row(it) for it in command.params if it.help in _SHARED)


def _command(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    arguments = [it for it in command.params if it.param_type_name == "argument"]
    flags = [it for it in command.params if it not in arguments and it.help not in _SHARED]
    names = " ".join(_argument(it) for it in arguments)
    yield f"## `homing {' '.join((*path, names)).strip()}`"
    yield ""
    yield (command.help or "").strip()
    if arguments or flags:
        yield ""
        yield "| argument or flag | meaning |" if arguments else "| flag | meaning |"
        yield "|---|---|"
    for it in arguments:
        yield f"| `{_argument(it)}` | {_cell(it.help or '')} |"
    for it in flags:
        yield _flag_row(it)


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required or name.startswith("[") else f"[{name}]"


def _flag_row(param: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*param.opts, *param.secondary_opts))
    return f"| {flags} | {_cell(param.help or '')} |"


def _value(value: Any) -> str:
    if value in ("", ()):
        return "empty"
    if isinstance(value, tuple):
        return f"`{', '.join(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "api.md": api_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
    "log-lines.md": log_lines_page,
}
