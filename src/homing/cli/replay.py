"""``homing replay``: replay one delivery, or all that match a filter after counting them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import (
    CodeFlag,
    EndpointFlag,
    EventFlag,
    FailureFlag,
    FinishedSinceFlag,
    ReasonFlag,
    SinceFlag,
    StatusFlag,
    SubscriptionFlag,
    TenantFlag,
    TypeFlag,
    UntilFlag,
    UrlFlag,
    given,
)
from homing.cli.deliveries import delivery_id, view_delivery
from homing.cli.endpoints import endpoint_id
from homing.cli.errors import Failed, Usage
from homing.cli.output import console, note, print_json
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from homing_client import Homing, ReplayCount, ReplayJob
    from homing_client.values import ReplayWhere

POLL_S = 0.2


@remote_command
def replay(
    delivery: Annotated[
        str | None, typer.Argument(help="The id of one finished delivery, or of its event.")
    ] = None,
    *,
    remote: Remote,
    status: StatusFlag = None,
    reason: ReasonFlag = None,
    endpoint: EndpointFlag = None,
    subscription: SubscriptionFlag = None,
    event: EventFlag = None,
    event_type: TypeFlag = None,
    url: UrlFlag = None,
    failure: FailureFlag = None,
    code: CodeFlag = None,
    since: SinceFlag = None,
    until: UntilFlag = None,
    finished_since: FinishedSinceFlag = None,
    tenant: TenantFlag = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Replay one finished delivery, or all that match, after they were counted and you confirm."""
    where: ReplayWhere = given(  # type: ignore[assignment]
        status=status,
        reason=reason,
        endpoint=endpoint,  # replaced by its id below
        subscription=subscription,
        event=event,
        type=event_type,
        url=url,
        failure=failure,
        code=code,
        since=since,
        until=until,
        finished_since=finished_since,
        tenant=tenant,
    )
    if (delivery is None) == (not where.keys() - {"tenant"}):
        raise Usage("Give either one delivery, or a filter like --status dropped --since 2d.")
    if delivery is not None:
        remote.show(
            lambda client: client.replay_delivery(delivery_id(client, delivery, tenant)),
            view_delivery,
        )
        return
    with remote.connect() as client:
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        _bulk(client, where, dry_run=dry_run, yes=yes, json=remote.json)


def _bulk(client: Homing, where: ReplayWhere, *, dry_run: bool, yes: bool, json: bool) -> None:
    found = client.count_replay(**where)
    if dry_run:
        if json:
            print_json(found)
        else:
            console().print(f"{_deliveries(found)} would be replayed.")
        return
    if not found.count:
        if json:
            print_json(found)
        else:
            note("No finished delivery matches: nothing is replayed.")
        return
    if not yes:
        _ask(found)
    if found.as_of is not None:  # Deliveries that finished later were not counted.
        where["as_of"] = found.as_of
    job = _follow(client, client.start_replay(**where), found, quiet=json)
    if json:
        print_json(job)
    else:
        skipped = f", {job.skipped:,} skipped (their subscription or data no longer exists)"
        console().print(f"{job.replayed:,} replayed{skipped if job.skipped else ''}.")
    if job.state != "done":
        raise Failed(f"The replay {job.id} was {job.state}; deliveries that it has made stay.")


def _deliveries(found: ReplayCount) -> str:
    noun = "delivery" if found.count == 1 and found.exact else "deliveries"
    return f"{found.count:,}{'' if found.exact else ' or more'} {noun}"


def _ask(found: ReplayCount) -> None:
    if not sys.stdin.isatty():
        raise Usage(
            f"{_deliveries(found)} would be replayed: give --yes, as there is no terminal to ask."
        )
    typer.confirm(f"Replay {_deliveries(found)}?", abort=True)


def _follow(client: Homing, job: ReplayJob, found: ReplayCount, *, quiet: bool) -> ReplayJob:
    """Wait for the end with a progress bar; Ctrl-C stops the replay itself."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    out = console(stderr=True)
    with Progress(
        TextColumn("replaying"),
        BarColumn(),
        MofNCompleteColumn(),
        console=out,
        disable=quiet or not out.is_terminal,
    ) as bar:
        task = bar.add_task("replay", total=found.count if found.exact else None)
        try:
            while job.state == "running":
                time.sleep(POLL_S)
                job = client.replay_job(job.id)
                bar.update(task, completed=job.replayed + job.skipped)
        except KeyboardInterrupt:
            job = client.cancel_replay(job.id)
    return job
