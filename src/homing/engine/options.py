"""The options of an engine: its limits, and the policies of tenants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from homing.model import Subscription
from homing.policy.certificates import WatchedCertificate
from homing.policy.erasure import ErasedIds
from homing.policy.event_check_rules import CheckRules
from homing.policy.fair import FairBy
from homing.policy.hash_keys import HashKeys
from homing.policy.health import HealthRules
from homing.policy.outage import OutageRules
from homing.policy.payload_fields import PayloadFields
from homing.policy.presets import PRESETS, WORKFRONT
from homing.policy.quota import Quota
from homing.policy.retry import Schedule

HOUR_MS = 3_600_000


class EngineOptions(Struct, frozen=True):
    """Limits of the engine, and the policies by name and by tenant."""

    fresh_slots: int = 512
    retry_slots: int = 256
    probe_searches_max: int = 64  # probes whose delivery is being chosen, at a time
    probe_slots: int = 512
    endpoint_slots: int = 16
    ready_max: int = 20_000  # deliveries held in memory; twice as many if they share events
    ready_bytes_max: int = 64 * 1024 * 1024  # of event data among them
    queues_max: int = 20_000  # idle endpoints kept in memory
    publish_events_max: int = 2_000  # in one commit
    request_deliveries_max: int = 100_000
    step_rows: int = 500  # in one step of expiry, retention, a replay job or a cleanup job
    retention_ms: int = 30 * 24 * HOUR_MS
    tenant_retention_ms: dict[str, int] = field(default_factory=dict)
    quiet_ms: int = HOUR_MS  # nothing expires for this long after a start or a step of the clock
    node: int = 0
    trace_share: float = 0.0  # of the events without a traceparent, whose spans are recorded
    guard: int = 0  # the fingerprint of the settings that say which addresses may be dialled
    schedules: dict[str, Schedule] = field(default_factory=lambda: dict(PRESETS))
    policy: str = WORKFRONT.name
    tenant_policies: dict[str, str] = field(default_factory=dict)
    health: HealthRules = HealthRules()
    tenant_health: dict[str, HealthRules] = field(default_factory=dict)
    outage: OutageRules = OutageRules()
    hold_after_lost_commits: bool = False  # publishes are refused until an operator confirms
    payload_fields: PayloadFields = PayloadFields()  # by which events can be found
    erased_ids: ErasedIds = ErasedIds((b"",))  # hashes of the ids of erased events
    hash_keys: HashKeys | None = None  # of these and all other keyed hashes
    origin: str = ""  # the name of this sender in the handshake of CloudEvents
    host_rate_per_second: float = 0  # for each host, over all tenants; 0: no limit
    certificates: Callable[[], Sequence[WatchedCertificate]] = tuple  # those in files
    fair_by: FairBy = FairBy()  # the first attempts of an endpoint take turns by this value
    tenant_fair_by: dict[str, FairBy] = field(default_factory=dict)
    checks: CheckRules = CheckRules()  # of events, against their types
    tenant_checks: dict[str, CheckRules] = field(default_factory=dict)
    cpu_ns: Callable[[], int] = lambda: 0  # that the thread of the loop has used; 0: unknown
    quota: Quota = Quota()
    tenant_quotas: dict[str, Quota] = field(default_factory=dict)

    def schedule_of(self, subscription: Subscription | None, *, tenant: str) -> Schedule:
        """The subscription's policy, else its tenant's, else the installation's."""
        schedules = self.schedules
        if subscription is not None and subscription.policy in schedules:
            return schedules[subscription.policy]
        schedule = schedules.get(self.tenant_policies.get(tenant, self.policy))
        return schedule if schedule is not None else schedules.get(self.policy, WORKFRONT)

    def deadline_of(self, subscription: Subscription) -> int:
        if subscription.deadline_ms is not None:
            return subscription.deadline_ms
        return self.schedule_of(subscription, tenant=subscription.tenant).deadline_ms

    def rules_of(self, tenant: str) -> HealthRules:
        return self.tenant_health.get(tenant, self.health)

    def pending_max_of(self, tenant: str) -> int:
        """How many pending deliveries a tenant may have; 0: no limit."""
        return self.tenant_quotas.get(tenant, self.quota).pending_max

    def fair_by_of(self, tenant: str) -> FairBy:
        return self.tenant_fair_by.get(tenant, self.fair_by)

    @property
    def is_fair(self) -> bool:
        """Whether any tenant has fair groups."""
        return bool(self.fair_by) or any(self.tenant_fair_by.values())

    def retention_of(self, tenant: str) -> int:
        return self.tenant_retention_ms.get(tenant, self.retention_ms)

    @property
    def retention_max_ms(self) -> int:
        """The longest retention of any tenant."""
        return max((self.retention_ms, *self.tenant_retention_ms.values()))

    @property
    def window_min_ms(self) -> int:
        """The shortest window: a younger delivery cannot have expired."""
        return min(schedule.window_ms for schedule in self.schedules.values())

    @property
    def window_max_ms(self) -> int:
        return max(schedule.window_ms for schedule in self.schedules.values())
