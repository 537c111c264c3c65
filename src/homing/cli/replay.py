"""``homing replay`` and ``homing backfill``: deliveries again, or for past events."""

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
    SubscriptionArgument,
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
from homing.cli.output import console, note, past_events, plain, print_json
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import Homing, ReplayCount, ReplayJob
    from homing_client.values import ReplayWhere

POLL_S = 0.2
CONFIRM_ABOVE = 1_000  # more deliveries than these are confirmed by typing their number
PARTS_MAX = 10  # of each kind that are shown


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
    """Replay one finished delivery, or all that match, after they were counted and you confirm.

    Without --status and --reason only dropped deliveries are replayed.
    """
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
    if status is None and reason is None:
        where["status"] = "dropped"
    with remote.connect() as client:
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        _bulk(client, where, dry_run=dry_run, yes=yes, json=remote.json)


@remote_command
def backfill(
    subscription: SubscriptionArgument,
    *,
    remote: Remote,
    since: Annotated[
        str, typer.Option("--from", help="Events accepted since: a time, or like 7d back from now.")
    ],
    per_second: Annotated[
        int | None, typer.Option(help="Deliveries that are made per second; default: 100.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Deliver past events to a subscription that has none of them, after they were counted."""
    with remote.connect() as client:
        found = client.count_past(subscription, since=since)
        events = past_events(found.count, exact=found.exact)
        if dry_run or not found.count:
            if remote.json:
                print_json(found)
            else:
                console().print(f"{events} would be delivered.")
            return
        if not yes:
            _confirm(found, f"{events} would be delivered", f"Deliver {events}?")
        began = client.backfill(subscription, since=since, per_second=per_second)
        job = _follow(client, began, found, quiet=remote.json, verb="delivering")
    if remote.json:
        print_json(job)
    else:
        console().print(f"Deliveries made: {job.replayed:,}.")
    if job.state != "done":
        raise Failed(f"The backfill {job.id} was {job.state}; deliveries that it has made stay.")


def _bulk(client: Homing, where: ReplayWhere, *, dry_run: bool, yes: bool, json: bool) -> None:
    found = client.count_replay(**where)
    if dry_run:
        if json:
            print_json(found)
        else:
            console().print(f"{_deliveries(found)} would be replayed.")
            _show_parts(console(), found)
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
    if found.count <= CONFIRM_ABOVE:
        _confirm(found, f"{_deliveries(found)} would be replayed", f"Replay {_deliveries(found)}?")
        return
    _needs_terminal(f"{_deliveries(found)} would be replayed")
    _show_parts(console(stderr=True), found)
    typed = typer.prompt(f"Replay {_deliveries(found)}? Type {found.count} to confirm")
    if typed.replace(",", "").strip() != str(found.count):
        raise Usage("The number is another one: nothing is replayed.")


def _needs_terminal(what: str) -> None:
    if not sys.stdin.isatty():
        raise Usage(f"{what}: give --yes, as there is no terminal to ask.")


def _confirm(found: ReplayCount, what: str, question: str) -> None:
    _needs_terminal(what)
    _show_parts(console(stderr=True), found)
    typer.confirm(question, abort=True)


def _show_parts(out: Console, found: ReplayCount) -> None:
    """The counts by status, tenant and cause of the last failure."""
    for title, counts in (
        ("status", found.by_status),
        ("tenant", found.by_tenant),
        ("last failure", found.by_cause),
    ):
        for one in counts[:PARTS_MAX]:
            name = plain(one.name) or "no failed attempt"
            out.print(f"  {title:<13}{name}: {one.count:,}", style="dim", soft_wrap=True)
        if len(counts) > PARTS_MAX:
            out.print(f"  {title:<13}and {len(counts) - PARTS_MAX} more", style="dim")


def _follow(
    client: Homing, job: ReplayJob, found: ReplayCount, *, quiet: bool, verb: str = "replaying"
) -> ReplayJob:
    """Wait for the end with a progress bar; Ctrl-C stops the replay itself."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    out = console(stderr=True)
    with Progress(
        TextColumn(verb),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[waits]}", style="dim"),
        console=out,
        disable=quiet or not out.is_terminal,
    ) as bar:
        task = bar.add_task("replay", total=found.count if found.exact else None, waits="")
        said = False
        try:
            while job.state == "running":
                time.sleep(POLL_S)
                job = client.replay_job(job.id)
                waits = plain(job.waits)
                bar.update(task, completed=job.replayed + job.skipped, waits=waits)
                if waits and not said and bar.disable:
                    note(waits)
                    said = True
        except KeyboardInterrupt:
            job = client.cancel_replay(job.id)
    return job
