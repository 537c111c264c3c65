"""Seeds of notices to people, and the planted bugs that they find."""

from __future__ import annotations

import pytest

from simulation.notice_seed import run_notice_seed
from simulation.planting import Change, planted, remove, replace, some_in_every_run

SEEDS = 4
DECIDE, OPERATE = "homing.engine.decide", "homing.engine.operate"
NOTICES, SENDER = "homing.store.notices", "homing.engine.notice_sender"

BUGS: dict[str, Change] = {
    "a change by a rule is not reported": replace(
        DECIDE, "Decision._changed", "self._people.changed(endpoint, transition, failed)", "()"
    ),
    "a change by a person is not reported": remove(
        OPERATE, "Operator._set_once", "for_people=for_people"
    ),
    "every drop is called the first": replace(
        "homing.policy.notices", "is_first_drop", "now - reported_at >= DAY_MS", "True"
    ),
    "a warning is reported to nobody": replace(
        DECIDE,
        "Decision._judged",
        "self._people.warning(endpoint, warning, now=now, last=failed)",
        "()",
    ),
    "a message that failed gets a new name": replace(
        SENDER,
        "NoticeSender._send_message",
        "Message(taken.id, target, taken.notices, taken.more, self._options.public_url)",
        "Message(self._ids.take(self._clock.now()), target, taken.notices, taken.more, '')",
    ),
    "a message that failed counts as sent": remove(
        SENDER,
        "NoticeSender._finish",
        "await self._failed(target, message_id, error)\nreturn",
    ),
    "a notice goes to the URL that it is about": replace(
        NOTICES, "write", "address == address_hash(notice.url)", "False"
    ),
    "a reminder is written again": remove(
        NOTICES,
        "Notices.write_reminders",
        'await tx.all("reminders_move", days=days, upto_id=upto_id)',
    ),
    "a state that ended is reminded of": replace(
        NOTICES,
        "Notices.write_reminders",
        "endpoint_id is None or is_over or after == State.ENABLED",
        "endpoint_id is None or after == State.ENABLED",
    ),
    "tenants get the notices of others": replace(
        "homing.policy.notices",
        "wants",
        "owner in {OPERATOR, notice.tenant} and (not kinds or notice.kind in kinds)",
        "not kinds or notice.kind in kinds",
    ),
}


@pytest.mark.parametrize("seed", some_in_every_run(range(SEEDS)))
def test_every_change_is_in_one_record_and_one_message(seed: int) -> None:
    assert run_notice_seed(seed) == []


@pytest.mark.parametrize("name", some_in_every_run(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    with planted((BUGS[name],)):
        assert any(_found(seed) for seed in range(SEEDS)), name


def _found(seed: int) -> bool:
    try:
        return bool(run_notice_seed(seed))
    except Exception:  # noqa: BLE001 - a bug may also break the store
        return True
