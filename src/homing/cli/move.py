"""``homing move``: an installation to another database, or a tenant to another installation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import ConfigFlag, JsonFlag
from homing.cli.errors import Usage
from homing.cli.output import console, counted, plain, print_json, row_counts
from homing.server.settings import DATABASE_FILE, ENCRYPTION_KEY_FILE, Settings, load_settings

if TYPE_CHECKING:
    from homing.policy.encryption import KeyRing
    from homing.store.move import Moved
    from homing.store.postgres import PostgresDb
    from homing.store.sqlite import SqliteDb
    from homing.store.tenant_mover import MovedTenant

_FORMS = "sqlite:DIR or postgresql://…"


def move(
    *,
    source: Annotated[
        str | None,
        typer.Option("--from", help=f"{_FORMS}; default: SQLite in the data directory."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help=f"{_FORMS}; default: the setting database_url.")
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Move only this tenant, to another installation that exists."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="With --tenant: the URL of the target, for callers who ask the source."),
    ] = None,
    target_keys: Annotated[
        Path | None,
        typer.Option(
            "--to-keys",
            help="With --tenant: a file with the secret_key of the target; default: it has the"
            " same, or SQLite has it in its directory.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="With --tenant: give the move up before its switch.")
    ] = False,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None:
    """Move an installation to another database, or a tenant to another installation.

    Everything is verified by counts and checksums, and an interrupted move continues where it
    stopped when it is started again. Without --tenant no server may use either database. Until the
    move is finished no server starts on the target; after that none starts on the source: its rows
    stay, with a mark that says where the installation is now.

    With --tenant the servers of PostgreSQL go on: only this tenant is paused (503 with
    Retry-After) until it is served by the target. After that the source says where it is.
    """
    import asyncio

    settings = load_settings({}, config=config)
    from_address = source or f"sqlite:{settings.database.data}"
    to_address = target or settings.database.url
    if not to_address:
        raise Usage("The target is missing: give --to, or set HOMING_DATABASE_URL.")
    if from_address == to_address:
        raise Usage("The source and the target are the same database.")
    if tenant is not None:
        _move_tenant(
            settings,
            (from_address, to_address),
            tenant,
            url=url or "",
            target_keys=target_keys,
            cancel=cancel,
            json=json,
        )
        return
    if url or target_keys or cancel:
        raise Usage("--url, --to-keys and --cancel need --tenant.")
    moved = asyncio.run(_move(from_address, to_address, quiet=json))
    if json:
        print_json(moved)
        return
    _print(moved, settings)


# --- one tenant ---------------------------------------------------------------------------------


def _move_tenant(
    settings: Settings,
    addresses: tuple[str, str],
    tenant: str,
    *,
    url: str,
    target_keys: Path | None,
    cancel: bool,
    json: bool,
) -> None:
    import asyncio

    from homing.policy.admission import tenant_problem

    if problems := tenant_problem(tenant, "--tenant"):
        raise Usage(f"--tenant {problems[0].reason}.")
    keys = _keys_at(addresses[0], settings, None), _keys_at(addresses[1], settings, target_keys)
    moved = asyncio.run(_run_tenant(addresses, keys, tenant, url=url, cancel=cancel, quiet=json))
    if json:
        print_json({"tenant": tenant, "cancelled": True} if moved is None else moved)
        return
    out = console()
    if moved is None:
        out.print(
            f"The move of {plain(tenant)} was given up: the source serves the tenant.",
            soft_wrap=True,
        )
        return
    if moved.rows:
        out.print(
            f"Moved {counted(sum(moved.rows.values()), 'row')} of {plain(tenant)}: "
            f"{row_counts(moved.rows)}; and {counted(moved.audit_entries, 'entry')} of the audit"
            " log.\nVerified: every row was read back from both databases; counts and checksums"
            " are equal.",
            soft_wrap=True,
        )
    out.print(f"The target serves the tenant {plain(tenant)} now.", soft_wrap=True)
    out.print(
        "Let the router send its requests there. The source responds to them with 503, and says"
        " where the tenant is.",
        style="dim",
        soft_wrap=True,
    )


def _keys_at(address: str, settings: Settings, file: Path | None) -> KeyRing:
    """The encryption keys of an installation: of a file, beside a SQLite file, or the settings'."""
    from homing.policy.encryption import KeyRing
    from homing.policy.encryption_keys import read_keys
    from homing.server.encryption_key import keys_of

    if file is None and address.startswith("sqlite:") and not settings.security.secret_key:
        beside = _file(address).parent / ENCRYPTION_KEY_FILE
        file = beside if beside.is_file() else None
    if file is None:
        return keys_of(settings)
    try:
        keys = read_keys(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"The keys at {file} cannot be read: {error}.") from None
    if keys is None:
        raise Usage(f"{file} must have keys in base64 of 32 bytes, one per line.")
    return KeyRing(keys)


async def _run_tenant(
    addresses: tuple[str, str],
    keys: tuple[KeyRing, KeyRing],
    tenant: str,
    *,
    url: str,
    cancel: bool,
    quiet: bool,
) -> MovedTenant | None:
    """The finished move, or None if it was given up."""
    import secrets
    from contextlib import AsyncExitStack

    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from homing.net.clock import SystemClock
    from homing.store.tenant_mover import Side, TenantMover, World

    out = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    hidden = quiet or not out.is_terminal
    async with AsyncExitStack() as stack:
        sides = []
        for address, ring in zip(addresses, keys, strict=True):
            db = await _open_as_is(address)
            stack.push_async_callback(db.close)
            sides.append(Side(db, ring, _place(address), address))
        bar = stack.enter_context(Progress(*columns, console=out, disable=hidden, transient=True))
        task = bar.add_task(tenant, total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=f"{tenant}: {step}", completed=done, total=total or None)

        world = World(SystemClock().wall, lambda: secrets.token_hex(16))
        mover = TenantMover(sides[0], sides[1], tenant, show, world=world, url=url)
        if cancel:
            await mover.cancel()
            return None
        return await mover.move()


async def _open_as_is(address: str) -> SqliteDb | PostgresDb:
    """A database of an installation, whose servers may run if it is PostgreSQL."""
    from homing.store.postgres import PostgresDb
    from homing.store.sqlite import SqliteDb

    if address.startswith("sqlite:"):
        file = _file(address)
        if not file.is_file():
            raise Usage(f"There is no database at {file}.")
        return await SqliteDb.open(file, as_is=True)
    if not address.startswith(("postgresql://", "postgres://")):
        raise Usage(f"A database must be given as {_FORMS}.")
    return await PostgresDb.open(address, as_is=True, name="homing move")


# --- a whole installation -----------------------------------------------------------------------


async def _move(from_address: str, to_address: str, *, quiet: bool) -> Moved:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from homing.store.move import move as move_rows

    source = await _open(from_address, must_exist=True)
    try:
        place = _place(to_address)
        target = await _open(to_address, must_exist=False)
        try:
            out = console(stderr=True)
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            hidden = quiet or not out.is_terminal
            with Progress(*columns, console=out, disable=hidden, transient=True) as bar:
                task = bar.add_task("moving", total=None)
                return await move_rows(
                    source,
                    target,
                    lambda what, done, total: bar.update(
                        task, description=what, completed=done, total=total
                    ),
                    place=place,
                )
        finally:
            await target.close()
    finally:
        await source.close()


def _place(address: str) -> str:
    """The target as the source names it from then on: without a password."""
    from homing.store.postgres_refusals import shown

    if address.startswith("sqlite:"):
        return str(_file(address).absolute())
    return shown(address)


def _file(address: str) -> Path:
    file = Path(address.removeprefix("sqlite:"))
    return file if file.suffix == ".db" else file / DATABASE_FILE


async def _open(address: str, *, must_exist: bool) -> SqliteDb | PostgresDb:
    """A database that no server uses; raises Usage or DataInUse."""
    from homing.store.at_work import at_work
    from homing.store.postgres import PostgresDb
    from homing.store.sqlite import SqliteDb

    if address.startswith("sqlite:"):
        file = _file(address)
        if must_exist and not file.is_file():
            raise Usage(f"There is no database at {file}.")
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Usage(f"The directory {file.parent} cannot be used: {error.strerror}.") from None
        return await SqliteDb.open(file, moving=not must_exist, leaving=must_exist)
    if not address.startswith(("postgresql://", "postgres://")):
        raise Usage(f"A database must be given as {_FORMS}.")
    if found := await at_work(address):
        raise Usage(
            f"These processes use that PostgreSQL: {', '.join(found)}. Stop them first; a killed"
            " process disappears when its lease has ended."
        )
    return await PostgresDb.open(address, moving=not must_exist, leaving=must_exist)


def _print(moved: Moved, settings: Settings) -> None:
    rows = moved.rows
    out = console()
    out.print(
        f"Moved {counted(sum(rows.values()), 'row')} of {counted(len(rows), 'table')}: "
        f"{row_counts(rows)}.\n"
        "Verified: every row was read back from both databases; counts and checksums are equal.",
        soft_wrap=True,
    )
    out.print(
        f"The admin key stays in {plain(settings.database.data)}. No server starts on the old "
        "database any more: its pending deliveries would be sent twice.",
        style="dim",
        soft_wrap=True,
    )
