"""The spans of what the engine does: a publish, its commit, and every attempt.

An attempt is a child of the publish and has a link to the attempt before it. Spans are made after
the commit that they describe, and only for events that are sampled.
"""

from __future__ import annotations

from collections.abc import Iterable

from homing.engine.attempt import CompletedAttempt
from homing.model import Event, Outcome, show_id
from homing.policy.trace import attempt_span, commit_span, is_sampled, publish_span, trace_of
from homing.ports import Clock, NewEvent
from homing.ports.tracing import Span, SpanExporter

_DELIVERED = Outcome.DELIVERED


class Tracing:
    """Makes spans and gives them to the exporter; of events without a trace, ``share`` get one."""

    def __init__(self, exporter: SpanExporter, clock: Clock, *, share: float) -> None:
        self._exporter, self._clock, self.share = exporter, clock, share

    def published(
        self, events: Iterable[NewEvent], *, called_at: int, commit_at: int, now: int
    ) -> None:
        """Report events that are on disk as of ``now``; the commit began at ``commit_at``."""
        ahead = self._clock.wall() - now
        spans: list[Span] = []
        for new in events:
            event = new.event
            if not is_sampled(event, self.share):
                continue
            trace, publish = trace_of(event, share=self.share), publish_span(event.id)
            about = (*_about(event), ("homing.deliveries", len(new.deliveries)))
            spans.append(
                Span(
                    f"publish {event.type}",
                    False,
                    trace.trace_id,
                    publish,
                    trace.parent_id,
                    "",
                    called_at + ahead,
                    now + ahead,
                    "",
                    about,
                )
            )
            spans.append(
                Span(
                    "commit",
                    False,
                    trace.trace_id,
                    commit_span(event.id),
                    publish,
                    "",
                    commit_at + ahead,
                    now + ahead,
                    "",
                    (),
                )
            )
        if spans:
            self._exporter.add(spans)

    def attempted(self, attempts: Iterable[CompletedAttempt]) -> None:
        """Report attempts whose outcomes are on disk."""
        ahead = self._clock.wall() - self._clock.now()
        share = self.share
        spans = [self._attempt(it, ahead) for it in attempts if is_sampled(it.work.event, share)]
        if spans:
            self._exporter.add(spans)

    def _attempt(self, attempt: CompletedAttempt, ahead: int) -> Span:
        delivery, event, response = attempt.work.delivery, attempt.work.event, attempt.response
        about: list[tuple[str, str | int]] = [
            *_about(event),
            ("homing.delivery", show_id("dlv", delivery.id)),
            ("homing.subscription", show_id("sub", delivery.subscription_id)),
            ("homing.endpoint", show_id("ep", attempt.endpoint_id)),
            ("homing.attempt", attempt.number),
            ("homing.lane", attempt.lane.value),
            ("homing.outcome", attempt.outcome.value),
            ("http.request.method", "POST"),
        ]
        if response.code is not None:
            about.append(("http.response.status_code", response.code))
        if response.address is not None:
            about.append(("network.peer.address", response.address))
        error = ""
        if attempt.outcome is not _DELIVERED:
            error = str(response.failure.value if response.failure else response.code)
            about.append(("error.type", error))
        number = attempt.number
        return Span(
            f"attempt {event.type}",
            True,
            trace_of(event, share=self.share).trace_id,
            attempt_span(delivery.id, number),
            publish_span(event.id),
            attempt_span(delivery.id, number - 1) if number > 1 else "",
            attempt.started_at + ahead,
            attempt.finished_at + ahead,
            error,
            tuple(about),
        )


def _about(event: Event) -> tuple[tuple[str, str | int], ...]:
    return (
        ("messaging.system", "homing"),
        ("messaging.message.id", event.key),
        ("homing.tenant", event.tenant),
        ("homing.event_type", event.type),
    )
