"""Seeds of erasures, and the planted bugs that they find."""

from __future__ import annotations

import pytest

from simulation.erasure_seed import run_erasure_seed
from simulation.planting import Change, planted, remove, replace, some_in_every_run

SEEDS = 5
SEARCHED = 80  # seeds until a planted bug must be found
# Seeds that find one soon. They only save time.
KNOWN = {
    "deliveries in memory are not forgotten": 29,
    "a probe that was chosen before is sent": 22,
    "an interrupted erasure is never finished": 0,
    "the subscriptions of an erased tenant are still used": 3,
}
ERASE, STORE = "homing.engine.erase", "homing.store.erasures"

BUGS: dict[str, Change] = {
    "deliveries in memory are not forgotten": remove(
        "homing.engine.dispatch", "Dispatcher.forget_erased", "queue.forget_erased()"
    ),
    "a probe that was chosen before is sent": replace(
        "homing.engine.probe",
        "Prober._choose",
        "self._catalog.erased(endpoint.tenant) > erased",
        "False",
    ),
    "the attempt in flight is logged": replace(
        "homing.store.flow",
        "_without_erased",
        "it.delivery_id not in gone or it.delivery_id in known",
        "True",
    ),
    "the ledger is not told": remove(STORE, "erase", "await add_to_ledger(tx, changes, node=node)"),
    "the attempts stay": remove(
        STORE,
        "remove",
        'await tx.many("attempts_remove", [(id_,) for id_, _ in (*pending, *history)])',
    ),
    "the payload fields stay": remove(STORE, "remove", 'await tx.many("event_fields_remove", ids)'),
    "replay jobs keep the id": remove(STORE, "remove", 'await tx.many("erase_jobs_of_event", ids)'),
    "erased ids are forgotten": replace(
        "homing.engine.catalog", "Catalog._tenant_changes", "found.ids", "False"
    ),
    "replays are not erased": replace(STORE, "remove", "[(it,) for it in event_of]", "[]"),
    "an interrupted erasure is never finished": remove(
        "homing.engine.engine", "Engine._recover", "self.erasures.take_up()"
    ),
    "the subscriptions of an erased tenant are still used": replace(
        "homing.engine.catalog",
        "Catalog._forget_erased",
        "erased.everything.get(subscription.tenant, -1)",
        "-1",
    ),
    "subscriptions that were made after an erasure are dead": replace(
        "homing.engine.catalog",
        "Catalog._forget_erased",
        "subscription.version <= erased.everything.get(subscription.tenant, -1)",
        "subscription.tenant in erased.everything",
    ),
    "an erasure covers what is accepted later": replace(
        "homing.store.admin",
        "Admin.begin_erasure",
        "await acceptance.last(tx)",
        "await acceptance.last(tx) + 20",
    ),
    "an erasure covers what has a lower id": replace(
        STORE, "covers", "position <= hidden.get(tenant, -1)", "tenant in hidden"
    ),
    "a second erasure of a tenant is the first one": replace(
        "homing.store.admin",
        "Admin.begin_erasure",
        "known and new.kind is not ErasureKind.TENANT",
        "known",
    ),
    "an erasure that was asked for again ends with its first walk": replace(
        "homing.engine.erase",
        "Eraser._run_all",
        "await self._admin.finish_erasure(it, now=now)",
        "await self._admin.finish_erasure(await self.get(it.id), now=now)",
    ),
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_that_was_erased_is_sent_or_left(seed: int) -> None:
    assert run_erasure_seed(seed) == []


@pytest.mark.parametrize("name", some_in_every_run(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    with planted((BUGS[name],)):
        assert any(_found(seed) for seed in (KNOWN.get(name, 0), *range(SEARCHED))), name


def _found(seed: int) -> bool:
    try:
        return bool(run_erasure_seed(seed))
    except Exception:  # noqa: BLE001 - a bug may also break the store
        return True
