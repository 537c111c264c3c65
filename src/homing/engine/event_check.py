"""Checks events against their types before they are accepted.

The types of a tenant are read with its first publish, and again after a change that the
catalog shows. Their schemas are read and compiled when an event needs one. Both are kept in memory
up to a limit; the tenant that holds most of it loses its oldest first.

A check that may take long, and the compilation of a schema, are pieces of work of their tenant
(``engine.shared``): one at a time, and each tenant has its share of the time of the event loop.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.engine.core import Core
from homing.engine.shared import Work
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import say
from homing.policy.admission import PROBLEMS_MAX, EventDraft
from homing.policy.event_check_rules import Check, CheckRules, Unknown
from homing.policy.event_schema import AT_ONCE_NS, BadSchema, Schema, compile_schema
from homing.policy.event_types import TYPES_MAX, EventType, TypeSummary, cut

log = structlog.get_logger("homing.event_check")

TYPES_KEPT = 50_000  # of all tenants: names, and how each is checked
SCHEMA_BYTES_KEPT = 8 * 1024 * 1024  # texts of the schemas that are kept compiled
SCHEMA_BYTES_LEAST = 1_024  # a compiled schema counts at least this much

UNKNOWN = say("is not an event type of this tenant: describe it first, or correct the name")

_K = TypeVar("_K")
_V = TypeVar("_V")


class _TenantTypes(Struct, frozen=True):
    """The types of a tenant, as of a version of the catalog."""

    version: int
    by_name: dict[str, tuple[Check, int]]  # how a type is checked, and its version


class _Budget:
    """How long a request may still check before it waits for a turn."""

    __slots__ = ("left_ns",)

    def __init__(self) -> None:
        self.left_ns = AT_ONCE_NS


class FairCache(Generic[_K, _V]):
    """Values by key, up to a total weight; the tenant with the most loses its oldest first."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max, self.weight = weight_max, 0
        self._kept: dict[str, OrderedDict[_K, tuple[_V, int]]] = {}
        self._weights: Counter[str] = Counter()

    def get(self, tenant: str, key: _K) -> _V | None:
        kept = self._kept.get(tenant)
        found = None if kept is None else kept.get(key)
        return None if found is None else found[0]

    def put(self, tenant: str, key: _K, value: _V, weight: int) -> None:
        """Keep a value as the newest of its tenant; others may have to go."""
        self.discard(tenant, key)
        self._kept.setdefault(tenant, OrderedDict())[key] = value, weight
        self._add(tenant, weight)
        while self.weight > self._weight_max:
            most = max(self._weights, key=self._weights.__getitem__)
            _, (_, freed) = self._kept[most].popitem(last=False)
            self._add(most, -freed)

    def discard(self, tenant: str, key: _K) -> None:
        kept = self._kept.get(tenant)
        if kept is not None and key in kept:
            self._add(tenant, -kept.pop(key)[1])

    def _add(self, tenant: str, weight: int) -> None:
        self.weight += weight
        self._weights[tenant] += weight
        if not self._weights[tenant]:
            del self._weights[tenant]
            self._kept.pop(tenant, None)


class EventCheck:
    """Checks drafts before they are published."""

    def __init__(self, core: Core, work: Work) -> None:
        self._admin, self._changed, self._work = core.admin, core.catalog.event_types, work
        self._rules = rules = core.options.checks
        self._tenant_rules = tenant_rules = core.options.tenant_checks
        self._refuses_unknown = any(
            it.unknown is Unknown.REFUSE for it in (rules, *tenant_rules.values())
        )
        self._types: FairCache[str, _TenantTypes] = FairCache(TYPES_KEPT)
        self._schemas: FairCache[str, tuple[int, Schema | None]] = FairCache(SCHEMA_BYTES_KEPT)
        self.results: Counter[str] = Counter()  # valid, warned, refused, unknown

    @property
    def is_on(self) -> bool:
        """Whether any event is checked at all."""
        return bool(self._changed) or self._refuses_unknown

    def rules_of(self, tenant: str) -> CheckRules:
        return self._tenant_rules.get(tenant, self._rules)

    def passes(self, drafts: Sequence[EventDraft]) -> bool:
        """Whether all events are known, now and without a wait, to match their types.

        False: ``check`` says more.
        """
        left_ns, valid = AT_ONCE_NS, 0
        for draft in drafts:
            known = self._types_now(draft.tenant)
            found = None if known is None else self._asked(draft, known)
            if found is None:
                return False
            check, version = found
            if check is Check.OFF:
                continue
            kept = self._schemas.get(draft.tenant, draft.type)
            if kept is None or kept[0] != version:
                return False
            if (schema := kept[1]) is not None:
                left_ns -= schema.cost_of(draft.data)
                if left_ns < 0 or not schema.matches(draft.data):
                    return False
                valid += 1
        if valid:
            self.results["valid"] += valid
        return True

    async def check(self, drafts: Sequence[EventDraft]) -> Sequence[EventDraft]:
        """The drafts, each with the warning that its event gets; raises Invalid for refused ones.

        The problems of a refusal name all events that are refused, up to a limit.
        """
        problems: list[FieldProblem] = []
        checked = list(drafts)
        budget = _Budget()
        for index, draft in enumerate(drafts):
            found = self._asked(draft, await self._types_of(draft.tenant))
            if found is None:
                self.results["unknown"] += 1
                problems.append(FieldProblem(f"events[{index}].type", UNKNOWN))
            elif found[0] is not Check.OFF:
                reason = await self._problem(draft, found[1], budget)
                if reason and found[0] is Check.REFUSE:
                    self.results["refused"] += 1
                    problems.append(FieldProblem(f"events[{index}].data", reason))
                elif reason:
                    self.results["warned"] += 1
                    checked[index] = replace(draft, warning=cut(f"data {reason}"))
            if len(problems) >= PROBLEMS_MAX:
                break
        if problems:
            raise Invalid(problems=tuple(problems))
        return checked

    async def _problem(self, draft: EventDraft, version: int, budget: _Budget) -> str:
        """Why the data of an event does not match its type; empty: it does."""
        schema = await self._schema(draft.tenant, draft.type, version)
        if schema is None:
            return ""
        cost_ns = schema.cost_of(draft.data)
        if cost_ns <= budget.left_ns:
            budget.left_ns -= cost_ns
            reason = schema.problem(draft.data)
        else:
            async with self._work.turn(draft.tenant):
                reason = schema.problem(draft.data)
            budget.left_ns = AT_ONCE_NS
        if not reason:
            self.results["valid"] += 1
        return reason

    def _asked(self, draft: EventDraft, known: _TenantTypes) -> tuple[Check, int] | None:
        """How an event is checked, and the version of its type; None: its type is refused."""
        found = known.by_name.get(draft.type)
        if found is None and self.rules_of(draft.tenant).unknown is Unknown.ALLOW:
            return _NOT_CHECKED
        return found

    def _types_now(self, tenant: str) -> _TenantTypes | None:
        """The types of a tenant, if they are in memory and current."""
        version = self._changed.get(tenant)
        if version is None:
            return _NO_TYPES
        kept = self._types.get(tenant, tenant)
        return kept if kept is not None and kept.version == version else None

    async def _types_of(self, tenant: str) -> _TenantTypes:
        kept = self._types_now(tenant)
        if kept is None:
            version = self._changed[tenant]  # A change meanwhile has a higher one.
            found, _ = await self._admin.event_types(tenant=tenant, after=None, limit=TYPES_MAX)
            rules = self.rules_of(tenant)
            by_name = {it.name: (_check_of(it, rules), it.version) for it in found}
            kept = _TenantTypes(version, by_name)
            self._types.put(tenant, tenant, kept, max(len(by_name), 1))
        return kept

    async def _schema(self, tenant: str, name: str, version: int) -> Schema | None:
        """The compiled schema of a type; None if it has none."""
        kept = self._schemas.get(tenant, name)
        if kept is not None and kept[0] == version:
            return kept[1]
        found = await self._admin.event_type(tenant, name)
        schema = None
        if found is not None and found.schema:
            async with self._work.turn(tenant):
                schema = _compiled(found)
        if found is not None:
            size = max(len(found.schema), SCHEMA_BYTES_LEAST)
            self._schemas.put(tenant, name, (found.version, schema), size)
        return schema


_NO_TYPES = _TenantTypes(0, {})
_NOT_CHECKED = (Check.OFF, 0)


def _check_of(it: TypeSummary, rules: CheckRules) -> Check:
    return Check.OFF if not it.has_schema else it.check or rules.check


def _compiled(it: EventType) -> Schema | None:
    try:
        return compile_schema(it.schema)
    except BadSchema as error:  # Another release has accepted it.
        log.warning(
            "the schema of an event type is not accepted, and its events are not checked: "
            "correct the schema",
            tenant=it.tenant,
            type=it.name,
            reason=str(error),
        )
        return None
