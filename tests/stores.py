"""The stores that every store test runs on, as a plugin: a test that takes ``db`` runs on all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from homing.store.tx import Db
from postgres import Server

STORES = ("sqlite-memory", "sqlite-file", "postgres")
_TEMPLATES = tempfile.TemporaryDirectory(prefix="homing-store-")


async def new_file(path: Path) -> Path:
    """An empty SQLite file with the current schema: one is migrated, the others are copies."""
    template = Path(_TEMPLATES.name) / "homing.db"
    if not template.exists():
        await (await SqliteDb.open(template)).close()
    shutil.copy(template, path)
    return path


@asynccontextmanager
async def opened(store: str, folder: Path, server: Server | None) -> AsyncIterator[Db]:
    """An empty database of this kind with the current schema."""
    async with AsyncExitStack() as stack:
        db: Db
        match store:
            case "sqlite-memory":
                db = await SqliteDb.open(":memory:")
            case "sqlite-file":
                db = await SqliteDb.open(await new_file(folder / "homing.db"), threads=True)
            case "postgres":
                assert server is not None
                db = await PostgresDb.open(await stack.enter_async_context(server.migrated()))
            case _:
                raise AssertionError(store)
        stack.push_async_callback(db.close)
        yield db


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Each kind of store."""
    return str(request.param)


@pytest.fixture
def server(store: str, request: pytest.FixtureRequest) -> Server | None:
    """The PostgreSQL server, started only when a test runs on it."""
    return request.getfixturevalue("postgres") if store == "postgres" else None


@pytest.fixture
async def db(store: str, server: Server | None, tmp_path: Path) -> AsyncIterator[Db]:
    """An empty database of each kind."""
    async with opened(store, tmp_path, server) as db:
        yield db
