"""A schedule is data, and nonsense is refused with all that is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from homing.errors import Invalid
from homing.policy.presets import PRESETS, check_schedule
from homing.policy.retry import Anchor, Schedule, exponential
from policy.build import DAY, MINUTE, a_schedule


def test_the_presets_are_known_by_name_and_pass_their_own_check() -> None:
    assert set(PRESETS) == {"workfront", "workfront-chained", "standard-webhooks", "once"}
    for name, schedule in PRESETS.items():
        assert schedule.name == name
        assert schedule.jitter == 0
        assert schedule.deadline_ms == 5000
        check_schedule(schedule)


def test_exponential_is_two_to_the_n_less_one_times_the_base() -> None:
    assert exponential(10, 4) == (10, 30, 70, 150)
    assert exponential(10, 0) == ()


CHAINED: dict[str, Any] = {"anchor": Anchor.PREVIOUS_FAILURE}


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(a_schedule(), id="three rising offsets"),
        pytest.param(a_schedule(jitter=1.0), id="full jitter"),
        pytest.param(a_schedule(deadline_ms=1000), id="the shortest deadline"),
        pytest.param(a_schedule(deadline_ms=30_000), id="the longest deadline"),
        pytest.param(a_schedule(**CHAINED, delays_ms=(5, 5, 1)), id="chained delays may fall"),
        pytest.param(a_schedule(**CHAINED, window_ms=1), id="a chained window may be short"),
        pytest.param(a_schedule(window_ms=30 * DAY), id="the longest window"),
        pytest.param(a_schedule(delays_ms=(1,) * 100, **CHAINED), id="100 retries"),
        pytest.param(a_schedule(delays_ms=()), id="no retries"),
        pytest.param(a_schedule(delays_ms=(), **CHAINED), id="no retries, chained"),
    ],
)
def test_a_sensible_schedule_passes(schedule: Schedule) -> None:
    check_schedule(schedule)


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        pytest.param(a_schedule(delays_ms=(1,) * 101, **CHAINED), ["delays_ms"], id="too many"),
        pytest.param(a_schedule(delays_ms=(0, 1)), ["delays_ms"], id="a delay of zero"),
        pytest.param(a_schedule(delays_ms=(5, 5)), ["delays_ms"], id="offsets that stand still"),
        pytest.param(a_schedule(delays_ms=(5, 3)), ["delays_ms"], id="offsets that fall"),
        pytest.param(
            a_schedule(window_ms=7 * MINUTE - 1), ["window_ms"], id="a window before its last retry"
        ),
        pytest.param(a_schedule(window_ms=0, **CHAINED), ["window_ms"], id="no window"),
        pytest.param(a_schedule(window_ms=30 * DAY + 1), ["window_ms"], id="an endless window"),
        pytest.param(a_schedule(jitter=-0.1), ["jitter"], id="jitter that would be early"),
        pytest.param(a_schedule(jitter=1.1), ["jitter"], id="jitter over 1"),
        pytest.param(a_schedule(jitter=float("nan")), ["jitter"], id="jitter that is no number"),
        pytest.param(a_schedule(deadline_ms=999), ["deadline_ms"], id="a deadline under 1 s"),
        pytest.param(a_schedule(deadline_ms=30_001), ["deadline_ms"], id="a deadline over 30 s"),
        pytest.param(a_schedule(name=""), ["name"], id="no name"),
        pytest.param(
            a_schedule(delays_ms=(0,), window_ms=0, jitter=2, deadline_ms=0),
            ["delays_ms", "window_ms", "jitter", "deadline_ms"],
            id="all at once",
        ),
    ],
)
def test_nonsense_is_refused_with_the_fields_that_are_wrong(
    schedule: Schedule, fields: list[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        check_schedule(schedule)
    assert [problem.field for problem in refused.value.problems] == fields
