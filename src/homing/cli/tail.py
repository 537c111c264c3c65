"""``homing tail``: attempts as they happen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import (
    EndpointFlag,
    SubscriptionFlag,
    TenantFlag,
    given,
    read_seconds,
)
from homing.cli.endpoints import endpoint_id
from homing.cli.output import (
    clock_ms,
    coloured,
    console,
    counted,
    note,
    plain,
    print_json,
    read_ms,
    response_text,
    span,
    time_of,
)
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.text import Text

    from homing_client import AttemptLine
    from homing_client.values import AttemptsWhere

POLL_S = 0.3


@remote_command
def tail(
    *,
    remote: Remote,
    endpoint: EndpointFlag = None,
    subscription: SubscriptionFlag = None,
    tenant: TenantFlag = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only attempts that did not deliver.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Start with this many recent attempts.")
    ] = 10,
    duration: Annotated[
        str | None,
        typer.Option("--for", help="Stop after this time, like 30s; default: at Ctrl-C."),
    ] = None,
) -> None:
    """Follow the server's attempts as they complete."""
    end = None if duration is None else clock_ms() + round(read_seconds(duration, "--for") * 1000)
    where: AttemptsWhere = given(  # type: ignore[assignment]
        endpoint=endpoint, subscription=subscription, tenant=tenant
    )
    with remote.connect() as client:
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        page = client.attempts(**where)
        _show(_wanted(page.items, failed=failed)[-lines:] if lines else [], json=remote.json)
        try:
            while end is None or clock_ms() < end:
                time.sleep(POLL_S)
                page = client.attempts(cursor=page.next_cursor, **where)
                if page.missed and not remote.json:
                    missed = counted(page.missed, "attempt")
                    note(f"… not shown: {missed}; there were too many at once")
                _show(_wanted(page.items, failed=failed), json=remote.json)
        except KeyboardInterrupt:
            return


def _wanted(items: tuple[AttemptLine, ...], *, failed: bool) -> list[AttemptLine]:
    return [one for one in items if not failed or one.outcome != "delivered"]


def _show(items: list[AttemptLine], *, json: bool) -> None:
    out = console()
    for one in items:
        if json:
            print_json(one)
        else:
            out.print(_line(one), soft_wrap=True)


def _line(one: AttemptLine) -> Text:
    """``14:02:07.123 ✗ 503 12 ms order.paid → https://… #3 retry 4 in 21 min``."""
    from rich.text import Text

    response = response_text(one)
    mark = {"delivered": "✓", "failed": "✗"}.get(one.outcome, "!")
    text = Text.assemble(
        (f"{time_of(read_ms(one.finished_at))} ", "dim"),
        (f"{mark} ", response.style),
        (f"{response.plain:<9} ", response.style),
        (f"{one.total_us / 1000:>6.0f} ms  ", "dim"),
        f"{plain(one.type):<20} ",
        ("→ ", "dim"),
        plain(one.url),
        (f"  #{one.number}", "dim"),
    )
    if one.lane in {"probe", "test"}:
        text.append(f" {one.lane}", "yellow")
    if one.decided == "retry" and one.due_at is not None:
        wait = span(max(read_ms(one.due_at) - read_ms(one.finished_at), 0))
        text.append(f"  retry {one.retry} in {wait}", "yellow")
    elif one.decided != "delivered":
        text.append("  ")
        text.append_text(coloured(one.decided))
    text.append(f"  {one.delivery}", "dim")
    return text
