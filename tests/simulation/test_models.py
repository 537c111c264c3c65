"""The policy and the reference model agree step by step, on any sequence of events."""

from __future__ import annotations

from random import Random

import pytest

from homing.model import Delivery, Health, State
from homing.policy import health, retry
from simulation.health_model import DeliveryModel, EndpointModel
from simulation.mix import draw

STEPS = 400


def outcomes_of(seed: int) -> None:
    rng, mix = Random(seed), draw(seed, 100)
    tenant = mix.tenants[0]
    rules, numbers = mix.options.rules_of(tenant), mix.numbers[tenant]
    now, bad = 1_000, rng.choice((0.3, 0.7, 0.95))
    stored = Health(state=State.ENABLED, since=now, enabled_since=now)
    model = EndpointModel(1, tenant, "", numbers, enabled_since=now)
    for _ in range(STEPS):
        now += rng.choice((1, 1_000, 60_000, 3_600_000))
        dice = rng.random()
        if dice < 0.02:
            verdict = health.enable(stored, now=now)
            model.enabled_by_person(now, "ann")
        elif dice < 0.03:
            verdict = health.freeze(stored, now=now)
            model.frozen_by_person(now, "ann")
        elif rng.random() < bad:
            verdict = health.after_failure(stored, rules, now=now)
            model.failed(now, probe=False, asked=None)
        else:
            verdict = health.after_success(stored, now=now)
            model.succeeded(now)
        stored = verdict.health
        change = verdict.change
        assert (change is not None) == bool(model.changes)
        if change is not None:
            (last,) = model.changes
            assert last[:4] == (change.before.value, change.after.value, change.rule, now)
            assert last[4] == change.numbers
            model.changes.clear()
        assert (stored.state.value, stored.since, stored.enabled_since) == (
            model.state,
            model.since,
            model.enabled_since,
        )
        assert (stored.attempts, stored.failures, stored.consecutive_failures) == (
            model.attempts,
            model.failures,
            model.row,
        )


@pytest.mark.parametrize("seeds", [range(30), range(30, 60)], ids=["a", "b"])
def test_health_is_what_is_promised_after_every_outcome(seeds: range) -> None:
    for seed in seeds:
        outcomes_of(seed)


def attempts_of(seed: int) -> None:
    rng, mix = Random(seed), draw(seed, 100)
    name = rng.choice(sorted(mix.tables))
    schedule, table = mix.options.schedules[name], mix.tables[name]
    now = 1_000_000
    row = Delivery(
        id=1,
        bucket=0,
        tenant="a",
        endpoint_id=1,
        subscription_id=1,
        event_id=1,
        root_id=1,
        accepted_at=now,
        due_at=now,
        expires_at=retry.window_end(now, schedule),
    )
    model = DeliveryModel(1, "a", 1, 1, 1, 1, now, table)
    for _ in range(STEPS):
        now = max(now, row.due_at) + rng.choice((0, 0, 1, 5_000, 600_000))
        kind = rng.random()
        after: Delivery | None
        if kind < 0.15:
            after = retry.after_probe_failure(row, schedule, now=now)
            model.probe_failed(now)
        elif kind < 0.3:
            after = retry.after_sender_error(row, now=now)
            model.had_sender_error(now, probe=False)
        else:
            asked = rng.choice((None, None, now + 30_000, now + 3_600_000))
            since = rng.choice((0, now))
            after = retry.after_failure(
                row, schedule, now=now, enabled_since=since, random=0.5, retry_after_at=asked
            )
            alive = model.failed(now, enabled_since=since, asked=asked)
            assert alive == (after is not None)
        if after is None:
            return
        row = after
        assert model.due <= row.due_at <= model.due_latest
        assert (row.t0, row.retry, row.attempts, row.sender_errors, row.expires_at) == (
            model.t0,
            model.n,
            model.attempts,
            model.sender_errors,
            model.expires,
        )


def test_a_schedule_is_what_is_promised_after_every_attempt() -> None:
    for seed in range(400):
        attempts_of(seed)
