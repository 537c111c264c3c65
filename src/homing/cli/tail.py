"""``homing tail``: the live stream of attempts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.deliveries import EndpointFlag, SubscriptionFlag, answer_word
from homing.cli.endpoints import endpoint_id
from homing.cli.output import (
    clock_ms,
    console,
    nothing,
    plain,
    read_ms,
    say_json,
    span,
    time_of,
    word,
)
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, TenantFlag, connect, given

if TYPE_CHECKING:
    from rich.text import Text

    from homing.client import AttemptLine
    from homing.client.values import AttemptsWhere

POLL_S = 0.3


def tail(
    *,
    endpoint: EndpointFlag = None,
    subscription: SubscriptionFlag = None,
    tenant: TenantFlag = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what was not delivered.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Begin with so many of the latest.")
    ] = 10,
    duration: Annotated[
        str | None, typer.Option("--for", help="End after this time, like 30s; default: Ctrl-C.")
    ] = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Follow the attempts that the server makes, as they are settled."""
    from homing.cli.duration import read_seconds

    end = None if duration is None else clock_ms() + round(read_seconds(duration, "--for") * 1000)
    where: AttemptsWhere = given(  # type: ignore[assignment]
        endpoint=endpoint, subscription=subscription, tenant=tenant
    )
    with connect(server, key) as client:
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        page = client.attempts(**where)
        _show(_wanted(page.items, failed=failed)[-lines:] if lines else [], json=json)
        try:
            while end is None or clock_ms() < end:
                time.sleep(POLL_S)
                page = client.attempts(cursor=page.next_cursor, **where)
                if page.missed and not json:
                    nothing(f"… {page.missed:,} attempts went by too fast to be shown")
                _show(_wanted(page.items, failed=failed), json=json)
        except KeyboardInterrupt:
            return


def _wanted(items: tuple[AttemptLine, ...], *, failed: bool) -> list[AttemptLine]:
    return [one for one in items if not failed or one.outcome != "delivered"]


def _show(items: list[AttemptLine], *, json: bool) -> None:
    out = console()
    for one in items:
        if json:
            say_json(one)
        else:
            out.print(_line(one), soft_wrap=True)


def _line(one: AttemptLine) -> Text:
    """``14:02:07.123 ✗ 503 12 ms order.paid → https://… #3 retry 4 in 21 min``."""
    from rich.text import Text

    answer = answer_word(one)
    mark = {"delivered": "✓", "failed": "✗"}.get(one.outcome, "!")
    text = Text.assemble(
        (f"{time_of(read_ms(one.finished_at))} ", "dim"),
        (f"{mark} ", answer.style),
        (f"{answer.plain:<9} ", answer.style),
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
        text.append_text(word(one.decided))
    text.append(f"  {one.delivery}", "dim")
    return text
