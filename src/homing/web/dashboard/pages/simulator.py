"""The simulator: one endpoint and one outage, under one policy or two."""

from __future__ import annotations

import re
from base64 import b64encode

from msgspec import Struct

from homing.app.simulation import (
    EVENTS_MAX,
    RUN_MAX_MS,
    SimulatedEndpoint,
    SimulationAsked,
    SimulationFigures,
    Simulations,
    SimulationShown,
    verdict,
)
from homing.errors import NotFound, TooMany, Unavailable
from homing.model import State, read_id
from homing.policy.explain import explain_change
from homing.web.dashboard.render import number, span
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.problems import NoSuchPath
from homing.web.show import ENDPOINT

PERSON = "a person"
DOES = {
    "503": "responds with 503",
    "500": "responds with 500",
    "404": "responds with 404",
    "hangs": "hangs",
    "refuses": "refuses connections",
}
DEFAULTS = {
    "policy": "workfront",
    "compare": "",
    "run_for": "24h",
    "from": "2h",
    "to": "9h",
    "does": "503",
    "percent": "100",
    "every": "1m",
    "seed": "7",
}
SEED_MAX = 1_000_000_000
OUTAGES = ("1h", "6h", "30h", "3d")  # the lengths that one click chooses

_DURATION = re.compile(r"(?:[0-9]{1,6}(?:d|h|m|s))+")
_PART = re.compile(r"([0-9]+)([dhms])")
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def duration_text(ms: int) -> str:
    """A duration as the fields take it: ``1d6h``."""
    text, left = "", ms
    for unit, size in _UNITS_MS.items():
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


class Row(Struct, frozen=True):
    """One figure as text, for each policy."""

    label: str
    values: tuple[str, ...]


class Result(Struct, frozen=True):
    """The result of one policy, as the page shows it."""

    policy: str
    verdict: str
    one_of: int  # only one of so many events was simulated
    image: str  # a data: URL
    summary: str  # the image as text
    run_for_ms: int
    from_ms: int
    to_ms: int
    changes: tuple[tuple[str, str, str], ...]  # time, new state, reason


class _Form:
    """Reads the fields and collects a problem for each wrong one."""

    def __init__(
        self,
        fields: dict[str, str],
        simulations: Simulations,
        policies: frozenset[str],
        endpoint: SimulatedEndpoint | None,
    ) -> None:
        self._fields, self._policies = fields, policies
        self._simulations, self._endpoint = simulations, endpoint
        self.problems: dict[str, str] = {}

    def asked(self) -> list[SimulationAsked]:
        """One simulation for each policy, with the same seed; empty if a field is wrong."""
        run_for_ms = self._duration("run_for", 60_000, RUN_MAX_MS, "1m to 14d")
        from_ms = self._duration("from", 0, RUN_MAX_MS, "0s to 14d")
        if self._fields["outage"]:
            length_ms = self._duration("outage", 1_000, RUN_MAX_MS, "1s to 14d")
            self._fields["to"] = duration_text(from_ms + length_ms)
        to_ms = self._duration("to", 0, RUN_MAX_MS, "0s to 14d")
        is_real = self._endpoint is not None and self._endpoint.per_day > 0
        every_ms = 0
        if self._fields["every"] or not is_real:
            every_ms = self._duration("every", 1_000, RUN_MAX_MS, "1s to 14d")
        percent = self._whole("percent", 1, 100)
        seed = self._whole("seed", 0, SEED_MAX)
        if self._fields["does"] not in DOES:
            self.problems["does"] = f"Must be one of {', '.join(DOES)}."
        policies = [self._policy("policy")]
        if self._fields["compare"]:
            policies.append(self._policy("compare"))
        if "from" not in self.problems and "to" not in self.problems and to_ms <= from_ms:
            self.problems["to"] = 'Must be later than "Down from".'
        if not self.problems:
            run_for_ms = self._simulations.run_for_ms(policies, run_for_ms, to_ms=to_ms)
            self._fields["run_for"] = duration_text(run_for_ms)
        if every_ms and not self.problems and (count := -(-run_for_ms // every_ms)) > EVENTS_MAX:
            reason = f"That would be {count:,} events; at most {EVENTS_MAX:,} are allowed."
            self.problems["every"] = reason
        if self.problems:
            return []
        return [
            SimulationAsked(
                policy=policy,
                run_for_ms=run_for_ms,
                from_ms=from_ms,
                to_ms=to_ms,
                does=self._fields["does"],
                percent=percent,
                every_ms=every_ms,
                seed=seed,
                endpoint=self._endpoint,
            )
            for policy in policies
        ]

    def _duration(self, name: str, minimum: int, maximum: int, rule: str) -> int:
        text = self._fields[name].replace(" ", "").replace("min", "m")
        if not _DURATION.fullmatch(text):
            self.problems[name] = "Must be a duration like 90s, 45m, 6h or 1h30m."
            return minimum
        value = sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text))
        if not minimum <= value <= maximum:
            self.problems[name] = f"Must be {rule}."
        return value

    def _whole(self, name: str, minimum: int, maximum: int) -> int:
        text = self._fields[name]
        if not re.fullmatch("[0-9]{1,10}", text) or not minimum <= int(text) <= maximum:
            self.problems[name] = f"Must be a whole number from {minimum} to {maximum:,}."
            return minimum
        return int(text)

    def _policy(self, name: str) -> str:
        if self._fields[name] not in self._policies:
            self.problems[name] = "There is no such policy."
        return self._fields[name]


async def simulator(request: PageRequest) -> Shown:
    """The form, and its results if the query of the request has its fields."""
    if not request.app.simulations.available:
        raise NoSuchPath
    given = request.query.text("policy") != ""
    fields = {name: request.query.text(name) if given else it for name, it in DEFAULTS.items()}
    fields["outage"] = request.query.text("outage") if given else ""
    policies = request.app.policies
    endpoint_key = request.query.text("endpoint")
    endpoint = await _endpoint(request, endpoint_key) if endpoint_key else None
    if endpoint is not None and not given:
        fields |= {"policy": endpoint.policy, "every": "" if endpoint.per_day else "1m"}
        fields |= {"from": "1h", "to": "7h", "run_for": "3d"}
    form = _Form(fields, request.app.simulations, policies, endpoint)
    asked, refused, status = form.asked() if given else [], "", 200
    shown: list[SimulationShown] = []
    if form.problems:
        status = 422
    elif asked:
        try:
            shown = await request.app.simulations.run(request.caller, asked)
        except (TooMany, Unavailable) as error:
            refused, status = error.detail, error.http_status
    return request.show(
        "simulator.html",
        status=200 if request.is_partial else status,  # htmx shows only successful responses.
        fields=fields,
        problems=form.problems,
        refused=refused,
        does=DOES,
        endpoint=endpoint,
        endpoint_key=endpoint_key if endpoint is not None else "",
        begins=endpoint is not None and not given,
        outages=OUTAGES,
        policies=sorted(policies),
        results=[_result(one, it) for one, it in zip(asked, shown, strict=False)],
        rows=_rows([it.figures for it in shown]),
    )


def _result(asked: SimulationAsked, shown: SimulationShown) -> Result:
    changes = tuple(
        (
            f"{it.at_ms // 3_600_000:02}:{it.at_ms // 60_000 % 60:02}:{it.at_ms // 1000 % 60:02}",
            it.after,
            explain_change(
                State(it.before),
                State(it.after),
                it.rule,
                it.numbers,
                by=PERSON if it.rule.endswith("_by_person") else "",
            ),
        )
        for it in shown.changes
    )
    image = "data:image/svg+xml;base64," + b64encode(shown.svg.encode()).decode()
    figures = shown.figures
    summary = (
        f"{asked.policy}: {figures.delivered:,} of {figures.accepted:,} delivered, "
        f"{sum(figures.dropped.values()):,} dropped, disabled for {span(figures.disabled_ms)}."
    )
    return Result(
        policy=asked.policy,
        verdict=verdict(asked, figures, span),
        one_of=asked.one_of,
        image=image,
        summary=summary,
        run_for_ms=asked.run_for_ms,
        from_ms=asked.from_ms,
        to_ms=asked.to_ms,
        changes=changes,
    )


async def _endpoint(request: PageRequest, text: str) -> SimulatedEndpoint:
    number = read_id(ENDPOINT, text)
    if number is None:
        raise NotFound("There is no such endpoint.")
    return await request.app.simulations.endpoint(request.caller, number)


def _rows(all_: list[SimulationFigures]) -> list[Row]:
    if not all_:
        return []
    counts = {
        "Accepted": [it.accepted for it in all_],
        "Delivered": [it.delivered for it in all_],
        "Delivered more than 1 s late": [it.late.count for it in all_],
        "Dropped, exhausted": [it.dropped.get("exhausted", 0) for it in all_],
        "Dropped, expired": [it.dropped.get("expired", 0) for it in all_],
        "Still pending at the end": [it.pending for it in all_],
        "Attempts": [it.attempts for it in all_],
        "Failed attempts": [it.failed for it in all_],
        "Probes": [it.probes for it in all_],
        "Most requests per second after recovery": [
            it.peak_per_second_after_recovery for it in all_
        ],
    }
    spans = {
        "Median delay of late deliveries": [it.late.p50_ms for it in all_],
        "Longest delay": [it.late.max_ms for it in all_],
        "Time disabled": [it.disabled_ms or None for it in all_],
        "Time frozen": [it.frozen_ms or None for it in all_],
    }
    rows = [Row(label, tuple(number(it) for it in values)) for label, values in counts.items()]
    rows += [Row(label, tuple(span(it) for it in values)) for label, values in spans.items()]
    return rows


PAGES = (Page(path="/simulator", handler=simulator, use_case=Simulations.run),)
