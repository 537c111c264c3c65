"""Planted bugs of what is told, recorded, repeated and never gone on with."""

from __future__ import annotations

from sim.planting import bug as _bug

DECIDE = "homing.engine.decide:Decision"

TOLD_BUGS = [
    _bug(
        "a probe's success leaves its delivery pending",
        (
            f"{DECIDE}._attempt",
            "self.finished.append(Finished(delivered, _DELIVERED, None, now))",
            "(self.waiting if made.lane is Lane.PROBE else self.finished).append(delivered "
            "if made.lane is Lane.PROBE else Finished(delivered, _DELIVERED, None, now))",
        ),
    ),
    _bug(
        "a subscription's own deadline is ignored",
        (
            "homing.engine.options:EngineOptions.deadline_of",
            "if subscription.deadline_ms is not None:",
            "if False:",
        ),
    ),
    _bug(
        "the same id with another type or time is the same",
        (
            "homing.ports.flow:NewEvent.content_hash",
            "content_hash(self.event.type, self.given_time, self.event.data)",
            "content_hash('', '', self.event.data)",
        ),
    ),
    _bug(
        "of twins in a batch the second is taken for the first",
        (
            "homing.engine.publish:Publisher._distinct",
            "if not _same(draft, distinct[place]):",
            "if False:",
        ),
    ),
    _bug(
        "nobody is told of a change of state",
        (f"{DECIDE}._changed", "self.new_events.append(", "id("),
    ),
    _bug(
        "a change of state has no numbers",
        (f"{DECIDE}._changed", "numbers=change.numbers,", "numbers={},"),
    ),
    _bug(
        "a person's enable is dated an hour back",
        (
            "homing.engine.operate:Operator._set_once",
            "seen, now = starts[0].endpoint, self._clock.now()",
            "seen, now = starts[0].endpoint, self._clock.now() - 3_600_000",
        ),
    ),
    _bug(
        "an event is accepted at the full hour",
        (
            "homing.engine.stage:Stage._delivery",
            "number = self._ids.take(now)",
            "number = self._ids.take(now); now = now // 3_600_000 * 3_600_000",
        ),
    ),
    _bug(
        "a publisher's time is replaced",
        ("homing.engine.stage:Stage.event", "draft.time or rfc3339(wall)", "rfc3339(wall)"),
    ),
    _bug(
        "the log has another lane",
        (f"{DECIDE}._log", "made.lane,", "Lane.RETRY if made.lane is Lane.FRESH else made.lane,"),
    ),
    _bug(
        "Retry-After is honoured whatever the code",
        (
            "homing.policy.outcome:wants_hold",
            "return code in {429, 503}",
            "return code is not None and code >= 400",
        ),
    ),
    _bug(
        "a timer rings late",
        (
            "homing.engine.dispatch:Dispatcher._set_timer",
            "wait_ms = max(at - self._clock.now(), 0)",
            "wait_ms = max(at - self._clock.now(), 0) + 200_000",
        ),
    ),
    _bug(
        "a replay ends after its first step",
        (
            "homing.engine.replay:Replayer._step",
            'state="done" if all_seen else "running"',
            'state="done"',
        ),
    ),
    _bug(
        "filters are not asked",
        (
            "homing.policy.wants:picked",
            "if not any(one.id in wants for one in found):",
            "if True:",
        ),
    ),
]
