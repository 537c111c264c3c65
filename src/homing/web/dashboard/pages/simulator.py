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
from homing.languages.language import Language
from homing.languages.sentences import Sentence, many, say
from homing.model import State, read_id
from homing.policy.explain import explain_change
from homing.web.dashboard.render import Writer
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.problems import NoSuchPath
from homing.web.show import ENDPOINT

PERSON = say("a person")
DOES = {
    "503": say("responds with {code}", code="503"),
    "500": say("responds with {code}", code="500"),
    "404": say("responds with {code}", code="404"),
    "hangs": say("hangs"),
    "refuses": say("refuses connections"),
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
OUTAGES = (  # the lengths that one click chooses
    ("1h", say("{n} h", n=1)),
    ("6h", say("{n} h", n=6)),
    ("30h", say("{n} h", n=30)),
    ("3d", many("{count} day", "{count} days", 3)),
)

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

    label: Sentence
    values: tuple[str, ...]


class Result(Struct, frozen=True):
    """The result of one policy, as the page shows it."""

    policy: str
    verdict: Sentence
    one_of: int  # only one of so many events was simulated
    image: str  # a data: URL
    summary: Sentence  # the image as text
    run_for_ms: int
    from_ms: int
    to_ms: int
    changes: tuple[tuple[str, str, Sentence], ...]  # time, new state, reason


class _Form:
    """Reads the fields and collects a problem for each wrong one."""

    def __init__(
        self,
        fields: dict[str, str],
        simulations: Simulations,
        policies: frozenset[str],
        endpoint: SimulatedEndpoint | None,
        language: Language,
    ) -> None:
        self._fields, self._policies = fields, policies
        self._simulations, self._endpoint = simulations, endpoint
        self._language = language
        self.problems: dict[str, Sentence] = {}

    def asked(self) -> list[SimulationAsked]:
        """One simulation for each policy, with the same seed; empty if a field is wrong."""
        run_for_ms = self._duration("run_for", 60_000, RUN_MAX_MS)
        from_ms = self._duration("from", 0, RUN_MAX_MS)
        if self._fields["outage"]:
            length_ms = self._duration("outage", 1_000, RUN_MAX_MS)
            self._fields["to"] = duration_text(from_ms + length_ms)
        to_ms = self._duration("to", 0, RUN_MAX_MS)
        is_real = self._endpoint is not None and self._endpoint.per_day > 0
        every_ms = 0
        if self._fields["every"] or not is_real:
            every_ms = self._duration("every", 1_000, RUN_MAX_MS)
        percent = self._whole("percent", 1, 100)
        seed = self._whole("seed", 0, SEED_MAX)
        if self._fields["does"] not in DOES:
            self.problems["does"] = say("Must be one of {names}.", names=", ".join(DOES))
        policies = [self._policy("policy")]
        if self._fields["compare"]:
            policies.append(self._policy("compare"))
        if "from" not in self.problems and "to" not in self.problems and to_ms <= from_ms:
            self.problems["to"] = say('Must be later than "Down from".')
        if not self.problems:
            run_for_ms = self._simulations.run_for_ms(policies, run_for_ms, to_ms=to_ms)
            self._fields["run_for"] = duration_text(run_for_ms)
        if every_ms and not self.problems and (count := -(-run_for_ms // every_ms)) > EVENTS_MAX:
            self.problems["every"] = say(
                "That would be {count} events; at most {most} are allowed.",
                count=count,
                most=EVENTS_MAX,
            )
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
                language=self._language.code,
            )
            for policy in policies
        ]

    def _duration(self, name: str, minimum: int, maximum: int) -> int:
        text = self._fields[name].replace(" ", "").replace("min", "m")
        if not _DURATION.fullmatch(text):
            self.problems[name] = say("Must be a duration like 90s, 45m, 6h or 1h30m.")
            return minimum
        value = sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text))
        if not minimum <= value <= maximum:
            self.problems[name] = say(
                "Must be {minimum} to {maximum}.",
                minimum=duration_text(minimum),
                maximum=duration_text(maximum),
            )
        return value

    def _whole(self, name: str, minimum: int, maximum: int) -> int:
        text = self._fields[name]
        if not re.fullmatch("[0-9]{1,10}", text) or not minimum <= int(text) <= maximum:
            self.problems[name] = say(
                "Must be a whole number from {minimum} to {maximum}.",
                minimum=minimum,
                maximum=maximum,
            )
            return minimum
        return int(text)

    def _policy(self, name: str) -> str:
        if self._fields[name] not in self._policies:
            self.problems[name] = say("There is no such policy.")
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
    form = _Form(fields, request.app.simulations, policies, endpoint, request.language)
    asked, refused, status = form.asked() if given else [], "", 200
    shown: list[SimulationShown] = []
    writer = Writer(request.language)
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
        results=[_result(one, it, writer) for one, it in zip(asked, shown, strict=False)],
        rows=_rows([it.figures for it in shown], writer),
    )


def _result(asked: SimulationAsked, shown: SimulationShown, writer: Writer) -> Result:
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
    summary = say(
        "{policy}: {delivered} of {accepted} delivered, {dropped} dropped, disabled for {span}.",
        policy=asked.policy,
        delivered=figures.delivered,
        accepted=figures.accepted,
        dropped=sum(figures.dropped.values()),
        span=writer.span(figures.disabled_ms),
    )
    return Result(
        policy=asked.policy,
        verdict=verdict(asked, figures, writer.span),
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
        raise NotFound(say("There is no such endpoint."))
    return await request.app.simulations.endpoint(request.caller, number)


def _rows(all_: list[SimulationFigures], writer: Writer) -> list[Row]:
    if not all_:
        return []
    counts = (
        (say("Accepted"), [it.accepted for it in all_]),
        (say("Delivered"), [it.delivered for it in all_]),
        (say("Delivered more than 1 s late"), [it.late.count for it in all_]),
        (say("Dropped, exhausted"), [it.dropped.get("exhausted", 0) for it in all_]),
        (say("Dropped, expired"), [it.dropped.get("expired", 0) for it in all_]),
        (say("Still pending at the end"), [it.pending for it in all_]),
        (say("Attempts"), [it.attempts for it in all_]),
        (say("Failed attempts"), [it.failed for it in all_]),
        (say("Probes"), [it.probes for it in all_]),
        (
            say("Most requests per second after recovery"),
            [it.peak_per_second_after_recovery for it in all_],
        ),
    )
    spans = (
        (say("Median delay of late deliveries"), [it.late.p50_ms for it in all_]),
        (say("Longest delay"), [it.late.max_ms for it in all_]),
        (say("Time disabled"), [it.disabled_ms or None for it in all_]),
        (say("Time frozen"), [it.frozen_ms or None for it in all_]),
    )
    rows = [Row(label, tuple(writer.number(it) for it in values)) for label, values in counts]
    rows += [Row(label, tuple(writer.span(it) for it in values)) for label, values in spans]
    return rows


PAGES = (Page(path="/simulator", handler=simulator, use_case=Simulations.run),)
