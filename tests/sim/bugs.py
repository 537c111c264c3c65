"""The planted bugs: mistakes that people really make, each a few lines, each with its seed."""

from __future__ import annotations

from sim.bugs_clock import CLOCK_BUGS
from sim.bugs_gate import GATE_BUGS
from sim.bugs_leases import LEASE_BUGS
from sim.bugs_names import NAME_BUGS
from sim.bugs_told import TOLD_BUGS
from sim.planting import bug as _bug

HEALTH = "homing.policy.health"
RETRY = "homing.policy.retry"
DECIDE = "homing.engine.decide:Decision"
DISPATCH = "homing.engine.dispatch:Dispatcher"
STATION = "homing.engine.station:Station"
SETTLE = "homing.engine.settle:Settler"
SWEEP = "homing.engine.sweep:Sweeper"
FLOW = "homing.store.flow"


BUGS = [
    *CLOCK_BUGS,
    *GATE_BUGS,
    *LEASE_BUGS,
    *NAME_BUGS,
    *TOLD_BUGS,
    # --- the rules of health
    _bug(
        "the rate is looked at one attempt too early",
        (f"{HEALTH}:_rate_over", "attempts > rules.rate", "attempts >= rules.rate"),
    ),
    _bug(
        "exactly the limit of the rate disables",
        (f"{HEALTH}:_rate_over", "failures > rules", "failures >= rules"),
    ),
    _bug(
        "one failure in a row too many before disabling",
        (f"{HEALTH}:_disabling", "row >= rules", "row > rules"),
    ),
    _bug(
        "one failure in a row too many before freezing for good",
        (f"{HEALTH}:_freezing", "row >= rules", "row > rules"),
    ),
    _bug(
        "one failure in a row too few before freezing",
        (
            f"{HEALTH}:_freezing",
            "row > rules.consecutive_freeze:",
            "row >= rules.consecutive_freeze:",
        ),
    ),
    _bug(
        "freezing looks at the first attempt only",
        (
            f"{HEALTH}:_without_success_ms",
            "(health.last_success_at, health.first_attempt_at, health.manual_enable_at)",
            "(health.first_attempt_at,)",
        ),
    ),
    _bug(
        "a person's enable does not count as a beginning",
        (f"{HEALTH}:_without_success_ms", ", health.manual_enable_at)", ")"),
    ),
    _bug(
        "a success while frozen enables",
        (f"{HEALTH}:after_success", "is not State.DISABLED", "is State.ENABLED"),
    ),
    _bug(
        "the rate is not reset at enable",
        (f"{HEALTH}:after_success", "attempts=0,\nfailures=0,\nwarned=0,", "warned=0,"),
    ),
    _bug(
        "a person's enable keeps the failures in a row",
        (f"{HEALTH}:enable", "consecutive_failures=0,", ""),
    ),
    _bug(
        "a failure at a frozen endpoint freezes it once more",
        (f"{HEALTH}:after_failure", "if health.state is State.FROZEN:", "if False:"),
    ),
    # --- the schedule
    _bug(
        "a probe spends a retry",
        (
            f"{RETRY}:after_probe_failure",
            "return replace(delivery, attempts=attempts, ours=0, due_at=due_at)",
            "return replace(delivery, attempts=attempts, retry=delivery.retry + 1, due_at=due_at)",
        ),
    ),
    _bug(
        "a retry may lie after the window",
        (
            f"{RETRY}:after_failure",
            "min(max(due_at, retry_after_at), end)",
            "max(due_at, retry_after_at)",
        ),
    ),
    _bug(
        "Retry-After does not move the retry",
        (f"{DECIDE}._failed", "retry_after_at=hold_at", "retry_after_at=None"),
    ),
    _bug(
        "Retry-After has no bound",
        (f"{RETRY}:retry_after_at", "min(at, now + RETRY_AFTER_MOST_MS)", "at"),
    ),
    _bug(
        "a delivery that was held first starts its clock at its first failure",
        (
            f"{RETRY}:after_failure",
            "delivery.accepted_at if delivery.accepted_at < enabled_since else now",
            "now",
        ),
    ),
    _bug(
        "a retry that fails at its very moment is taken for the next one",
        (f"{RETRY}:_ahead", "bisect_right(delays, now - t0)", "bisect_right(delays, now - t0 - 1)"),
    ),
    _bug(
        "our own trouble spends a retry",
        (
            f"{RETRY}:after_ours",
            "ours=delivery.ours + 1,",
            "retry=delivery.retry + 1, ours=delivery.ours + 1,",
        ),
    ),
    _bug(
        "our own trouble counts for the endpoint",
        (
            f"{DECIDE}._attempt",
            "self._log(made, Decided.WAIT, row)",
            "self._log(made, Decided.WAIT, row)\n"
            "rules = self._options.rules_of(endpoint.tenant)\n"
            "verdict = health.after_failure(endpoint.health, rules, now=made.finished_at)\n"
            "self._judged(endpoint, verdict, made.finished_at)",
        ),
    ),
    _bug(
        "rows are taken a second before they are due",
        (f"{FLOW}:_choose", "row[0] <= now", "row[0] <= now + 1000"),
    ),
    # --- publishing
    _bug(
        "publishers are answered before the commit",
        (
            "homing.engine.publish:Publisher.publish",
            "return await answer",
            "return [Receipt(it.key or '', 0, new=True) for it in drafts]",
        ),
    ),
    _bug(
        "the commit does not check the subscriptions' version",
        (f"{FLOW}:Flow.publish", "if held[0] != catalog_version:", "if False:"),
    ),
    _bug(
        "an event goes to the subscriptions of another tenant",
        (
            "homing.policy.match:Index.match",
            "own = self._by_tenant.get(tenant)",
            "own = next(iter(self._by_tenant.values()), None)",
        ),
    ),
    _bug(
        "a publish whose reply was lost is not looked for",
        ("homing.engine.publish:Publisher._doubt", "self.on_doubt(endpoint_id)", "pass"),
    ),
    _bug(
        "what a load brought is accepted once more",
        (f"{DISPATCH}._takes_fresh", "and delivery.id > station.read_upto", "and True"),
    ),
    _bug(
        "new ids begin anew after a start",
        ("homing.model:Ids.__init__", "id_time(after) + 1 if after else 0", "0"),
    ),
    # --- dispatching
    _bug(
        "the newest first attempts overtake those in the store",
        (f"{DISPATCH}._takes_fresh", "not station.more_fresh", "True"),
    ),
    _bug(
        "a slot of the lane is not given back",
        (
            f"{DISPATCH}.down",
            "self._turns[made.lane].give(made.work.delivery.tenant, made.rank)",
            "pass",
        ),
    ),
    _bug(
        "one tenant may take every slot",
        ("homing.policy.slots:needed", "return reserve + need + 1", "return 1"),
    ),
    _bug(
        "a disabled endpoint goes on",
        (f"{STATION}.ready", "endpoint.health.state is _ENABLED and ", ""),
        (f"{DISPATCH}._takes_fresh", "and health.state is _ENABLED", ""),
    ),
    _bug(
        "no slow start after an enable",
        (f"{DISPATCH}.learn", "station.ramp = Ramp()", "station.ramp = Ramp(16)"),
    ),
    _bug(
        "after a failed read nobody reads again",
        (
            "homing.engine.load:Loader._load",
            "asyncio.get_running_loop().call_later(AGAIN_MS / 1000, self._again)",
            "pass",
        ),
    ),
    _bug(
        "the next due time is forgotten by a load",
        (
            "homing.engine.load:Loader._load_rows",
            "it.next_due if it.ask.retry == 0 else answer.next_due",
            "None",
        ),
    ),
    _bug(
        "the webhook-id changes on a replay",
        (
            "homing.engine.attempt:Letter.write",
            "delivery.root_id).encode()",
            "delivery.id).encode()",
        ),
    ),
    # --- settling
    _bug(
        "a row that waits is not told to the dispatcher",
        (f"{SETTLE}._apply", "self._dispatcher.in_store(row)", "pass"),
    ),
    _bug(
        "each try to settle has a number of its own",
        (
            f"{SETTLE}._settle",
            "await self._flow.settle(batch)",
            "await self._flow.settle(decision.batch(self._core.ids.take(self._clock.now())))",
        ),
    ),
    _bug(
        "nothing starts again after the store came back",
        (f"{SETTLE}._worked", "self._dispatcher.resume()", "pass"),
    ),
    _bug(
        "a drop is entered as delivered",
        (f"{FLOW}:_append_history", "change.dropped += 1", "change.delivered += 1"),
    ),
    _bug(
        "a cancelled delivery finishes once more",
        (f"{FLOW}:_append_history", "if it.delivery.id not in gone]", "]"),
    ),
    _bug(
        "a change of state is not recorded",
        (f"{DECIDE}._changed", "self.transitions.append(", "id("),
    ),
    _bug(
        "a notice goes to the endpoint that it is about",
        (
            "homing.engine.notices:Notices._write",
            "not_to_endpoint=endpoint.id",
            "not_to_endpoint=None",
        ),
    ),
    _bug(
        "drops are told of twice",
        (f"{DECIDE}._report", "dropped_unreported=0, ", ""),
    ),
    # --- probing, sweeping, replaying
    _bug(
        "the next probe's time is not committed first",
        (
            "sql:probe_take",
            "next_probe_at = ?1,",
            "next_probe_at = min(next_probe_at, ?1),",
        ),
    ),
    _bug(
        "the same delivery is probed for ever",
        (f"{FLOW}:_probe_choice", "(endpoint.probe_after_id, 0)", "(0,)"),
    ),
    _bug(
        "a failed probe is followed at once",
        (f"{DECIDE}._failed", "next_probe_at=now + rules.probe_every_ms", "next_probe_at=now"),
    ),
    _bug(
        "things expire in the quiet hour",
        (f"{SWEEP}.may_expire", "now >= self.quiet_until()", "True"),
    ),
    _bug(
        "a step of the clock is not seen",
        (f"{SWEEP}.quiet_until", "self._clock.stepped_at() or 0", "0"),
    ),
    _bug(
        "a changed URL moves what is in flight",
        (
            f"{SWEEP}._step",
            "frozenset(station.in_flight if station is not None else ())",
            "frozenset()",
        ),
    ),
    _bug(
        "a deleted subscription is still known",
        (
            "homing.engine.catalog:Catalog._refresh",
            "before = self._by_id.pop(subscription.id, None)",
            "before = self._by_id.get(subscription.id)",
        ),
    ),
    _bug(
        "a replay takes the same deliveries twice",
        (
            "homing.engine.replay:Replayer._reread",
            "return await self._admin.replay_job(job.id)",
            "return job",
        ),
        (
            "homing.store.replays:replay_step",
            "if stored.state != RUNNING or stored.after_id != job.after_id:",
            "if False:",
        ),
    ),
    # --- as the simulation found them in the build
    _bug(
        "the same batch is written again",
        (f"{FLOW}:Flow.settle", "self._settled[0] == batch.number", "False"),
        ("sql:settled_already", "number = ?2", "number = -1"),
    ),
    _bug(
        "an enable whose reply was lost is not read again",
        (
            "homing.engine.operate:Operator._set_once",
            "self._dispatcher.read_again(endpoint.id)",
            "pass",
        ),
    ),
    _bug(
        "a replay whose reply was lost is not looked for",
        ("homing.engine.replay:Replayer.replay", "with self._in_doubt([new]):", "if True:"),
    ),
    _bug(
        "a change whose reply was lost is not read again",
        ("homing.engine.operate:Operator._replace_once", "with self._in_doubt():", "if True:"),
    ),
    _bug(
        "a load that a pause overtook is forgotten",
        (
            "homing.engine.load:Loader._as_it_was",
            "self._look(asked.station)",
            "self._hungry[Lane.FRESH].add(asked.station.endpoint.tenant, asked.station)",
        ),
    ),
    _bug(
        "what has expired is polled for",
        (f"{SWEEP}._expire_all", "now + LOOK_AGAIN_MS", "now + self._options.window_min_ms"),
    ),
    _bug(
        "a clock that was ahead drops what is fresh",
        (f"{DISPATCH}.start", "delivery.expires_at <= now", "True"),
        (
            f"{STATION}.held_too_long",
            "min(self.endpoint.health.enabled_since, now)",
            "self.endpoint.health.enabled_since",
        ),
    ),
    _bug(
        "a clock that was ahead puts probes off",
        (
            f"{DISPATCH}.know",
            "within_reach(start.endpoint, rules, now=self._clock.now())",
            "start.endpoint",
        ),
    ),
]
