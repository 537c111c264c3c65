"""``homing outbox``: put the outbox into an application's database, and see how it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from homing.cli.output import console, plain, say_json, span, table
from homing.cli.serve import ConfigFlag
from homing.cli.trouble import Usage
from homing.cli.where import JsonFlag
from homing.server.settings import load_settings

if TYPE_CHECKING:
    from homing.ports import OutboxLook, OutboxStore, RefusedRow

T = TypeVar("T")

SHOWN = 20

app = typer.Typer(
    name="outbox",
    help="Publish in your own transaction: the outbox in an application's database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DatabaseFlag = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="The application's database: postgresql://… or sqlite:PATH; default: outbox_url.",
        show_default=False,
    ),
]


@app.command()
def install(
    *,
    database: DatabaseFlag = None,
    config: ConfigFlag = None,
    notify: Annotated[
        bool,
        typer.Option(
            "--notify/--no-notify",
            help="Whether homing_publish() wakes the relay at once (PostgreSQL).",
        ),
    ] = True,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Print the SQL instead, for your own migrations.")
    ] = False,
) -> None:
    """Put the table homing_outbox and the function homing_publish into a database.

    Doing it again changes nothing. With --notify every commit that publishes takes a lock of the
    whole database for a moment, as NOTIFY does; --no-notify leaves the relay to its poll.
    """
    import asyncio

    from homing.store import outbox

    address = wanted(database, config)
    kind = outbox.outbox_kind(address)
    if print_sql:
        print(outbox.install_text(kind, notify=notify), end="")
        return
    if kind == "postgres":
        asyncio.run(outbox.install_postgres(address, notify=notify))
    else:
        outbox.install_sqlite(outbox.sqlite_path(address))
    console().print("The outbox is installed. In a transaction of yours:", soft_wrap=True)
    console().print(f"  {outbox.EXAMPLES[kind]}", soft_wrap=True)
    console().print(
        "`homing relay`, or `homing serve` with the setting outbox_url, publishes what is "
        "committed there.",
        style="dim",
        soft_wrap=True,
    )


@app.command()
def status(
    *, database: DatabaseFlag = None, config: ConfigFlag = None, json: JsonFlag = False
) -> None:
    """How many rows wait, for how long, and which were refused and why."""

    async def ask(store: OutboxStore) -> tuple[OutboxLook, list[RefusedRow]]:
        return await store.look(), await store.refused(limit=SHOWN)

    look, refused = _with_outbox(wanted(database, config), ask)
    if json:
        say_json({"outbox": look, "refused": refused})
        return
    out = console()
    if look.waiting:
        out.print(f"{look.waiting:,} rows wait, the oldest for {span(look.oldest_ms)}.")
    else:
        out.print("Nothing waits.")
    if not refused:
        return
    out.print(f"{look.refused:,} rows were refused for good; the oldest:", style="red")
    rows = table("EVENT", "TENANT", "TYPE", "REASON")
    for row in refused:
        rows.add_row(plain(row.id), plain(row.tenant), plain(row.type), plain(row.reason))
    out.print(rows)
    out.print("`homing outbox retry` lets them wait again.", style="dim")


@app.command()
def retry(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Of the events; default: all.")
    ] = None,
    *,
    database: DatabaseFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None:
    """Let refused rows wait again, once the cause is mended."""
    count = _with_outbox(wanted(database, config), lambda store: store.retry(ids or None))
    if json:
        say_json({"waiting_again": count})
    else:
        console().print(f"{count:,} rows wait again.")


def wanted(database: str | None, config: str | None) -> str:
    """The database that is named, or that the settings name; raises Usage."""
    address = database or load_settings({}, config=config).outbox.url
    if not address:
        raise Usage("Which database? Give --database, or HOMING_OUTBOX_URL.")
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
