"""The status of this process: sender-outage detection, lanes, database."""

from __future__ import annotations

from homing import __version__
from homing.app.status import Notices, OutageView, Status
from homing.policy.outage import OutageState
from homing.web.clock import clock_differs, clock_shown
from homing.web.operation import Call, Operation
from homing.web.response import Response, json_response
from homing.web.schemas import GateShown, StatusView, Well
from homing.web.show import time_text


def gate_shown(gate: OutageView) -> GateShown:
    return GateShown(
        state=gate.state.value,
        since=None if gate.since is None else time_text(gate.since),
        why=gate.why,
        waiting=gate.waiting,
        canaries=gate.canaries,
        closings=gate.closings,
    )


def well(notices: Notices, *, now: int) -> Well:
    """The response of a healthy process, with its outage state and clock where they matter."""
    gate, clock = notices.outage, notices.clock
    return Well(
        True,
        gate=None if gate.state is OutageState.OPEN else gate_shown(gate),
        clock=clock_shown(clock) if clock_differs(clock, now=now) else None,
    )


async def status(call: Call) -> Response:
    pulse = call.app.status.pulse(call.caller)
    return json_response(
        StatusView(
            version=__version__,
            gate=gate_shown(pulse.outage),
            clock=clock_shown(pulse.clock),
            draining=pulse.draining,
            store_ok=pulse.store_ok,
            late_ms=0 if pulse.due_since is None else max(call.now - pulse.due_since, 0),
            slots=pulse.slots,
            in_flight=pulse.in_flight,
            ready=pulse.ready,
            unsettled=pulse.unsettled,
            endpoints=pulse.endpoints,
            published=pulse.published,
            accepted=pulse.accepted,
            finished=pulse.finished,
            memory_bytes=pulse.memory_bytes,
        )
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/status",
        id="getStatus",
        use_case=Status.pulse,
        summary="The status of this process. Each process of a fleet has its own.",
        handler=status,
        response=StatusView,
    ),
)
