"""Planted bugs of leases: two owners, late writers, hand-overs in the middle."""

from __future__ import annotations

from sim.planting import bug

FLEET = "homing.engine.fleet:Fleet"
LEASES = "homing.store.leases"

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
]
