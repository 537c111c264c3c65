"""``homing outbox``: install the outbox in an application's database, show it, retry its rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from homing.cli.arguments import ConfigFlag, DatabaseFlag, JsonFlag
from homing.cli.errors import Usage
from homing.cli.output import console, counted, print_json, print_list, span
from homing.server.settings import load_settings

if TYPE_CHECKING:
    from homing.ports import OutboxStats, OutboxStore, RefusedRow

T = TypeVar("T")

REFUSED_SHOWN = 20

app = typer.Typer(
    name="outbox",
    help="Publish in your own transaction: the outbox in an application's database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def install(
    *,
    database: DatabaseFlag = None,
    config: ConfigFlag = None,
    notify: Annotated[
        bool,
        typer.Option(
            "--notify/--no-notify",
            help="Whether homing_publish() wakes the relay immediately (PostgreSQL).",
        ),
    ] = True,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Print the SQL instead, for your own migrations.")
    ] = False,
) -> None:
    """Create the table homing_outbox and the function homing_publish in a database.

    Running it again keeps all rows, and upgrades the outbox of an older version. With --notify,
    every commit that publishes briefly takes a lock on the whole database, as NOTIFY does; with
    --no-notify the relay finds rows by polling.
    """
    import asyncio

    from homing.store import outbox

    address = outbox_address(database, config)
    kind = outbox.outbox_kind(address)
    if print_sql:
        print(outbox.install_text(kind, notify=notify), end="")
        return
    if kind == "postgres":
        asyncio.run(outbox.install_postgres(address, notify=notify))
    else:
        outbox.install_sqlite(outbox.sqlite_path(address))
    console().print("The outbox is installed. Publish in a transaction with:", soft_wrap=True)
    console().print(f"  {outbox.EXAMPLES[kind]}", soft_wrap=True)
    console().print(
        "`homing relay`, or `homing serve` with the setting outbox_url, publishes the committed "
        "rows.",
        style="dim",
        soft_wrap=True,
    )


@app.command()
def status(
    *, database: DatabaseFlag = None, config: ConfigFlag = None, json: JsonFlag = False
) -> None:
    """Show how many rows wait and for how long, and which rows were refused and why."""

    async def ask(store: OutboxStore) -> tuple[OutboxStats, list[RefusedRow]]:
        return await store.stats(), await store.refused(limit=REFUSED_SHOWN)

    stats, refused = _with_outbox(outbox_address(database, config), ask)
    if json:
        print_json({"outbox": stats, "refused": refused})
        return
    out = console()
    if stats.waiting:
        out.print(
            f"{counted(stats.waiting, 'row')} waiting, the oldest for {span(stats.oldest_ms)}."
        )
    else:
        out.print("No rows are waiting.")
    if not stats.has_keys:
        out.print(
            "The table has no column for the keys of events; `homing outbox install` adds it.",
            style="yellow",
        )
    if not refused:
        return
    out.print(f"{counted(stats.refused, 'row')} refused permanently; the oldest:", style="red")
    print_list(
        refused,
        columns=("event", "tenant", "type", "reason"),
        row=lambda one: (one.id, one.tenant, one.type, one.reason),
        empty="",
        json=False,
    )
    out.print("`homing outbox retry` publishes them again.", style="dim")


@app.command()
def retry(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="The ids of the events; default: all."),
    ] = None,
    *,
    database: DatabaseFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None:
    """Publish refused rows again, after the cause is repaired."""
    count = _with_outbox(outbox_address(database, config), lambda store: store.retry(ids or None))
    if json:
        print_json({"retried": count})
    else:
        console().print(f"{counted(count, 'row')} will be published again.")


def outbox_address(database: str | None, config: str | None) -> str:
    """The address of the database, from the flag or from the settings; raises Usage."""
    address = database or load_settings({}, config=config).outbox.url
    if not address:
        raise Usage("The database is missing: give --database, or set HOMING_OUTBOX_URL.")
    return address


def _with_outbox(address: str, work: Callable[[OutboxStore], Awaitable[T]]) -> T:
    import asyncio

    from homing.store.outbox import open_outbox

    async def run() -> T:
        store = open_outbox(address)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())
