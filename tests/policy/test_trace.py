"""Which traceparent is taken, which events are sampled, and that ids of spans are stable."""

from __future__ import annotations

import re

import pytest

from homing.model import Event
from homing.policy.trace import (
    Trace,
    attempt_span,
    is_sampled,
    publish_span,
    read_traceparent,
    trace_of,
    traceparent,
)

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def an_event(number: int = 7, trace: str = "") -> Event:
    return Event(number, "acme", "key", "a.b", "2025-01-31T12:00:00Z", 1, b"{}", trace)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (GIVEN, GIVEN),
        (f" {GIVEN} ", GIVEN),
        (GIVEN[:-2] + "00", GIVEN[:-2] + "00"),
        pytest.param("cc" + GIVEN[2:] + "-more", GIVEN, id="a later version with more"),
        pytest.param("cc" + GIVEN[2:] + "more", "", id="a later version that is cut wrongly"),
        pytest.param(GIVEN + "-more", "", id="the first version has nothing more"),
        pytest.param("ff" + GIVEN[2:], "", id="ff is no version"),
        pytest.param(GIVEN.upper(), "", id="upper case"),
        pytest.param(
            GIVEN.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), "", id="no trace"
        ),
        pytest.param(GIVEN.replace("b7ad6b7169203331", "0" * 16), "", id="no parent"),
        pytest.param(GIVEN[:-1], "", id="cut off"),
        pytest.param("", "", id="empty"),
        pytest.param("x" * 100_000, "", id="long"),
    ],
)
def test_a_traceparent_is_taken_or_ignored(text: str, read: str) -> None:
    assert read_traceparent(text) == read


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("flags", ["00", "01", "03"])
def test_the_publisher_decides_whether_its_trace_is_sampled(flags: str, share: float) -> None:
    event = an_event(trace=GIVEN[:-2] + flags)
    assert is_sampled(event, share) is (flags != "00")
    found = trace_of(event, share=share)
    assert (found.trace_id, found.parent_id) == (GIVEN[3:35], GIVEN[36:52])


def test_of_events_without_a_trace_the_share_is_sampled() -> None:
    events = [an_event(3670016000000000000 + number * 1024) for number in range(10_000)]
    assert not any(is_sampled(it, 0.0) for it in events)
    assert all(is_sampled(it, 1.0) for it in events)
    assert 800 < sum(is_sampled(it, 0.1) for it in events) < 1_200


def test_ids_are_stable_and_differ() -> None:
    one = trace_of(an_event(), share=1.0)
    assert one == trace_of(an_event(), share=1.0)
    assert re.fullmatch("[0-9a-f]{32}", one.trace_id)
    assert one.parent_id == ""
    assert one.trace_id != trace_of(an_event(8), share=1.0).trace_id
    spans = {publish_span(7), attempt_span(7, 1), attempt_span(7, 2), attempt_span(71, 1)}
    assert len(spans) == 4
    assert all(re.fullmatch("[0-9a-f]{16}", span) for span in spans)


def test_a_receiver_gets_a_header_that_can_be_read() -> None:
    for sampled in (True, False):
        trace = Trace("a" * 32, "", sampled)
        sent = traceparent(trace, attempt_span(7, 1))
        assert read_traceparent(sent) == sent
        assert sent.endswith(f"-0{int(sampled)}")
