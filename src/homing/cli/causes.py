"""``homing causes``: which URLs fail, why, since when, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import EndpointFlag, LimitFlag, TenantFlag, given
from homing.cli.endpoints import endpoint_id
from homing.cli.output import ago, coloured, dim
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homing_client import Cause, Homing
    from homing_client.values import CausesWhere


@remote_command
def causes(
    *,
    remote: Remote,
    endpoint: EndpointFlag = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Closed causes, too: the URL has succeeded since.")
    ] = False,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
) -> None:
    """List why URLs fail: one line per open cause, the newest first."""
    where: CausesWhere = given(tenant=tenant, open=None if everything else True)  # type: ignore[assignment]

    def fetch(client: Homing) -> Iterator[Cause]:
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        return client.causes(**where)

    remote.list_items(
        fetch,
        limit=limit,
        columns=("cause", "since", "last", "attempts", "deliveries", "waiting", "state", "url"),
        right=("attempts", "deliveries", "waiting"),
        row=_row,
        empty="No cause is known." if everything else "No URL fails at present.",
    )


def _row(one: Cause) -> tuple[object, ...]:
    waiting = f"{one.waiting:,}+" if one.waiting_more else f"{one.waiting:,}"
    return (
        coloured("failed", text=one.title) if one.open else dim(f"{one.title} (closed)"),
        ago(one.first_seen),
        dim(ago(one.last_seen)),
        f"{one.attempts:,}",
        f"{one.deliveries:,}",
        waiting,
        coloured(one.state),
        one.url,
    )
