"""Reads a scenario from TOML; reports all mistakes at once, each with its line and field."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

import msgspec

from homing.errors import BadScenario, Invalid
from homing.model import State
from homing.policy.admission import TYPE_RULE, is_type
from homing.policy.health import HealthRules
from homing.policy.presets import (
    DEADLINE_MAX_MS,
    DEADLINE_MIN_MS,
    PRESETS,
    WORKFRONT,
    WORKFRONT_BASE_MS,
)
from homing.policy.retry import Schedule
from homing.policy.tables import HEALTH_RANGES, PRESET, PolicyTable, rules_from, schedule_from
from homing.sim.fields import (
    DAY_MS,
    DURATION_RULE,
    Fields,
    Problems,
    field_name,
    printable,
    read_duration,
)
from homing.sim.scenario import Action, Do, Outage, Receiver, Scenario, Start, Traffic
from homing.sim.toml_lines import Path, TooMuch, check_keys, lines_of

RUN_MAX_MS = 366 * DAY_MS
LATENCY_MAX_MS = 3_600_000
ENDPOINTS_MAX = 100_000
EVENTS_MAX = 5_000_000
COUNTER_MAX = 1_000_000_000_000
AGE_MAX_MS = 10 * 366 * DAY_MS

_SCHEDULE_KEYS = (
    "base_ms",
    "retries",
    "delays_ms",
    "anchor",
    "window_ms",
    "jitter",
    "deadline_ms",
    "retry_after",
)
_SHAPE_KEYS = {"base_ms", "retries", "delays_ms", "anchor"}  # they move the end of the window


def read_scenario(text: str, *, source: str) -> Scenario:
    """The scenario in this text; raises BadScenario."""
    problems = Problems()
    try:
        scenario = _scenario(Fields(_table(text, source), (), problems), source)
        if not problems.found and scenario.events > EVENTS_MAX:
            reason = f"would publish {scenario.events:,} events; at most {EVENTS_MAX:,} can be"
            problems.add(("traffic",), f"{reason} simulated")
        mistakes = _with_lines(problems, lines_of(text)) if problems.found else []
    except TooMuch as much:
        mistakes = [(much.line, f"{field_name(much.path)} {much.reason}")]
    if mistakes:
        lines = [f"{source}, line {line}: {printable(what)}." for line, what in sorted(mistakes)]
        several = f"{len(lines)} mistakes:"
        raise BadScenario("\n  ".join([several, *lines]) if len(lines) > 1 else lines[0])
    return scenario


def _table(text: str, source: str) -> dict[str, Any]:
    check_keys(text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).partition(" (at ")  # "line 2, column 9)"
        raise BadScenario(f"{source}, {where.rstrip(')')}: {printable(what)}.") from None
    except (ValueError, RecursionError):  # ``lines_of`` raises TooMuch, with the line
        lines_of(text)
        raise


def _with_lines(problems: Problems, lines: dict[Path, int]) -> list[tuple[int, str]]:
    mistakes = []
    for path, reason in problems.found:
        at = path
        while at not in lines:
            at = at[:-1]
        mistakes.append((lines[at], f"{field_name(path) or 'it'} {reason}"))
    return mistakes


def with_policy(scenario: Scenario, name: str) -> Scenario:
    """The same scenario under another preset."""
    return msgspec.structs.replace(scenario, schedule=PRESETS[name])


def _scenario(fields: Fields, source: str) -> Scenario:
    title = fields.text("title", source.rpartition("/")[2].removesuffix(".toml"))
    seed = fields.whole("seed", 0, (1 << 63) - 1) or 0
    run_for_ms = fields.duration("run_for", 1, RUN_MAX_MS, needed=True) or RUN_MAX_MS
    schedule, rules = _policy(fields)
    detects = fields.switch("outage_detection", default=True)
    places = fields.tables("endpoints")
    receivers = tuple(_receiver(one, run_for_ms) for one in places)
    listed = isinstance(fields.values.get("endpoints", []), list)
    if listed and not 1 <= len(receivers) <= ENDPOINTS_MAX:
        fields.wrong("", f"needs 1 to {ENDPOINTS_MAX:,} [[endpoints]]")
    index = _index(receivers, places)
    traffic = tuple(_traffic(one, index, run_for_ms) for one in fields.tables("traffic"))
    actions = tuple(_action(one, index, run_for_ms) for one in fields.tables("actions"))
    fields.end()
    return Scenario(
        title=title,
        run_for_ms=run_for_ms,
        receivers=receivers,
        traffic=traffic,
        actions=actions,
        seed=seed,
        schedule=schedule,
        rules=rules,
        outage_detection=detects,
    )


# --- endpoints, traffic, actions ------------------------------------------------------------


def _receiver(fields: Fields, run_for_ms: int) -> Receiver:
    responds = fields.whole("responds", 100, 599)
    receiver = Receiver(
        name=fields.text("name", needed=True),
        responds=200 if responds is None else responds,
        latency_ms=fields.whole("latency_ms", 0, LATENCY_MAX_MS) or 0,
        deadline_ms=fields.duration("deadline", DEADLINE_MIN_MS, DEADLINE_MAX_MS),
        retry_after_s=_retry_after(fields),
        outages=tuple(_outage(one, run_for_ms) for one in fields.tables("outages")),
        start=_start(fields),
    )
    fields.end()
    return receiver


def _start(fields: Fields) -> Start:
    state = fields.choice("state", tuple(State)) if fields.has("state") else ""
    counters = fields.table("counters")
    start = Start(
        state=State(state) if state else State.ENABLED,
        attempts=counters.whole("attempts", 0, COUNTER_MAX) or 0,
        failures=counters.whole("failures", 0, COUNTER_MAX) or 0,
        consecutive_failures=counters.whole("consecutive_failures", 0, COUNTER_MAX) or 0,
        first_attempt_age_ms=counters.duration("first_attempt", 0, AGE_MAX_MS),
        last_success_age_ms=counters.duration("last_success", 0, AGE_MAX_MS),
    )
    counters.end()
    if start.failures > start.attempts:
        counters.wrong("failures", "must not be more than attempts")
    return start


def _retry_after(fields: Fields) -> int | None:
    """Seconds, as in the header, or a duration."""
    if isinstance(fields.values.get("retry_after"), str):
        ms = fields.duration("retry_after", 0, DAY_MS)
        return None if ms is None else -(-ms // 1000)
    return fields.whole("retry_after", 0, DAY_MS // 1000)


def _index(receivers: Sequence[Receiver], places: Sequence[Fields]) -> dict[str, int]:
    """The index of each name; empty if a name is wrong, as others may refer to that one."""
    index: dict[str, int] = {}
    for number, (receiver, place) in enumerate(zip(receivers, places, strict=True)):
        if receiver.name and index.setdefault(receiver.name, number) != number:
            place.wrong("name", f"is the name of endpoints[{index[receiver.name]}], too")
    return index if all(receiver.name for receiver in receivers) else {}


def _endpoint(fields: Fields, key: str, index: dict[str, int]) -> int:
    named = fields.values.get(key)
    if not index or (isinstance(named, str) and named in index):
        return index.get(fields.text(key, needed=True), 0)
    fields.choice(key, index, what="the name of an endpoint:")
    return 0


def _outage(fields: Fields, run_for_ms: int) -> Outage:
    from_ms = fields.duration("from", 0, RUN_MAX_MS, needed=True) or 0
    to_ms = fields.duration("to", 0, RUN_MAX_MS)
    outage = Outage(
        from_ms=from_ms,
        to_ms=run_for_ms + 1 if to_ms is None else to_ms,
        responds=fields.whole("responds", 100, 599),
        hangs=fields.flag("hangs"),
        refuses=fields.flag("refuses"),
        fails=fields.number("fails", 0, 1),
        latency_ms=fields.whole("latency_ms", 0, LATENCY_MAX_MS),
        retry_after_s=_retry_after(fields),
    )
    fields.end()
    if to_ms is not None and to_ms <= from_ms:
        fields.wrong("to", "must lie after from")
    kinds = [kind for kind in ("responds", "hangs", "refuses") if fields.has(kind)]
    if len(kinds) > 1:
        fields.wrong(kinds[1], f"does not go together with {kinds[0]}")
    if not kinds and not fields.has("fails") and not fields.has("latency_ms"):
        fields.wrong("", "needs one of responds, hangs, refuses, fails or latency_ms")
    return outage


def _traffic(fields: Fields, index: dict[str, int], run_for_ms: int) -> Traffic:
    to = _endpoint(fields, "to", index)
    from_ms = fields.duration("from", 0, RUN_MAX_MS) or 0
    until_ms = fields.duration("until", 0, RUN_MAX_MS)
    every_ms = fields.duration("every", 1, RUN_MAX_MS)
    per_second = fields.number("per_second", 0.000001, 100_000)
    kind = fields.text("type", "event")
    fields.end()
    if fields.has("every") == fields.has("per_second"):
        fields.wrong("", "needs either every or per_second")
    if until_ms is not None and until_ms <= from_ms:
        fields.wrong("until", "must lie after from")
    if not is_type(kind) or kind.startswith("homing."):
        fields.wrong("type", f'{TYPE_RULE}, and not begin with "homing."')
    num, den = (every_ms or 1_000, 1)
    if per_second is not None:
        num, den = 1_000_000_000, max(round(per_second * 1_000_000), 1)
    return Traffic(
        to=to,
        from_ms=from_ms,
        until_ms=run_for_ms if until_ms is None else min(until_ms, run_for_ms),
        num=num,
        den=den,
        type=kind,
    )


def _action(fields: Fields, index: dict[str, int], run_for_ms: int) -> Action:
    at_ms = fields.duration("at", 0, run_for_ms, needed=True) or 0
    do = fields.choice("do", tuple(Do))
    endpoint = _endpoint(fields, "endpoint", index)
    fields.end()
    return Action(at_ms=at_ms, do=Do(do) if do else Do.ENABLE, endpoint=endpoint)


# --- policy ---------------------------------------------------------------------------------


def _policy(fields: Fields) -> tuple[Schedule, HealthRules]:
    own = fields.table("health")
    rules = _rules(own, _written(own, (PRESET, *HEALTH_RANGES)), HealthRules())
    if not isinstance(fields.values.get("policy", {}), dict):
        name = fields.choice("policy", tuple(PRESETS))
        return PRESETS.get(name, WORKFRONT), rules
    table = fields.table("policy")
    schedule = WORKFRONT
    if table.has("preset"):
        schedule = PRESETS.get(table.choice("preset", tuple(PRESETS)), WORKFRONT)
    written = _written(table, (*_SCHEDULE_KEYS, *HEALTH_RANGES))
    numbers = {key: written.pop(key) for key in HEALTH_RANGES if key in written}
    if table.fine:  # Otherwise problems of the whole may only follow from those of its fields.
        schedule = _overridden(table, schedule, written)
    return schedule, _rules(table, numbers, rules)


def _rules(fields: Fields, numbers: dict[str, Any], base: HealthRules) -> HealthRules:
    try:
        return rules_from(numbers, base)
    except Invalid as error:
        for field, reason in error.problems:
            fields.wrong(fields.spelled(field), reason)
        return base


def _written(fields: Fields, keys: tuple[str, ...]) -> dict[str, Any]:
    """The written values; ``window = "48h"`` becomes ``window_ms`` in milliseconds."""
    written: dict[str, Any] = {}
    for key in keys:
        short = key.removesuffix("_ms")
        if short != key and fields.has(short):
            value = _milliseconds(fields.take(short))
            if value is None:
                fields.wrong(short, DURATION_RULE)
            else:
                written[key] = value
        if fields.has(key):
            written[key] = fields.take(key)
    fields.end(known=keys)
    return written


def _milliseconds(value: Any) -> int | list[int | None] | None:
    """The milliseconds of a duration or of a list of them; None for a wrong one."""
    if isinstance(value, list):
        each = [read_duration(one) if isinstance(one, str) else None for one in value]
        return None if None in each else each
    return read_duration(value) if isinstance(value, str) else None


def _overridden(table: Fields, preset: Schedule, written: dict[str, Any]) -> Schedule:
    """The preset with some of its fields replaced."""
    values: dict[str, Any] = {
        "anchor": preset.anchor.value,
        "jitter": preset.jitter,
        "deadline_ms": preset.deadline_ms,
        "retry_after": preset.retry_after.value,
    }
    if not _SHAPE_KEYS & written.keys():
        values["window_ms"] = preset.window_ms
    if "base_ms" in written or "retries" in written:
        values["base_ms"] = WORKFRONT_BASE_MS
        values["retries"] = len(preset.delays_ms)
    else:
        values["delays_ms"] = list(preset.delays_ms)
    values |= written
    try:
        schedule = schedule_from("scenario", msgspec.convert(values, PolicyTable))
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        table.wrong(table.spelled(where.rstrip("`").split("[")[0]), f"is wrong: {what}")
    except Invalid as error:
        for field, reason in error.problems:
            table.wrong(table.spelled(field), reason)
    else:
        same = msgspec.structs.replace(schedule, name=preset.name) == preset
        return preset if same else schedule
    return preset
