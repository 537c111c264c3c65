"""The status of this process: sender-outage detection, lanes, database."""

from __future__ import annotations

from homing import __version__
from homing.app.status import CertificateWarning, Condition, OutageView, Status
from homing.errors import NotFound
from homing.model import show_id
from homing.policy.outage import OutageState
from homing.web.api.lost_commits import loss_view
from homing.web.clock import clock_differs, clock_shown
from homing.web.operation import Call, Operation
from homing.web.response import Response, json_response
from homing.web.schemas import (
    CertificateWarningView,
    EgressView,
    KeptPolicyView,
    OutageShown,
    RefusedEndpoint,
    StatusView,
    Well,
)
from homing.web.show import ENDPOINT, SUBSCRIPTION, time_text


def outage_shown(outage: OutageView) -> OutageShown:
    return OutageShown(
        state=outage.state.value,
        since=None if outage.since is None else time_text(outage.since),
        why=str(outage.why),
        waiting=outage.waiting,
        canaries=outage.canaries,
        outages=outage.outages,
    )


def well(condition: Condition, *, now: int) -> Well:
    """The response of a healthy process, with its outage state and clock where they matter."""
    outage, clock = condition.outage, condition.clock
    return Well(
        True,
        outage=None if outage.state is OutageState.NONE else outage_shown(outage),
        clock=clock_shown(clock) if clock_differs(clock, now=now) else None,
        kept_policies=list(condition.policies),
    )


def certificate_warning(warning: CertificateWarning) -> CertificateWarningView:
    it = warning.it
    expired = warning.warned is not None and not warning.warned.days
    return CertificateWarningView(
        tenant=it.tenant or None,
        subscription=show_id(SUBSCRIPTION, it.subscription_id) if it.subscription_id else None,
        file=it.file or None,
        subject=None if it.facts is None else it.facts.subject,
        expires_at=None if it.facts is None else time_text(it.facts.expires_at),
        problem="it has expired" if expired else str(it.problem),
    )


async def egress(call: Call) -> Response:
    return json_response(EgressView(list(call.app.status.egress())))


async def status(call: Call) -> Response:
    pulse = call.app.status.pulse(call.caller)
    return json_response(
        StatusView(
            version=__version__,
            outage=outage_shown(pulse.outage),
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
            refused_endpoints=[
                RefusedEndpoint(
                    show_id(ENDPOINT, it.id), it.tenant, it.url, time_text(it.guard_refused_at)
                )
                for it in await call.app.endpoints.refused(call.caller)
            ],
            kept_policies=[
                KeptPolicyView(
                    it.name, it.count, [show_id(SUBSCRIPTION, one) for one in it.subscription_ids]
                )
                for it in call.app.status.kept_policies(call.caller)
            ],
            certificates=[
                certificate_warning(one) for one in call.app.status.certificates(call.caller)
            ],
            lost_commits=[loss_view(it) for it in pulse.commit_losses],
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
    Operation(
        method="GET",
        path="/v1/egress",
        id="getEgress",
        summary="The addresses that requests to receivers come from, for their firewalls.",
        handler=egress,
        response=EgressView,
        errors=(NotFound,),
        open=True,
    ),
)
