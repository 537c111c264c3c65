"""The deliveries and endpoints that the sentences are about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from homing.languages.sentences import Sentence
from homing.model import Endpoint, Health, State, Status
from homing.policy.explain import Facts
from homing.policy.health import HealthRules
from homing.policy.presets import WORKFRONT
from policy.build import DAY, MINUTE, NOW, SECOND, a_delivery, a_health, an_endpoint

WINDOW = WORKFRONT.window_ms


def facts(**given: Any) -> Facts:
    row = Facts(
        status=Status.PENDING,
        reason=None,
        finished_at=None,
        arrived=False,
        delivery=a_delivery(),
        endpoint=an_endpoint(),
        in_flight=None,
        schedule=WORKFRONT,
        rules=HealthRules(),
    )
    return replace(row, **given)


def read(sentence: Sentence) -> str:
    """The sentence with its times in UTC to the minute, and with the day unless it is today."""

    def show(ms: int) -> str:
        at, today = (
            datetime.fromtimestamp(ms // 1000, UTC),
            datetime.fromtimestamp(NOW // 1000, UTC),
        )
        return f"{at:%H:%M}" if at.date() == today.date() else f"{at:%-d %b %H:%M}"

    return sentence.text(show)


def since(state: State, *, rule: str, **given: Any) -> Endpoint:
    """An endpoint in this state for eight minutes; its next probe is in two."""
    health = Health(state=state, since=NOW - 8 * MINUTE, enabled_since=NOW - 10 * DAY, **given)
    probe = NOW + 2 * MINUTE if state is State.DISABLED else None
    return an_endpoint(health=health, rule=rule, next_probe_at=probe)


ENABLED = an_endpoint()
DISABLED = since(State.DISABLED, rule="consecutive_failures", consecutive_failures=2_000)
FROZEN = since(State.FROZEN, rule="no_success", consecutive_failures=2_010)

ACCEPTED = NOW - 30 * MINUTE
NEVER = a_delivery(accepted_at=ACCEPTED, due_at=ACCEPTED, expires_at=ACCEPTED + WINDOW)
RETRYING = replace(
    NEVER,
    t0=ACCEPTED,
    retry=5,
    attempts=5,
    due_at=ACCEPTED + WORKFRONT.delays_ms[4],
)
OVERDUE = replace(RETRYING, retry=4, attempts=4, due_at=ACCEPTED + WORKFRONT.delays_ms[3])
LAST = replace(RETRYING, retry=11, attempts=12, due_at=ACCEPTED + WINDOW)
REPLAY = replace(NEVER, replay=True, root_id=NEVER.id - 1)
PAST = replace(NEVER, replay=True)  # made by a backfill: it has no delivery before it
SENDER_ERROR = replace(NEVER, attempts=1, sender_errors=1, due_at=NOW + 5 * SECOND)
HELD = an_endpoint(hold_until=NOW + 20 * MINUTE)
BACK = an_endpoint(health=a_health(since=NOW - MINUTE, enabled_since=NOW - MINUTE))
