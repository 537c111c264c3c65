"""An application's database with an outbox in it, on PostgreSQL and on SQLite."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from homing.store.outbox import install_postgres, install_sqlite, sqlite_path
from postgres import Server

KINDS = ("in-pg", "in-sqlite")


@pytest.fixture
def postgres_app(postgres: Server) -> str:
    """The address of a PostgreSQL application database with an outbox."""

    async def make() -> str:
        address = await postgres.make()
        await install_postgres(address, notify=True)
        return address

    return asyncio.run(make())


@pytest.fixture
def sqlite_app(tmp_path: Path) -> str:
    """The address of a SQLite application database with an outbox."""
    address = f"sqlite:{tmp_path / 'app.db'}"
    install_sqlite(sqlite_path(address))
    return address


@pytest.fixture(params=KINDS)
def app(request: pytest.FixtureRequest) -> str:
    """Each kind of application database."""
    name = "postgres_app" if request.param == "in-pg" else "sqlite_app"
    return str(request.getfixturevalue(name))
