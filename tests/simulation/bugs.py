"""The planted bugs: mistakes that people really make, one to five lines each.

``found`` has the seed that finds each of them; ``planting`` says how a change is addressed.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulation.found import FOUND
from simulation.planting import Change, remove, replace, replace_sql
from simulation.seed import Verdict, run_seed

DELIVERIES = 100

ADMIN = "homing.store.admin"
ATTEMPT = "homing.engine.attempt"
CHALLENGES = "homing.engine.challenges"
CANARIES = "homing.engine.outage.canaries"
CAUSES = "homing.policy.causes"
CAUSES_STORE = "homing.store.causes"
DECIDE = "homing.engine.decide"
DISPATCH = "homing.engine.dispatch"
ERASURES = "homing.store.erasures"
FAIR = "homing.policy.fair"
FAN_OUT = "homing.engine.fan_out"
BARRIER = "homing.engine.fleet.catalog_barrier"
FLEET = "homing.engine.fleet.membership"
FLOW = "homing.store.flow"
GRACE = "homing.engine.grace_period"
HEALTH = "homing.policy.health"
LEASES = "homing.store.leases"
LOAD = "homing.engine.load"
MAINTENANCE = "homing.engine.maintenance"
OAUTH = "homing.policy.oauth"
OPERATE = "homing.engine.operate"
ORDER = "homing.policy.order"
ORDER_STORE = "homing.store.order"
OUTAGE = "homing.engine.outage.detection"
OUTAGE_POLICY = "homing.policy.outage"
OWNERSHIP = "homing.engine.fleet.ownership"
PAUSE = "homing.policy.pause"
PROBE = "homing.engine.probe"
PUBLISH = "homing.engine.publish"
PULL = "homing.store.pull"
PULL_CURSOR = "homing.policy.pull"
PULL_STREAMS = "homing.store.pull_streams"
QUEUE = "homing.engine.queue"
RECEIVER = "homing.policy.receiver"
REPLAY = "homing.engine.replay"
REPLAYS = "homing.store.replays"
RESTART = "homing.policy.restart"
RETRY = "homing.policy.retry"
ROWS = "homing.store.rows"
SETTLE = "homing.engine.settle"
SIGNATURE = "homing.policy.signature"
TOKENS = "homing.net.oauth"
VERIFICATION = "homing.policy.verification"
BACKFILL = "homing.policy.backfill"
WRITES = "homing.store.writes"


@dataclass(frozen=True)
class Bug:
    """A planted bug, and the seed that is known to find it."""

    name: str
    changes: tuple[Change, ...]
    fleet: bool = False  # a seed of a fleet finds it
    among: range = range(200)  # the seeds that are tried if the known one does not find it

    @property
    def seed(self) -> int:
        """-1: none is known yet."""
        return FOUND.get(self.name, -1)

    @property
    def lines(self) -> int:
        return sum(
            max(len(it.old.strip().splitlines()), len(it.new.strip().splitlines()))
            for it in self.changes
        )

    def run(self, seed: int) -> Verdict:
        """Run a seed of the kind that finds it."""
        return run_seed(seed, DELIVERIES, fleet=self.fleet)


def bug(name: str, *changes: Change) -> Bug:
    """A bug that a single process shows."""
    return Bug(name, changes)


def key_bug(name: str, *changes: Change) -> Bug:
    """A bug that only seeds with keys show."""
    return Bug(name, changes, among=range(3, 800, 8))


def fair_bug(name: str, *changes: Change) -> Bug:
    """A bug that only seeds with fair groups show."""
    return Bug(name, changes, among=range(18, 800, 24))


def clock_bug(name: str, *changes: Change) -> Bug:
    """A bug that only seeds whose clocks are set while the process is down show."""
    return Bug(name, changes, among=range(20, 800, 24))


def fleet_bug(name: str, *changes: Change) -> Bug:
    """A bug that only a fleet shows."""
    return Bug(name, changes, fleet=True)


BUGS = [
    # --- why an endpoint fails, and since when
    bug(
        "a success leaves the causes open",
        replace(DECIDE, "Decision._attempt", "endpoint.failing", "False"),
    ),
    bug(
        "a cause that returns within an hour starts anew",
        replace(CAUSES, "continues", "at <= cause.closed_at + RETURN_MS", "False"),
    ),
    bug(
        "a cause that returns late continues",
        replace(CAUSES, "continues", "at <= cause.closed_at + RETURN_MS", "True"),
        replace(CAUSES_STORE, "settle", "it.first_seen - RETURN_MS", "0"),
    ),
    bug(
        "a batch that was written already counts its causes again",
        replace(
            FLOW,
            "Flow.settle",
            "self._settled[1]",
            "(await self._db.run(lambda tx: causes.settle(tx, batch)), self._settled[1])[1]",
        ),
    ),
    bug(
        "outcomes are committed without their causes",
        remove(CAUSES_STORE, "settle", "await _write(tx, ..., changed)"),
    ),
    bug(
        "a cause keeps only the attempts of its last batch",
        replace(CAUSES, "_grown", "0 if cause is None else cause.attempts", "0"),
    ),
    bug(
        "the causes of a URL that no subscription uses stay open",
        remove(ADMIN, "_delete", "await causes.leave(tx, gone.endpoint_id, now=now)"),
    ),
    bug(
        "a cause that an attempt in flight opens at an unused URL stays open",
        replace(CAUSES_STORE, "_closed_again", "it.endpoint_id in unused", "False"),
    ),
    bug(
        "after a start no endpoint is known to fail",
        replace(ROWS, "endpoint", "row[22] != 0", "False"),
    ),
    bug(
        "a sender-side failure belongs to a cause",
        replace(
            DECIDE,
            "Decision._attempt",
            "self._log(attempt, Decided.WAIT, row)",
            "self._log(attempt, Decided.WAIT, row) or self._count_failure(attempt)",
        ),
    ),
    # --- the wall clock is set: receivers would notice
    bug(
        "signatures carry the time of schedules",
        replace(DISPATCH, "Dispatcher._transmit", "self._clock.wall()", "now"),
    ),
    bug(
        "a date in Retry-After is compared with the time of schedules",
        replace(DECIDE, "Decision._failed", "now + attempt.wall_ahead_ms", "now"),
    ),
    bug(
        "signatures carry the wall clock of the start",
        replace(
            DISPATCH,
            "Dispatcher._transmit",
            "self._clock.wall()",
            "now + self.__dict__.setdefault('_offset', self._clock.wall() - now)",
        ),
    ),
    # --- the sender's own outage, and whose fault it is
    bug(
        "what fails in a sender outage counts for the receivers",
        replace(
            OUTAGE, "OutageDetector._no_response", "as_sender_error(rested(attempt))", "attempt"
        ),
    ),
    bug(
        "what waited for the verdict counts for the receivers",
        replace(
            OUTAGE,
            "OutageDetector._release",
            "as_sender_error(attempt) if sender_error else attempt",
            "attempt",
        ),
    ),
    bug(
        "what waited for the verdict is forgotten",
        replace(
            OUTAGE,
            "OutageDetector._release",
            "for attempt in held: ...",
            "for attempt in held[1:]: ...",
        ),
    ),
    bug(
        "an outage is detected although detection is off",
        replace(OUTAGE_POLICY, "needed", "not rules.detects", "False"),
    ),
    bug(
        "an outage never ends",
        replace(
            OUTAGE,
            "OutageDetector._responded",
            "attempt.started_at >= self.began_at and not attempt.response.remembered",
            "False",
        ),
    ),
    bug(
        "everything is sent during an outage",
        replace(DISPATCH, "Dispatcher._start_ready", "self.capacity.outage", "False"),
    ),
    bug(
        "one receiver that falls silent is called our outage",
        replace(
            OUTAGE_POLICY,
            "verdict",
            "need is not None and many and hosts >= need.hosts and tenants >= need.tenants",
            "failing >= 1",
        ),
    ),
    bug(
        "a host gets a canary in every round",
        replace(CANARIES, "Canaries._choose", "next_at > now", "False"),
    ),
    bug(
        "no slow start after an outage",
        remove(OUTAGE, "OutageDetector._resume", "queue.slow_start()"),
    ),
    bug(
        "a canary takes a slot that is not there",
        replace(CANARIES, "Canaries.send", "dispatcher.capacity.has_slot(one.lane)", "True"),
    ),
    bug(
        "a queue is not rescheduled when the outage ends",
        remove(OUTAGE, "OutageDetector._resume", "self._dispatcher.reschedule(queue)"),
    ),
    bug(
        "things expire after a pause of our own",
        remove(
            MAINTENANCE,
            "Maintenance.quiet_until",
            "since = max(since, self._paused(self._clock.now()))",
        ),
    ),
    bug(
        "a host with sender-side failures is blamed while nobody gets through",
        replace(OUTAGE_POLICY, "host_again", "through_at < failures.seen_at", "False"),
    ),
    bug(
        "the dead hosts of one tenant are called our outage",
        replace(OUTAGE_POLICY, "needed", "tenants // 2 + 1", "1"),
    ),
    bug(
        "endpoints that still fail after an outage are called healthy",
        replace(
            OUTAGE,
            "OutageDetector._end_outage",
            "self._witnesses.disprove",
            "self._witnesses.rise_all",
        ),
    ),
    # --- a fleet: two owners, late writers, hand-overs in the middle, changes unheard
    fleet_bug(
        "a late settle is not refused",
        remove(LEASES, "hold", "raise LostLeases(lost)"),
    ),
    fleet_bug(
        "a lease is taken from a process that lives",
        replace(LEASES, "_gone", "row[1] <= now", "True"),
        replace(FLEET, "Fleet._share", "it.owner in alive", "it.owner == self._me"),
    ),
    fleet_bug(
        "an epoch comes again",
        replace_sql("leases_take", "epoch = max(epoch + 1, ?2)", "epoch = max(epoch, ?2 - ?2)"),
    ),
    fleet_bug(
        "sending goes on when the lease is over",
        replace(
            FLEET,
            "Fleet._beat_once",
            "self._parts.lease_ms * 9 // 10",
            "self._parts.lease_ms * 9",
        ),
    ),
    fleet_bug(
        "a bucket is handed over with attempts in flight",
        replace(FLEET, "Fleet._hand_over", "it not in busy or now >= until", "True"),
    ),
    fleet_bug(
        "what is in a lost bucket is not forgotten",
        remove(FLEET, "Fleet._forget", "self._dispatcher.forget_buckets(buckets)"),
    ),
    fleet_bug(
        "what was begun under a lost lease is settled under the next one",
        replace(
            DISPATCH, "Dispatcher.owns", "item.epoch == epochs[item.work.delivery.bucket]", "True"
        ),
    ),
    fleet_bug(
        "a change is answered while others do not act on it",
        replace(BARRIER, "CatalogBarrier.wait", "version <= self._reached", "True"),
    ),
    fleet_bug(
        "the history of a fleet says dropped",
        replace("homing.store.rows", "history_row", "finished.status", "'dropped'"),
    ),
    fleet_bug(
        "attempts go on while disabled in a fleet",
        replace(QUEUE, "EndpointQueue.ready", "endpoint.health.state is _ENABLED", "True"),
        replace(QUEUE, "EndpointQueue.takes", "health.state is _ENABLED", "True"),
    ),
    fleet_bug(
        "changes by another process are not heard",
        remove(DISPATCH, "Dispatcher.changed_elsewhere", "self.reload_endpoint(endpoint_id)"),
    ),
    fleet_bug(
        "what was changed while words were lost is not looked for",
        remove(
            "homing.store.admin",
            "Admin.set_endpoint",
            "await leases.raise_topic(tx, leases.bucket_topic(endpoint.bucket))",
        ),
    ),
    fleet_bug(
        "cleanup jobs are run by any process that finds them",
        replace(MAINTENANCE, "Maintenance._begun_cleanup_jobs", "mine[it.bucket]", "True"),
    ),
    fleet_bug(
        "a fleet takes rows a second before they are due",
        replace(FLOW, "_choose", "row[0] <= now", "row[0] <= now + 1000"),
    ),
    fleet_bug(
        "a delivery to a subscription that was not read yet is cancelled as deleted",
        remove(SETTLE, "Settler._decide", "await self._core.catalog.refresh()"),
    ),
    fleet_bug(
        "a settle overwrites what another process has set",
        replace_sql("endpoint_settle", "AND generation = ?", "AND 0 <= ?"),
    ),
    # --- look-ups: shares, threads, and who is charged for our own queue
    bug(
        "look-ups go to whoever comes first",
        replace(
            "homing.policy.look_ups",
            "_share",
            "Share(total, weight=SHARE_OF_FREE, reserve=total // RESERVE_OF_ALL)",
            "Share(total, weight=total)",
        ),
    ),
    bug(
        "a look-up that ended keeps its thread",
        remove("homing.net.resolver", "Resolver._finish", "self._queue.end(tenant)"),
    ),
    bug(
        "a wait in our own queue of look-ups is charged to the receiver",
        replace("homing.net.flight", "charged", "not flight.held_up", "True"),
    ),
    bug(
        "a limit of the sender is taken for the host's after a while",
        replace(
            OUTAGE_POLICY,
            "could_be_hosts",
            "failure not in _NEVER_HOSTS",
            "failure is not Failure.FORBIDDEN_ADDRESS",
        ),
    ),
    # --- access tokens
    bug(
        "a refused access token fails the attempt",
        replace(TOKENS, "_Attempt._responded", "tokens.renew(client, self._found)", "False"),
    ),
    bug(
        "the request is repeated with the refused token",
        replace(TOKENS, "_Attempt._found", "self._send(found)", "self._send(self._token or found)"),
    ),
    bug(
        "a fetch that failed on our side counts for the endpoint",
        replace(OAUTH, "no_response", "not ours", "True"),
    ),
    bug(
        "a failure of the token endpoint is called the sender's",
        replace(OAUTH, "_theirs", "Failure.TOKEN", "Failure.SENDER_TOKEN"),
    ),
    bug(
        "every attempt fetches a token of its own",
        replace(TOKENS, "Tokens.wait_for", "self._fetches.get(key)", "None"),
    ),
    bug(
        "a token endpoint that failed is asked again at once",
        replace(
            TOKENS,
            "Tokens.wait_for",
            "failed is not None and now < failed.again_at",
            "False",
        ),
    ),
    bug(
        "tenants share access tokens",
        replace(
            OAUTH, "credentials_of", "msgspec.json.encode(parts)", "msgspec.json.encode(parts[1:])"
        ),
    ),
    bug(
        "a fetch that ended keeps its place",
        remove(TOKENS, "Tokens._end", "self._queue.end(tenant)"),
    ),
    bug(
        "a proxy that is away is taken for the host's failure after a while",
        replace(
            OUTAGE_POLICY,
            "could_be_hosts",
            "failure not in _NEVER_HOSTS",
            "failure not in _NEVER_HOSTS or failure is Failure.SENDER_PROXY",
        ),
    ),
    bug(
        "a certificate of ours that has expired is the receiver's failure",
        replace(
            "homing.policy.outcome",
            "judge",
            "failure in SENDER_FAILURES",
            "failure in SENDER_FAILURES and failure is not Failure.SENDER_CERTIFICATE",
        ),
    ),
    # --- what is reported, recorded, repeated and never continued
    bug(
        "a probe's success leaves its delivery pending",
        replace(
            DECIDE,
            "Decision._attempt",
            "self.finished.append(Finished(delivered, _DELIVERED, None, now))",
            "(self.waiting if attempt.lane is Lane.PROBE else self.finished).append(delivered "
            "if attempt.lane is Lane.PROBE else Finished(delivered, _DELIVERED, None, now))",
        ),
    ),
    bug(
        "a subscription's own deadline is ignored",
        replace(
            "homing.engine.options",
            "EngineOptions.deadline_of",
            "subscription.deadline_ms is not None",
            "False",
        ),
    ),
    bug(
        "the same id with another type or time is the same",
        replace(
            "homing.ports.flow",
            "NewEvent.content_hash",
            "content_hash(..., ..., event.data, event.context, event.order_key)",
            "content_hash('', '', event.data, event.context, event.order_key)",
        ),
    ),
    bug(
        "of twins in a batch the second is taken for the first",
        replace(PUBLISH, "Publisher._distinct", "not _same(draft, distinct[place])", "False"),
    ),
    bug(
        "nobody is told of a change of state",
        replace(DECIDE, "Decision._changed", "self.new_events.append", "id"),
    ),
    bug(
        "a change of state has no numbers",
        replace(DECIDE, "Decision._changed", "change.numbers", "{}"),
    ),
    bug(
        "a person's enable is dated an hour back",
        replace(
            OPERATE, "Operator._set_once", "self._clock.now()", "self._clock.now() - 3_600_000"
        ),
    ),
    bug(
        "an event is accepted at the full hour",
        replace(
            FAN_OUT,
            "FanOut._delivery",
            "number = self._ids.take(now)",
            "number = self._ids.take(now); now = now // 3_600_000 * 3_600_000",
        ),
    ),
    bug(
        "a publisher's time is replaced",
        replace(FAN_OUT, "FanOut.event", "draft.time or rfc3339(wall)", "rfc3339(wall)"),
    ),
    bug(
        "the log has another lane",
        replace(
            DECIDE,
            "Decision._log",
            "attempt.lane",
            "Lane.RETRY if attempt.lane is Lane.FRESH else attempt.lane",
        ),
    ),
    bug(
        "Retry-After is honoured whatever the code",
        replace(
            "homing.policy.outcome",
            "wants_hold",
            "code in {429, 503}",
            "code is not None and code >= 400",
        ),
    ),
    bug(
        "a timer rings late",
        replace(
            DISPATCH,
            "Dispatcher._set_timer",
            "max(at - self._clock.now(), 0)",
            "max(at - self._clock.now(), 0) + 200_000",
        ),
    ),
    bug(
        "a replay ends after its first step",
        replace(REPLAY, "Replayer._step", "'done' if all_seen else 'running'", "'done'"),
    ),
    bug(
        "filters are not asked",
        replace(
            "homing.policy.wants", "picked", "not any(one.id in wants for one in found)", "True"
        ),
    ),
    # --- the rules of health
    bug(
        "the rate is looked at one attempt too early",
        replace(
            HEALTH,
            "_rate_over",
            "... > rules.rate_after_attempts",
            "... >= rules.rate_after_attempts",
        ),
    ),
    bug(
        "exactly the limit of the rate disables",
        replace(
            HEALTH,
            "_rate_over",
            "... > rules.failure_percent * health.attempts",
            "... >= rules.failure_percent * health.attempts",
        ),
    ),
    bug(
        "one failure in a row too many before disabling",
        replace(
            HEALTH,
            "_disabling",
            "... >= rules.consecutive_disable",
            "... > rules.consecutive_disable",
        ),
    ),
    bug(
        "one failure in a row too many before freezing for good",
        replace(
            HEALTH,
            "_freezing",
            "... >= rules.consecutive_freeze_always",
            "... > rules.consecutive_freeze_always",
        ),
    ),
    bug(
        "one failure in a row too few before freezing",
        replace(
            HEALTH,
            "_freezing",
            "... > rules.consecutive_freeze",
            "... >= rules.consecutive_freeze",
        ),
    ),
    bug(
        "freezing looks at the first attempt only",
        replace(
            HEALTH,
            "_without_success_ms",
            "(..., health.first_attempt_at, health.manual_enable_at)",
            "(health.first_attempt_at,)",
        ),
    ),
    bug(
        "a person's enable does not count as a beginning",
        replace(
            HEALTH,
            "_without_success_ms",
            "(..., ..., health.manual_enable_at)",
            "(..., ...)",
        ),
    ),
    bug(
        "a success while frozen enables",
        replace(
            HEALTH,
            "after_success",
            "health.state is not State.DISABLED",
            "health.state is State.ENABLED",
        ),
    ),
    bug(
        "the rate is not reset at enable",
        remove(HEALTH, "after_success", "attempts=0"),
        remove(HEALTH, "after_success", "failures=0"),
    ),
    bug(
        "a person's enable keeps the failures in a row",
        remove(HEALTH, "enable", "consecutive_failures=0"),
    ),
    bug(
        "a failure at a frozen endpoint freezes it once more",
        replace(HEALTH, "after_failure", "health.state is State.FROZEN", "False"),
    ),
    # --- the schedule
    bug(
        "a policy without retries gets one",
        replace(
            RETRY,
            "_ahead",
            "delays = schedule.delays_ms",
            "delays = schedule.delays_ms or (60000,)",
        ),
    ),
    bug(
        "a delivery without retries is dropped as expired",
        replace(
            DECIDE,
            "Decision._failed",
            "Reason.EXHAUSTED",
            "Reason.EXHAUSTED if delivery.retry else Reason.EXPIRED",
        ),
    ),
    bug(
        "a probe spends a retry",
        replace(
            RETRY,
            "after_probe_failure",
            "replace(delivery, attempts=attempts, sender_errors=0, due_at=due_at)",
            "replace(delivery, attempts=attempts, retry=delivery.retry + 1, due_at=due_at)",
        ),
    ),
    bug(
        "a retry may lie after the window",
        replace(
            RETRY,
            "after_failure",
            "min(max(due_at, retry_after_at), end)",
            "max(due_at, retry_after_at)",
        ),
    ),
    bug(
        "Retry-After does not move the retry",
        remove(DECIDE, "Decision._failed", "retry_after_at=hold_at"),
    ),
    bug(
        "Retry-After is obeyed although the policy ignores it",
        replace(
            DECIDE, "Decision._failed", "schedule.retry_after is retry.OnRetryAfter.OBEY", "True"
        ),
    ),
    bug(
        "Retry-After has no bound",
        replace(RETRY, "retry_after_at", "min(at, ...)", "at"),
    ),
    bug(
        "a delivery that was held first starts its clock at its first failure",
        replace(
            RETRY,
            "after_failure",
            "_begin(delivery) if delivery.ready_at < enabled_since else now",
            "now",
        ),
    ),
    bug(
        "a retry that fails at its very moment is taken for the next one",
        replace(RETRY, "_ahead", "bisect_right(delays, ...)", "bisect_right(delays, ... - 1)"),
    ),
    bug(
        "a sender-side failure uses a retry",
        replace(
            RETRY,
            "after_sender_error",
            "replace(delivery, attempts=..., sender_errors=..., due_at=...)",
            "replace(delivery, attempts=..., sender_errors=..., due_at=...,"
            " retry=delivery.retry + 1)",
        ),
    ),
    bug(
        "a sender-side failure counts for the endpoint",
        replace(
            DECIDE,
            "Decision._attempt",
            "self._log(attempt, Decided.WAIT, row)",
            """
            self._log(attempt, Decided.WAIT, row)
            rules = self._options.rules_of(endpoint.tenant)
            verdict = health.after_failure(endpoint.health, rules, now=attempt.finished_at)
            self._judged(endpoint, verdict, attempt.finished_at)
            """,
        ),
    ),
    bug(
        "rows are taken a second before they are due",
        replace(FLOW, "_choose", "row[0] <= now", "row[0] <= now + 1000"),
    ),
    # --- publishing
    bug(
        "publishers are answered before the commit",
        replace(
            PUBLISH,
            "Publisher.publish",
            "await receipts",
            "[Receipt(it.key or '', 0, new=True) for it in drafts]",
        ),
    ),
    bug(
        "a change does not wait for the publishes that were matched before",
        replace(
            GRACE, "GracePeriod._has_older", "any(it < version for it in self._groups)", "False"
        ),
    ),
    fleet_bug(
        "a process says that it acts on a change while it writes what it matched before",
        remove(BARRIER, "CatalogBarrier._tell", "await self._grace.here(version)"),
    ),
    fleet_bug(
        "a process that nobody waits for any more publishes what it matched before",
        replace(FLOW, "Flow._run", "row[1] != mark.fence", "False"),
    ),
    fleet_bug(
        "a process that goes on publishes before it has read the catalog",
        remove(BARRIER, "CatalogBarrier.act", "await self._catalog.refresh()"),
    ),
    bug(
        "an event goes to the subscriptions of another tenant",
        replace(
            "homing.policy.match",
            "Index.match",
            "self._by_tenant.get(tenant)",
            "next(iter(self._by_tenant.values()), None)",
        ),
    ),
    bug(
        "a publish whose reply was lost is not looked for",
        remove(PUBLISH, "Publisher._recheck_endpoints", "self.on_unconfirmed(endpoint_id)"),
    ),
    bug(
        "what a load brought is accepted once more",
        replace(QUEUE, "EndpointQueue.takes", "delivery.id > self.read_upto", "True"),
    ),
    bug(
        "new ids begin anew after a start",
        replace("homing.model", "Ids.__init__", "id_time(after) + 1 if after else 0", "0"),
    ),
    # --- dispatching
    bug(
        "the newest first attempts overtake those in the store",
        replace(QUEUE, "EndpointQueue.takes", "not self.more_fresh", "True"),
    ),
    fair_bug(
        "fair groups take no turns in memory",
        remove(FAIR, "FairLane.popleft", "self._groups.move_to_end(group)"),
    ),
    fair_bug(
        "all persons are one fair group",
        replace(FAIR, "FairBy.part", "int.from_bytes(digest) % GROUPS", "0"),
    ),
    fair_bug(
        "after a start the rows of fair groups are not known",
        replace_sql("endpoint_start", "p.part >= 16", "p.part < 0"),
    ),
    fair_bug(
        "the rows of fair groups are not read",
        replace("homing.store.fair", "turns", "row[1] == HAS_GROUPS", "False"),
    ),
    bug(
        "a slot of the lane is not given back",
        remove(
            DISPATCH,
            "Dispatcher._end_attempt",
            "self._turns[attempt.lane].give(attempt.work.delivery.tenant, attempt.rank)",
        ),
    ),
    bug(
        "one tenant may take every slot",
        replace("homing.policy.slots", "needed", "reserve + need + 1", "1"),
    ),
    bug(
        "a disabled endpoint goes on",
        replace(QUEUE, "EndpointQueue.ready", "endpoint.health.state is _ENABLED", "True"),
        replace(QUEUE, "EndpointQueue.takes", "health.state is _ENABLED", "True"),
    ),
    bug(
        "no slow start after an enable",
        replace(QUEUE, "EndpointQueue.update", "Ramp()", "Ramp(16)"),
    ),
    bug(
        "after a failed read nobody reads again",
        remove(
            LOAD,
            "Loader._load",
            "self._timer = asyncio.get_running_loop().call_later(AGAIN_MS / 1000, self._again)",
        ),
    ),
    bug(
        "the next due time is forgotten by a load",
        replace(
            LOAD,
            "Loader._load_rows",
            "it.next_due if it.ask.retry == 0 else result.next_due",
            "None",
        ),
    ),
    bug(
        "the webhook-id changes on a replay",
        replace(
            ATTEMPT,
            "RequestTemplate.write",
            "show_id('dlv', delivery.root_id)",
            "show_id('dlv', delivery.id)",
        ),
    ),
    # --- signatures
    bug(
        "a secret that was rotated out signs for ever",
        replace(ATTEMPT, "RequestTemplate._digests", "until is None or now < until", "True"),
    ),
    bug(
        "a signing key that was rotated out signs for ever",
        replace(SIGNATURE, "TenantSigner.digests", "until is None or now < until", "True"),
    ),
    bug(
        "Ed25519 signs other bytes than those that are sent",
        replace(
            SIGNATURE,
            "TenantSigner.digests",
            "b'%b.%b.%b' % (webhook_id, timestamp, body)",
            "b'%b.%b.%b' % (timestamp, webhook_id, body)",
        ),
    ),
    bug(
        "with both kinds of signature only the secret signs",
        replace(
            ATTEMPT,
            "RequestTemplate.__init__",
            "kind is not Signature.HMAC",
            "kind is Signature.ED25519",
        ),
    ),
    fleet_bug(
        "a rotation of signing keys is answered while others do not act on it",
        remove(OPERATE, "Operator._set_signing_keys", "await self._grace.changed(new.version)"),
    ),
    # --- settling
    bug(
        "a row that waits is not told to the dispatcher",
        remove(DISPATCH, "Dispatcher.settled", "self.left_in_store(delivery)"),
    ),
    bug(
        "each try to settle has a number of its own",
        replace(
            SETTLE,
            "Settler._settle_as",
            "self._flow.settle(batch)",
            "self._flow.settle(decision.batch(self._core.ids.take(self._clock.now())))",
        ),
    ),
    bug(
        "nothing starts again after the store came back",
        remove(SETTLE, "Settler._worked", "self._dispatcher.resume()"),
    ),
    bug(
        "a drop is entered as delivered",
        replace(FLOW, "_append_history", "change.dropped", "change.delivered"),
    ),
    bug(
        "a cancelled delivery finishes once more",
        replace(FLOW, "_append_history", "it.delivery.id not in gone", "True"),
    ),
    bug(
        "a change of state is not recorded",
        replace(DECIDE, "Decision._changed", "self.transitions.append", "id"),
    ),
    bug(
        "a notice goes to the endpoint that it is about",
        remove("homing.engine.notices", "Notices._write", "not_to_endpoint=endpoint.id"),
    ),
    bug(
        "drops are told of twice",
        remove(DECIDE, "Decision._report", "dropped_unreported=0"),
    ),
    # --- probing, sweeping, replaying
    bug(
        "the next probe's time is not committed first",
        replace_sql("probe_take", "next_probe_at = ?1,", "next_probe_at = min(next_probe_at, ?1),"),
    ),
    bug(
        "the same delivery is probed for ever",
        replace(FLOW, "_probe_choice", "(endpoint.probe_after_id, 0)", "(0,)"),
    ),
    bug(
        "a failed probe is followed at once",
        replace(DECIDE, "Decision._failed", "now + rules.probe_every_ms", "now"),
    ),
    bug(
        "things expire in the quiet hour",
        replace(MAINTENANCE, "Maintenance.may_expire", "now >= self.quiet_until()", "True"),
    ),
    bug(
        "a step of the clock is not seen",
        replace(MAINTENANCE, "Maintenance.quiet_until", "self._clock.stepped_at() or 0", "0"),
    ),
    clock_bug(
        "a clock that was set while the process was down is taken for a downtime",
        replace(RESTART, "passed_ms", "now.boot_ms - then.boot_ms", "now.wall_ms - then.wall_ms"),
    ),
    clock_bug(
        "after a reboot a clock that is not synchronised tells the downtime",
        replace(
            RESTART,
            "passed_ms",
            "then.synchronised and now.synchronised and by_wall >= 0",
            "by_wall >= 0",
        ),
    ),
    clock_bug(
        "times from before a long downtime stay where they are when the clock was set",
        replace(RESTART, "resume", "min(since_ms, clock) if ahead > 0 else since_ms", "clock"),
    ),
    bug(
        "a changed URL moves what is in flight",
        replace(MAINTENANCE, "Maintenance._step", "frozenset(...)", "frozenset()"),
    ),
    bug(
        "a deleted subscription is still known",
        replace(
            "homing.engine.catalog",
            "Catalog._put",
            "self._by_id.pop(subscription.id, None)",
            "self._by_id.get(subscription.id)",
        ),
    ),
    bug(
        "a replay takes the same deliveries twice",
        replace(REPLAY, "Replayer._reread", "await self._admin.replay_job(job.id)", "job"),
        replace(
            "homing.store.replays",
            "replay_step",
            "stored.state != RUNNING or stored.after_id != job.after_id",
            "False",
        ),
    ),
    # --- as the simulation found them in the build
    bug(
        "the same batch is written again",
        replace(FLOW, "Flow.settle", "self._settled[0] == batch.number", "False"),
        replace_sql("settled_already", "number = ?2", "number = -1"),
    ),
    bug(
        "an enable whose reply was lost is not read again",
        remove(OPERATE, "Operator._set_once", "self._dispatcher.reload_endpoint(endpoint.id)"),
    ),
    bug(
        "a replay whose reply was lost is not looked for",
        replace(
            REPLAY, "Replayer.replay", "with self._recheck_on_failure([new]): ...", "if True: ..."
        ),
    ),
    bug(
        "a change whose reply was lost is not read again",
        replace(
            OPERATE,
            "Operator._replace_once",
            "with self._recheck_on_failure(): ...",
            "if True: ...",
        ),
    ),
    bug(
        "a load that a pause overtook is forgotten",
        replace(
            LOAD,
            "Loader._as_it_was",
            "self._reschedule(asked.queue)",
            "self._wanting[Lane.FRESH].add(asked.queue.endpoint.tenant, asked.queue)",
        ),
    ),
    bug(
        "what has expired is polled for",
        replace(
            MAINTENANCE,
            "Maintenance._expire_all",
            "now + SEARCH_AGAIN_MS",
            "now + self._options.window_min_ms",
        ),
    ),
    bug(
        "a clock that was ahead drops what is fresh",
        replace(DISPATCH, "Dispatcher.start", "delivery.expires_at <= now", "True"),
        replace(
            QUEUE,
            "EndpointQueue.held_too_long",
            "min(self.endpoint.health.enabled_since, now)",
            "self.endpoint.health.enabled_since",
        ),
    ),
    bug(
        "a clock that was ahead puts probes off",
        replace(
            DISPATCH,
            "Dispatcher.add_endpoint",
            "within_reach(start.endpoint, rules, now=...)",
            "start.endpoint",
        ),
    ),
    # --- an address that the guard refuses: the operator's mistake, or the receiver's
    bug(
        "an address that changed settings refuse is the receiver's failure",
        replace(ATTEMPT, "refused", "settings_changed(endpoint.guard_passed, guard)", "False"),
    ),
    bug(
        "an address that the guard refuses is always the operator's mistake",
        replace(ATTEMPT, "refused", "settings_changed(endpoint.guard_passed, guard)", "True"),
    ),
    bug(
        "the settings under which a URL passed the guard are not written",
        remove(FLOW, "Flow.settle", "await tx.many('endpoint_guarded', _guarded_rows(batch))"),
    ),
    bug(
        "only the first settings under which a URL passed the guard are kept",
        replace(
            DECIDE,
            "Decision._attempt",
            "endpoint.guard_passed != self._options.guard",
            "not endpoint.guard_passed",
        ),
    ),
    bug(
        "an attempt that the guard refused has passed it",
        replace(DECIDE, "Decision._attempt", "attempt.response.address is not None", "True"),
    ),
    bug(
        "a URL with an address has not passed the guard when it is subscribed",
        replace(OPERATE, "Operator._new_endpoint", "names_address(parse_url(url)[1])", "False"),
    ),
    bug(
        "the window of a delivery that changed settings refuse never ends",
        replace(DISPATCH, "Dispatcher.start", "queue.endpoint.guard_refused_at", "False"),
    ),
    bug(
        "an endpoint that changed settings refuse is not held",
        replace(
            DECIDE,
            "Decision._attempt",
            "max(now + retry.SENDER_ERROR_MAX_MS, endpoint.hold_until)",
            "endpoint.hold_until",
        ),
    ),
    bug(
        "an endpoint that passes the guard again is still shown as refused",
        remove(DECIDE, "Decision._attempt", "guard_refused_at=0"),
    ),
    # --- payload fields by which people find events
    bug(
        "the payload fields of an id that comes again are written again",
        replace(
            FLOW,
            "Flow.publish",
            "position, blocked = await append_events(tx, accepted, node=self._node)",
            """
            from homing.store.writes import _index_fields
            position, blocked = await append_events(tx, accepted, node=self._node)
            again = [it for request in requests for it in request if it not in accepted]
            await _index_fields(tx, again)
            """,
        ),
    ),
    bug(
        "payload fields are stored for the tenant of the first event of their commit",
        replace(WRITES, "_index_fields", "new.event.tenant", "events[0].event.tenant"),
    ),
    bug(
        "payload fields are only written if the first event of their commit has some",
        replace(WRITES, "append_events", "events[0].fields is not None", "events[0].fields"),
    ),
    bug(
        "a publish that waits for a commit loses its payload fields",
        replace(
            PUBLISH,
            "Publisher._make",
            "fields = None if matching is None else matching.fields[place]",
            "fields = (() if waiting.since < now else None) if matching is None"
            " else matching.fields[place]",
        ),
    ),
    bug(
        "notices have no payload fields",
        replace(
            FAN_OUT,
            "FanOut.event",
            "self._payload_fields is not None",
            "self._payload_fields is not None and not_to_endpoint is None",
        ),
    ),
    # --- how many deliveries a cause has
    bug(
        "a cause counts a delivery with every attempt",
        replace(CAUSES, "_grown", "cause_before != number", "True"),
    ),
    bug(
        "a delivery does not keep the cause of its last attempt",
        replace(
            FLOW, "Flow.settle", "_with_causes(batch, cause_of) if cause_of else batch", "batch"
        ),
    ),
    # --- erasures
    bug(
        "the ledger is not told what was erased",
        remove(ERASURES, "erase", "await add_to_ledger(tx, changes, node=node)"),
    ),
    bug(
        "the attempts of an erased event stay",
        remove(
            ERASURES,
            "remove",
            'await tx.many("attempts_remove", [(id_,) for id_, _ in (*pending, *history)])',
        ),
    ),
    bug(
        "the payload fields of an erased event stay",
        remove(ERASURES, "remove", 'await tx.many("event_fields_remove", ids)'),
    ),
    # --- subscriptions without a URL, and their readers
    bug(
        "the events of a batch are read in the opposite order",
        replace(PULL_STREAMS, "advance", "enumerate(ids)", "enumerate(ids[::-1])"),
    ),
    bug(
        "an event is in one stream only, although several match",
        replace(
            FAN_OUT,
            "FanOut.event",
            "[it.id for it in matches if not it.endpoint_id]",
            "[it.id for it in matches if not it.endpoint_id][:1]",
        ),
    ),
    bug(
        "an ack acknowledges the next event, too",
        replace(
            PULL,
            "Pulls.ack",
            'await tx.one("pull_ack", **asked, position=position, now=now)',
            'await tx.one("pull_ack", **asked, position=position + 1, now=now)',
        ),
    ),
    bug(
        "an ack moves a cursor backward",
        replace_sql(
            "pull_ack",
            "CASE WHEN position < ?1 THEN ?1 ELSE position END",
            "?1",
        ),
    ),
    bug(
        "a page leaves out the event of its cursor",
        replace(
            PULL,
            "Pulls.page",
            "PullPage(entries, after, sizes[-1][0] if sizes else upto, head)",
            "PullPage(entries[:-1], after, sizes[-1][0] if sizes else upto, head)",
        ),
    ),
    bug(
        "a page has the cursor of the newest event",
        replace(PULL, "Pulls.page", "sizes[-1][0] if sizes else upto", "head"),
    ),
    bug(
        "a new reader begins with the next event",
        replace(
            PULL,
            "Pulls.page",
            "after = await _before_oldest(tx, subscription_id, removed, head, bound_id)",
            "after = head",
        ),
    ),
    bug(
        "a reader that begins again gets what it has acknowledged",
        replace(PULL, "Pulls.page", "None if known is None else known.position", "None"),
    ),
    bug(
        "the cursor of another subscription is taken",
        replace(PULL_CURSOR, "_hash", 'subscription_id.to_bytes(8, "big") + place', "place"),
    ),
    bug(
        "a cursor that is ahead of the store is taken",
        replace(PULL, "Pulls.page", "after > head", "False"),
        replace(PULL, "Pulls.ack", "position > head", "False"),
    ),
    # --- what receivers say: that they are gone, and that they own their URL
    bug(
        "a 410 counts although the subscription was changed since",
        replace(RECEIVER, "after_gone", "subscription.version == version", "True"),
    ),
    bug(
        "a 410 is retried although its policy obeys it",
        replace(RECEIVER, "after_gone", "schedule.on_gone is not OnGone.DEACTIVATE", "True"),
    ),
    bug(
        "every policy obeys a 410",
        replace(RECEIVER, "after_gone", "schedule.on_gone is not OnGone.DEACTIVATE", "False"),
    ),
    bug(
        "what is pending is sent although its subscription is gone",
        replace(
            DISPATCH,
            "Dispatcher.start",
            "subscription.receiver and is_over(subscription, delivery)",
            "False",
        ),
    ),
    bug(
        "an attempt in flight is retried although its subscription is gone",
        replace(DECIDE, "Decision._wait", "receiver.is_over(subscription, row)", "False"),
    ),
    bug(
        "a subscription that was activated again goes on losing its deliveries",
        replace(
            ADMIN,
            "_change",
            'await tx.all("cleanup_job_gone_moves", subscription_id=new.id)',
            "None",
        ),
    ),
    bug(
        "nobody is told that a subscription is gone",
        replace(SETTLE, "Settler._set_one_gone", "(notice,)", "()"),
    ),
    fleet_bug(
        "a late 410 is not refused",
        remove(
            ADMIN,
            "Admin.subscription_gone",
            "await leases.hold(tx, [(bucket, epoch)] if epoch else ())",
        ),
    ),
    bug(
        "a subscription without a proof gets events",
        replace("homing.policy.match", "Index.add", "subscription.is_unverified", "False"),
    ),
    bug(
        "every 2xx is a proof",
        replace(
            VERIFICATION,
            "judge_echo",
            'Proof(say("The response {code} does not return the challenge.", code=str(code)))',
            "Proof()",
        ),
    ),
    bug(
        "a new URL needs no proof of its own",
        replace(VERIFICATION, "after_change", "before.url == after.url", "True"),
    ),
    bug(
        "a challenge carries the token",
        replace(
            CHALLENGES,
            "Challenges._challenge",
            "without_authentication(replace(subscription, format=Format.RAW, headers=()))",
            "replace(subscription, format=Format.RAW, headers=())",
        ),
    ),
    bug(
        "a paused subscription is sent to",
        replace(PAUSE, "waits", "subscription.paused_since is not None or later", "later"),
        replace(
            QUEUE,
            "EndpointQueue.set_paused",
            "self.paused, self.suspended = paused, everything",
            "self.paused, self.suspended = frozenset(), False",
        ),
    ),
    bug(
        "a pause does not move due times",
        replace(
            PAUSE,
            "as_of",
            "delivery.due_at if delivery.is_first else delivery.due_at + by_ms",
            "delivery.due_at",
        ),
    ),
    bug(
        "a pause does not move windows",
        replace(PAUSE, "as_of", "delivery.expires_at + by_ms", "delivery.expires_at"),
    ),
    bug(
        "a pause counts from its begin, also for what is accepted later",
        replace(PAUSE, "as_of", "delivery.ready_at", "0"),
    ),
    bug(
        "a row that is due later after a pause is sent at once",
        replace(PAUSE, "waits", "delivery.due_at > now and not delivery.is_first", "False"),
    ),
    bug(
        "a probe takes a paused delivery",
        replace(PROBE, "Prober._take_one", "not queue.paused", "True"),
        replace(PROBE, "Prober._choose", "delivery.subscription_id in queue.paused", "False"),
    ),
    bug(
        "deliveries expire in a pause",
        replace(
            MAINTENANCE,
            "Maintenance._expire_page",
            "row.subscription_id in queue.paused",
            "False",
        ),
        replace(DECIDE, "Decision._is_expired", "pauses is not None", "False"),
        replace(QUEUE, "EndpointQueue.expiry_is_due", "self.suspended", "False"),
    ),
    bug(
        "after a resume the store is not read",
        replace(
            QUEUE,
            "EndpointQueue.set_paused",
            "bool(self.paused - paused) or (self.suspended and not everything)",
            "False",
        ),
    ),
    bug(
        "a resume forgets the pauses before",
        replace(PAUSE, "resumed", "before.past", "()"),
    ),
    bug(
        "a row that comes back among those that were read is not read again",
        replace(QUEUE, "EndpointQueue.read_again", "place[0] >= turn", "False"),
    ),
    bug(
        "a backfill takes events that the subscription has already",
        replace(REPLAYS, "past_events", "row[0] not in had", "True"),
        replace(REPLAYS, "replay_step", "await _missing(tx, new)", "new"),
    ),
    bug(
        "a backfill takes every event, whatever its type",
        replace(BACKFILL, "is_of_type", "any(...)", "True"),
    ),
    bug(
        "a backfill ignores filters",
        replace(REPLAY, "Replayer._wants", "bool(kept)", "True"),
    ),
    bug(
        "a backfill goes backwards within a page",
        replace(
            REPLAY,
            "Replayer._backfill_step",
            "[self._delivery(subscription, it.id, now) for it in wanted.events]",
            "[self._delivery(subscription, it.id, now) for it in wanted.events[::-1]]",
        ),
    ),
    bug(
        "a backfill gives an endpoint the notices about itself",
        replace(REPLAY, "Replayer._matching", "not is_about(subscription, event)", "True"),
    ),
    # --- order by key
    key_bug(
        "blocked deliveries are sent",
        replace("homing.model", "Delivery.part", "self.order_seq", "False"),
    ),
    key_bug(
        "a delivered one does not let the next one of its key go",
        replace(FLOW, "_unblock", "it.delivery.id not in gone", "it.status is Status.DROPPED"),
    ),
    key_bug(
        "the last one of a key goes next",
        replace_sql(
            "order_next", "ORDER BY p.order_seq LIMIT 1", "ORDER BY p.order_seq DESC LIMIT 1"
        ),
    ),
    key_bug(
        "a key waits for ever for one that was cancelled",
        remove(
            MAINTENANCE, "Maintenance._run_cleanup_jobs", "released = await self._release_keys()"
        ),
    ),
    key_bug(
        "a key does not wait for an attempt of one that was cancelled",
        replace(
            MAINTENANCE,
            "Maintenance._release_keys",
            "not self._dispatcher.is_in_flight(it.delivery_id, it.endpoint_id)",
            "True",
        ),
    ),
    key_bug(
        "the window of a delivery ends while it is blocked",
        remove(
            ORDER,
            "unblocked",
            "expires_at=now + delivery.expires_at - delivery.accepted_at - delivery.paused_ms",
        ),
    ),
    key_bug(
        "after a drop the next one of the key goes in the fresh lane",
        replace(ORDER, "unblocked", "-now if after_drop else now", "now"),
    ),
    key_bug(
        "a replay does not go behind what is pending of its key",
        remove(REPLAYS, "_write", "written = [blocked.get(it.id, it) for it in written]"),
    ),
    key_bug(
        "at a frozen endpoint the time of a blocked delivery begins when it is unblocked",
        replace(ORDER, "unblocked", "not enabled", "False"),
    ),
    key_bug(
        "the queue is not told what a settle has unblocked",
        replace(SETTLE, "Settler._apply", "result.unblocked", "()"),
    ),
    key_bug(
        "an equal id with another key is the same event",
        replace("homing.ports.flow", "NewEvent.content_hash", "event.order_key", "''"),
    ),
    key_bug(
        "a subscription without an order keeps its deliveries blocked",
        replace(ORDER_STORE, "unblock_all", "len(await write(tx, free))", "len(free)"),
    ),
    fleet_bug(
        "a new owner does not wait for the former owner's requests of a key",
        replace(
            OWNERSHIP, "BucketOwnership.ordered_from", "self._ordered_from.get(bucket, 0)", "0"
        ),
    ),
    # --- the newest event of a key
    key_bug(
        "an older event of a key is sent instead of the newest",
        replace(DISPATCH, "Dispatcher._send_or_newest", "subscription.order is _LATEST", "False"),
    ),
    key_bug(
        "the newest event that is remembered stays so when a newer one comes",
        replace(
            "homing.engine.latest",
            "NewestFirst.blocked",
            "self._newest.pop((delivery.subscription_id, delivery.order_key), None)",
            "None",
        ),
    ),
    key_bug(
        "a replay supersedes events",
        replace_sql("latest_newest", "AND p.replay = 0", "AND p.replay >= 0"),
    ),
    key_bug(
        "the newest event goes before others that were accepted without an order",
        replace_sql("latest_newest", "AND q.id <> ?1", "AND q.id = 0"),
    ),
    key_bug(
        "a publish supersedes nothing",
        replace(FLOW, "Flow.publish", "blocked and any(new.latest for new in accepted)", "False"),
    ),
    key_bug(
        "what is superseded is missing in the ledger",
        replace(
            "homing.store.latest", "_write", "LedgerChange(superseded=count)", "LedgerChange()"
        ),
    ),
    key_bug(
        "a delivery that failed is retried although a newer event waits",
        replace(DECIDE, "Decision._wait", "subscription.order is Order.LATEST", "False"),
    ),
    key_bug(
        "a newer event does not take the place of the older one",
        replace(ORDER, "instead", "min(older.due_at, now)", "now + 600_000"),
    ),
    key_bug(
        "a key does not wait for quiet when a newer event comes",
        replace_sql("latest_quiet", "AND attempts = 0", "AND attempts = 1"),
    ),
    key_bug(
        "the newest event is sent although older ones of its key are left",
        replace("homing.store.latest", "newest", "counts[key_of(it)] >= SUPERSEDED_MAX", "False"),
    ),
    key_bug(
        "a key is not quiet when an attempt of it has ended",
        replace(ORDER, "was_just_unblocked", "0 < abs(delivery.unblocked_at) >= ...", "False"),
    ),
    key_bug(
        "the quiet of a key is counted from its oldest event",
        replace(ORDER, "quiet_at", "newest.accepted_at + spec.quiet_ms", "since + spec.quiet_ms"),
    ),
    key_bug(
        "the first event that waits for quiet is superseded with the others",
        replace("homing.store.latest", "_supersede", "int(key in keep)", "0"),
    ),
    key_bug(
        "what waits goes on waiting when its quiet time is changed",
        replace("homing.store.latest", "follow", "min(it.due_at, now)", "now + 3_600_000"),
    ),
    key_bug(
        "a sender outage sends no canaries of the newest events",
        replace(
            DISPATCH,
            "Dispatcher._send_newest",
            "self.capacity.outage and not it.canary",
            "self.capacity.outage",
        ),
    ),
    key_bug(
        "a backfill makes every event of a key although only the newest is wanted",
        replace(
            REPLAY, "Replayer._wanted", "it.order_key in seen and last[it.order_key] is it", "True"
        ),
    ),
    Bug(
        "a backfill looks at a part of the newer events of a key only",
        (
            replace(
                REPLAY,
                "Replayer._is_newest",
                "len(page) < limit and not key.is_newer(it)",
                "not key.is_newer(it)",
            ),
        ),
        among=range(3, 2_400, 8),  # It takes many newer events of one key.
    ),
]
