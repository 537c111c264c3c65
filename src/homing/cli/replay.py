"""``homing replay``: one delivery again, or all that fit a filter, after a look at how many."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.deliveries import (
    EndpointFlag,
    EventFlag,
    ReasonFlag,
    SinceFlag,
    StatusFlag,
    SubscriptionFlag,
    TypeFlag,
    UntilFlag,
    UrlFlag,
    delivery_id,
    detail,
)
from homing.cli.endpoints import endpoint_id
from homing.cli.output import console, nothing, say_json
from homing.cli.trouble import Failed, Usage
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, TenantFlag, connect, given

if TYPE_CHECKING:
    from homing.client import Homing, ReplayCount, ReplayJob
    from homing.client.replays import ReplayWhere

POLL_S = 0.2


def replay(
    delivery: Annotated[
        str | None, typer.Argument(help="One finished delivery; or none, and a filter.")
    ] = None,
    *,
    status: StatusFlag = None,
    reason: ReasonFlag = None,
    endpoint: EndpointFlag = None,
    subscription: SubscriptionFlag = None,
    event: EventFlag = None,
    event_type: TypeFlag = None,
    url: UrlFlag = None,
    since: SinceFlag = None,
    until: UntilFlag = None,
    tenant: TenantFlag = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Replay one finished delivery, or all that fit: they are counted first, and you are asked."""
    where: ReplayWhere = given(  # type: ignore[assignment]
        status=status,
        reason=reason,
        endpoint=endpoint,  # its id, once there is a server to ask
        subscription=subscription,
        event=event,
        type=event_type,
        url=url,
        since=since,
        until=until,
        tenant=tenant,
    )
    if (delivery is None) == (not where.keys() - {"tenant"}):
        raise Usage("Give either one delivery, or a filter like --status dropped --since 2d.")
    with connect(server, key) as client:
        if delivery is not None:
            detail(client.replay_delivery(delivery_id(client, delivery, tenant)), json=json)
            return
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        _bulk(client, where, dry_run=dry_run, yes=yes, json=json)


def _bulk(client: Homing, where: ReplayWhere, *, dry_run: bool, yes: bool, json: bool) -> None:
    found = client.count_replay(**where)
    if dry_run:
        if json:
            say_json(found)
        else:
            console().print(f"{_many(found)} would be replayed.")
        return
    if not found.count:
        if json:
            say_json(found)
        else:
            nothing("No finished delivery fits: nothing is replayed.")
        return
    if not yes:
        _ask(found)
    if found.as_of is not None:  # What finished since was not counted.
        where["as_of"] = found.as_of
    job = _follow(client, client.start_replay(**where), found, quiet=json)
    if json:
        say_json(job)
    else:
        skipped = f", {job.skipped:,} skipped (their subscription or data is gone)"
        console().print(f"{job.replayed:,} replayed{skipped if job.skipped else ''}.")
    if job.state != "done":
        raise Failed(f"The replay {job.id} was {job.state}; what it has replayed stays.")


def _many(found: ReplayCount) -> str:
    noun = "delivery" if found.count == 1 and found.exact else "deliveries"
    return f"{found.count:,}{'' if found.exact else ' or more'} {noun}"


def _ask(found: ReplayCount) -> None:
    if not sys.stdin.isatty():
        raise Usage(f"{_many(found)} would be replayed: say --yes, as nobody can be asked here.")
    typer.confirm(f"Replay {_many(found)}?", abort=True)


def _follow(client: Homing, job: ReplayJob, found: ReplayCount, *, quiet: bool) -> ReplayJob:
    """Until it is done, with a bar; Ctrl-C stops the replay, not only the looking."""
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
