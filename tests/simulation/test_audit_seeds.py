"""Seeds of the audit log, and the planted bugs that they find."""

from __future__ import annotations

import pytest

from simulation.audit_seed import run_audit_seed
from simulation.planting import Change, planted, remove, replace, some_in_every_run

SEEDS = 3
ADMIN, KEYS, AUDIT = "homing.store.admin", "homing.store.keys", "homing.store.audit"
KEEPER, POLICY = "homing.engine.audit", "homing.policy.audit"

BUGS: dict[str, Change] = {
    "a change of a subscription leaves no entry": remove(
        ADMIN, "Admin.change_subscription", "await _log(tx, audit, before, new)"
    ),
    "a deleted subscription leaves no entry": remove(
        ADMIN, "Admin.delete_subscription", "await _log(tx, audit, before, None)"
    ),
    "a bulk replay that had ended is said to be stopped": replace(
        ADMIN,
        "Admin.cancel_replay_job",
        'await tx.one("replay_job_cancel", id=job_id) is not None',
        'await tx.one("replay_job_cancel", id=job_id) or True',
    ),
    "a key that was revoked before is said to be revoked": replace(
        KEYS, "Keys.revoke_key", "row is None", "False"
    ),
    "the values before are those after": replace(
        ADMIN,
        "Admin.change_subscription",
        "await _log(tx, audit, before, new)",
        "await _log(tx, audit, new, new)",
    ),
    "a token is shown": replace(
        POLICY, "_subscription", "field.secret and value is not None", "False"
    ),
    "the head is not signed": replace(
        KEEPER, "AuditKeeper._signed", "head_mac(self._key, head)", "b''"
    ),
    "retention forgets the hash of what it removed": remove(
        KEEPER, "AuditKeeper._remove", "removed_hash=oldest.hash"
    ),
    "retention removes entries that are in no segment": replace(
        AUDIT,
        "Audit.remove_segment",
        'await tx.all("audit_entries_remove", segment=number)',
        'await tx.all("audit_entries_remove", segment=0)',
    ),
    "a segment has other entries than were hashed": replace(
        KEEPER,
        "AuditKeeper._seal",
        "(it.digest for it in entries)",
        "(it.digest for it in entries[1:])",
    ),
    "two leaders make the same segment": replace(
        AUDIT, "Audit.add_segment", "not await _move_head(tx, head, seen=seen)", "False"
    ),
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_change_is_in_the_store_exactly_if_its_entry_is(seed: int) -> None:
    assert run_audit_seed(seed) == []


@pytest.mark.parametrize("name", some_in_every_run(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    with planted((BUGS[name],)):
        assert any(_found(seed) for seed in range(SEEDS)), name


def _found(seed: int) -> bool:
    try:
        return bool(run_audit_seed(seed))
    except Exception:  # noqa: BLE001 - a bug may also break the store
        return True
