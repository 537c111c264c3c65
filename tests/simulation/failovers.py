"""``make simulate``: many seeds of failovers, then the planted bugs that they must find."""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter

from homing.net.clock import monotonic
from simulation.failover_seed import run_failover_seed
from simulation.planting import Change, planted, remove, replace, replace_sql
from simulation.run import quiet

SEEDS = 200
SEARCHED = 12  # where the recorded seed no longer finds a bug
KINDS = frozenset(
    {
        "failover",
        "failover that lost commits",
        "event lost",
        "refused",
        "held",
        "change",
        "change lost",
    }
)
CATALOG = "homing.engine.catalog"
LOSSES, LEASES, MARKS = "homing.engine.commit_losses", "homing.store.leases", "homing.store.marks"

# Each with a seed that found it.
BUGS: dict[str, tuple[Change, int]] = {
    "a catalog that went back is not read again": (
        replace(CATALOG, "Catalog._refresh", "not self._follows(version)", "False"),
        1,
    ),
    "a change after a failover gets the version of one that is lost": (
        replace_sql(
            "catalog_raise", "CASE server WHEN 0 THEN 1 ELSE", "CASE WHEN true THEN 1 ELSE"
        ),
        8,
    ),
    "two failovers in a row give the same version": (
        replace_sql("catalog_raise", "1 + server % 65536", "1 + server * 0"),
        8,
    ),
    "a lost change of a subscription is not said": (
        remove(CATALOG, "Catalog._reload", "self.on_lost(before, version)"),
        1,
    ),
    "epochs of lost leases are given again": (
        remove(
            LEASES,
            "Leases.heal",
            'await tx.many("leases_heal", '
            "[(it[1], it[0], member_id) for it in sorted(epochs.items())])",
        ),
        1,
    ),
    "an epoch that was lost is given to another process": (
        replace_sql("leases_take", "max(epoch + 1, ?2)", "max(epoch + 1, ?2 - ?2)"),
        4,
    ),
    "an older batch in the database is not noticed": (
        replace(
            MARKS,
            "MarkMemory.check",
            "found is not None and seen <= found <= self._begun[key]",
            "found is not None",
        ),
        1,
    ),
    "publishes are accepted while they are held": (
        replace(LOSSES, "CommitLosses.check", "self.holding", "False"),
        1,
    ),
    "a loss is shown to the process that noticed it only": (
        remove(LOSSES, "CommitLosses.write", "await self._admin.add_commit_loss(loss)"),
        2,
    ),
    "a batch that was begun and not confirmed counts as a loss": (
        replace(
            MARKS,
            "MarkMemory.check",
            "found is not None and seen <= found <= self._begun[key]",
            "found is not None and seen < found",
        ),
        0,
    ),
}


def find(name: str) -> int | None:
    """The seed that finds this planted bug; None: none."""
    change, first = BUGS[name]
    with planted((change,)):
        seeds = dict.fromkeys((first, *range(SEARCHED)))
        return next((seed for seed in seeds if _is_wrong(seed)), None)


def _is_wrong(seed: int) -> bool:
    try:
        return bool(run_failover_seed(seed)[0])
    except Exception:  # noqa: BLE001 - a bug may also break the store
        return True


def _run(seed: int) -> tuple[int, list[str], Counter[str]]:
    return seed, *run_failover_seed(seed)


def main(count: str = str(SEEDS)) -> int:
    began, bad, fired = monotonic(), 0, Counter[str]()
    with multiprocessing.Pool(initializer=quiet) as pool:
        for seed, wrong, happened in pool.imap_unordered(_run, range(int(count))):
            fired += happened
            if wrong:
                bad += 1
                sys.stdout.write(f"failovers, seed {seed}: {'; '.join(wrong)}\n")
    never = KINDS - fired.keys()
    with multiprocessing.Pool(initializer=quiet, maxtasksperchild=1) as pool:
        found = dict(zip(BUGS, pool.imap(find, BUGS), strict=True))
    for name, by in found.items():
        sys.stdout.write(f"    {name}: {'NOT FOUND' if by is None else f'seed {by}'}\n")
    missed = [name for name, by in found.items() if by is None]
    counts = ", ".join(f"{name} {fired[name]:,}" for name in sorted(fired))
    sys.stdout.write(
        f"failovers: seeds {count}, violations {bad}, {counts}; never happened:"
        f" {', '.join(sorted(never)) or 'none'}; planted bugs found {len(found) - len(missed)} of"
        f" {len(found)}, {monotonic() - began:.0f} s\n"
    )
    return int(bool(bad or never or missed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
