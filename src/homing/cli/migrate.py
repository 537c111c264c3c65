"""``homing migrate``: upgrade the schema of the database, or show what that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import ConfigFlag, DataFlag, JsonFlag
from homing.cli.output import console, counted, print_json
from homing.server.settings import Settings, load_settings

if TYPE_CHECKING:
    from homing.store.migration_plan import Plan


def migrate(
    *,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be done, and change nothing.")
    ] = False,
    config: ConfigFlag = None,
    data: DataFlag = None,
    json: JsonFlag = False,
) -> None:
    """Upgrade the database to the schema of this version of Homing.

    A server does this at its start, too. On SQLite no server may be running.
    """
    import asyncio

    settings = load_settings({"data": data}, config=config)
    found = asyncio.run(_migrate(settings, apply=not plan))
    if json:
        print_json(found)
    elif plan:
        _print_plan(found, sqlite=not settings.database.url)
    elif found.migrations:
        done = counted(len(found.migrations), "migration")
        console().print(f"Applied {done}: {found.database} has schema {found.newest} now.")
    else:
        console().print(f"Nothing to do: {found.database} has schema {found.schema}.")


async def _migrate(settings: Settings, *, apply: bool) -> Plan:
    """The plan as it was before; raises StoreUnavailable, BadSetting or DataInUse."""
    from homing.store.migration_plan import plan_postgres, plan_sqlite
    from homing.store.postgres import PostgresDb
    from homing.store.postgres_refusals import shown
    from homing.store.sqlite import SqliteDb

    database = settings.database
    db: PostgresDb | SqliteDb
    if database.url:
        found = await plan_postgres(database.url, shown=shown(database.url))
        if apply:
            db = await PostgresDb.open(database.url, pooled=database.pooled)
            await db.close()
        return found
    found = plan_sqlite(database.file)
    if apply:
        database.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        db = await SqliteDb.open(database.file)
        await db.close()
    return found


def _print_plan(plan: Plan, *, sqlite: bool) -> None:
    out = console()
    if not plan.migrations:
        out.print(f"Nothing to do: {plan.database} has schema {plan.schema}, the newest.")
        return
    is_new = plan.schema == 0
    state = "is empty" if is_new else f"has schema {plan.schema}"
    count = counted(len(plan.migrations), "migration")
    name = plan.database[0].upper() + plan.database[1:] if not sqlite else plan.database
    out.print(f"{name} {state}; {count} to schema {plan.newest}:", soft_wrap=True)
    for it in plan.migrations:
        out.print(f"  {it.number} {it.name.replace('_', ' ')}", highlight=False)
        for step in () if is_new else it.steps:
            rows = f" (reads about {counted(step.rows, 'row')})" if step.rows else ""
            out.print(f"      {step.text}{rows}", highlight=False, soft_wrap=True)
    if is_new:
        return
    if plan.locked_s >= 1:
        out.print(
            f"Locks: writes to a table wait while its rows are read, roughly {plan.locked_s:.0f} s."
        )
    else:
        out.print("Locks: for a moment each; no step reads many rows.")
    if sqlite:
        out.print("Servers: stop the server first; it may also migrate at its next start.")
    elif plan.old_processes_may_run:
        out.print("Servers: those of the version before may go on during and after it.")
    else:
        out.print(
            "Servers: stop all of them first. A step renames or removes something that the "
            "version before uses.",
            soft_wrap=True,
        )
    out.print("Make a backup before: a schema is never downgraded.")
