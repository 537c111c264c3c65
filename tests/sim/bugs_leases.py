"""Planted bugs of a fleet: two owners, late writers, hand-overs in the middle, changes unheard."""

from __future__ import annotations

from sim.planting import bug

FLEET = "homing.engine.fleet:Fleet"
LEASES = "homing.store.leases"
STATION = "homing.engine.station:Station"
DISPATCH = "homing.engine.dispatch:Dispatcher"

LEASE_BUGS = [
    bug(
        "a late settle is not refused",
        (f"{LEASES}:hold", "raise LostLeases(lost)", "pass"),
        fleet=True,
    ),
    bug(
        "a lease is taken from a process that lives",
        (f"{LEASES}:_gone", "if row[1] <= now", "if True"),
        (
            f"{FLEET}._share",
            "it.owner if it.owner in alive else None",
            "it.owner if it.owner == self._me else None",
        ),
        fleet=True,
    ),
    bug(
        "an epoch comes again",
        ("sql:leases_take", "epoch = epoch + 1", "epoch = epoch"),
        fleet=True,
    ),
    bug(
        "sending goes on when the lease is over",
        (f"{FLEET}._beat_once", "self._parts.lease_ms * 9 // 10", "self._parts.lease_ms * 9"),
        fleet=True,
    ),
    bug(
        "a bucket is handed over with attempts in flight",
        (f"{FLEET}._hand_over", "if it not in busy or now >= until", ""),
        fleet=True,
    ),
    bug(
        "what is in a lost bucket is not forgotten",
        (f"{FLEET}._forget", "self._dispatcher.drop(buckets)", "pass"),
        fleet=True,
    ),
    bug(
        "what was begun under a lost lease is settled under the next one",
        (
            "homing.engine.settle:Settler._is_ours",
            "return item.epoch == epochs[item.work.delivery.bucket]",
            "return True",
        ),
        fleet=True,
    ),
    # --- what is stored, and what people change
    bug(
        "a change is answered while others do not act on it",
        (
            "homing.engine.aware:Aware.all_know",
            "while await self._some_behind(version):",
            "while False:",
        ),
        fleet=True,
    ),
    bug(
        "the history of a fleet says dropped",
        ("homing.store.rows:history_row", "finished.status,", "'dropped',"),
        fleet=True,
    ),
    bug(
        "attempts go on while disabled in a fleet",
        (f"{STATION}.ready", "endpoint.health.state is _ENABLED and ", ""),
        (f"{DISPATCH}._takes_fresh", "and health.state is _ENABLED", ""),
        fleet=True,
    ),
    bug(
        "changes by another process are not heard",
        (f"{FLEET}._hear_changed", "self._dispatcher.read_again(endpoint_id)", "pass"),
        fleet=True,
    ),
    bug(
        "what was changed while words were lost is not looked for",
        (
            "homing.store.admin:Admin.set_endpoint",
            "await leases.raise_topic(tx, leases.bucket_topic(endpoint.bucket))",
            "pass",
        ),
        fleet=True,
    ),
    bug(
        "chores are done by whoever finds them",
        (
            "homing.engine.sweep:Sweeper._do_chores",
            "if self._held.mine[it.bucket]]",
            "]",
        ),
        fleet=True,
    ),
    bug(
        "a fleet takes rows a second before they are due",
        ("homing.store.flow:_choose", "row[0] <= now", "row[0] <= now + 1000"),
        fleet=True,
    ),
    bug(
        "a settle overwrites what another process has set",
        ("sql:endpoint_settle", "AND generation = ?", "AND 0 <= ?"),
        fleet=True,
    ),
]
