"""No file of a database from before encryption holds plaintext secrets after the upgrade."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import traceback
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NoReturn

import apsw
import asyncpg
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from homing.policy.encryption import KeyRing
from homing.server.database import open_stores
from homing.server.encryption_key import claim
from homing.server.settings import Settings
from homing.store import migrate as migrating
from homing.store import rewrite
from homing.store.admin import Admin
from homing.store.audit import Audit
from homing.store.encryption import EncryptedAdmin, EncryptionKeys, FieldCipher
from homing.store.migrate import migrate, migrations
from homing.store.rows import COLUMNS, subscription_row
from homing.store.tx import Db, Dialect
from postgres import Server
from store.before_encryption import (
    COUNT,
    connect,
    files_of,
    found_in,
    found_in_files,
    make,
    make_and_die,
    subscription,
)
from store.build import Maker

KEY, NEXT_KEY = b"k" * 32, b"n" * 32


async def start(place: str, *keys: bytes) -> list[str | None]:
    """Do what a start does before it reads anything; returns the tokens that it can read."""
    db = connect(place)
    try:
        await migrate(db)
        key_ring = KeyRing(keys or (KEY,))
        await claim(EncryptionKeys(db), Audit(db), key_ring)
        page = await EncryptionKeys(db).subscriptions_page(0, limit=COUNT)
        return [FieldCipher(key_ring).decrypt(it).token for it in page]
    finally:
        await db.close()


def assert_upgraded(tokens: list[str | None]) -> None:
    assert len(tokens) == 2 * COUNT // 3
    assert all(str(it).startswith("planted") for it in tokens)


def test_no_file_of_an_upgraded_sqlite_holds_an_old_secret(tmp_path: Path) -> None:
    place = str(tmp_path / "homing.db")
    make_and_die(place)
    assert found_in(tmp_path), "the search must be able to find something"

    async def upgrade() -> None:
        db = connect(place)
        await migrate(db)
        await claim(EncryptionKeys(db), Audit(db), KeyRing((KEY,)))
        assert found_in(tmp_path) == [], "while it is open, with its log"
        await db.close()

    asyncio.run(upgrade())
    assert found_in(tmp_path) == []
    assert_upgraded(asyncio.run(start(place)))


async def test_no_file_of_an_upgraded_postgres_holds_an_old_secret(postgres: Server) -> None:
    place = await postgres.make()
    await make(place)
    before = await files_of(place)
    assert found_in_files(before), "the search must be able to find something"
    assert_upgraded(await start(place))
    assert found_in_files([*before, *await files_of(place)]) == []


class Deaths:
    """Kills its process before each pair of statements at which no process was killed yet."""

    def __init__(self, tombs: Path) -> None:
        self._tombs, self._last = tombs, ""

    def before(self, text: str) -> None:
        tomb = self._tombs / sha256(f"{self._last};{text}".encode()).hexdigest()
        self._last = text
        if not tomb.exists():
            tomb.write_text(text)
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_sqlite(self) -> None:
        def trace(_: object, text: str, __: object) -> bool:
            self.before(text)
            return True

        def hook(connection: apsw.Connection) -> None:
            connection.exec_trace = trace

        apsw.connection_hooks.append(hook)

    def watch_postgres(self) -> None:
        for name in ("fetch", "execute"):
            original = getattr(asyncpg.Connection, name)

            async def watched(
                connection: Any, text: str, *values: Any, original: Any = original, **options: Any
            ) -> Any:
                self.before(text)
                return await original(connection, text, *values, **options)

            setattr(asyncpg.Connection, name, watched)


def _child(place: str, tombs: Path) -> NoReturn:
    deaths = Deaths(tombs)
    deaths.watch_sqlite()
    deaths.watch_postgres()
    code = 1
    try:
        asyncio.run(start(place))
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of this process may reach the tests'
        traceback.print_exc()
    os._exit(code)


def _ended_well(place: str, tombs: Path) -> bool:
    """Start in another process; True if it finished, False if it was killed."""
    pid = os.fork()
    if pid == 0:
        _child(place, tombs)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_an_upgrade_that_is_killed_at_every_statement_leaves_no_plaintext(
    dialect: Dialect, postgres: Server, tmp_path: Path
) -> None:
    (folder := tmp_path / "data").mkdir()
    (tombs := tmp_path / "tombs").mkdir()
    files: list[Path] = []
    if dialect == "sqlite":
        place = str(folder / "homing.db")
        make_and_die(place)
        statements = {"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"}
    else:
        place = asyncio.run(postgres.make())
        asyncio.run(make(place))
        files += asyncio.run(files_of(place))
        statements = {"CLUSTER subscription USING subscription_pkey"}
    kills = 0
    while not _ended_well(place, tombs):
        kills += 1
        if dialect == "postgres":
            files += asyncio.run(files_of(place))
    died_at = {it.read_text() for it in tombs.iterdir()}
    assert died_at >= {*statements, "COMMIT", "DELETE FROM plaintext_removal"}
    # The server may not have noticed the last death yet: that session's lock ends a start undone.
    assert_upgraded(asyncio.run(start(place)))
    if dialect == "postgres":
        files += asyncio.run(files_of(place))
    assert found_in(folder) == []
    assert found_in_files(files) == []
    print(f"{dialect}: killed {kills} times")


def test_a_rewrite_that_is_killed_in_its_middle_is_done_by_the_next_start(tmp_path: Path) -> None:
    place = str(tmp_path / "homing.db")
    make_and_die(place)
    pid = os.fork()
    if pid == 0:

        def die() -> bool:
            os.kill(os.getpid(), signal.SIGKILL)
            return False

        def hook(connection: apsw.Connection) -> None:
            def trace(_: object, text: str, __: object) -> bool:
                if text == "VACUUM":
                    connection.set_progress_handler(die, 200)
                return True

            connection.exec_trace = trace

        apsw.connection_hooks.append(hook)
        asyncio.run(start(place))
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert found_in(tmp_path), "it was killed before the old pages were overwritten"
    assert_upgraded(asyncio.run(start(place)))
    assert found_in(tmp_path) == []


def test_a_database_that_an_earlier_program_encrypted_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "homing.db")
    make_and_die(place)
    known = migrations("sqlite")

    async def earlier() -> None:
        db = connect(place)
        db._writer._open()[0].pragma("secure_delete", False)  # It left old text in the file.
        with monkeypatch.context() as patch:
            patch.setattr(migrating, "migrations", lambda _: known[:10])
            await migrate(db)
        key_ring = KeyRing((KEY,))

        async def encrypt(run: Any) -> None:
            await run("INSERT INTO seal (name, done) VALUES (?1, 1)", key_ring.ids[0])
            text = "UPDATE subscription SET secrets = ?1, token = ?2, headers = ?3 WHERE id = ?4"
            for number, token in await run("SELECT id, token FROM subscription"):
                word = token.partition("_token_")[0]
                encrypted = FieldCipher(key_ring).encrypt(subscription(number, word))
                row = dict(zip(COLUMNS["subscription"], subscription_row(encrypted), strict=True))
                await run(text, row["secrets"], row["token"], row["headers"], number)

        await db.raw(encrypt)
        await db.close()

    asyncio.run(earlier())
    assert found_in(tmp_path)
    assert_upgraded(asyncio.run(start(place)))
    assert found_in(tmp_path) == []


def test_while_another_program_reads_the_file_the_rewrite_stays_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "BUSY_MS", 10)
    place = str(tmp_path / "homing.db")
    make_and_die(place)
    other = apsw.Connection(place)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM subscription").get == 2 * COUNT // 3
    with capture_logs() as logs:
        assert_upgraded(asyncio.run(start(place)))
    assert [it["log_level"] for it in logs][-1] == "warning"
    assert found_in(tmp_path), "the other program can still read it"
    other.close()
    assert_upgraded(asyncio.run(start(place)))
    assert found_in(tmp_path) == []


async def test_while_an_older_transaction_is_open_the_rewrite_stays_due(postgres: Server) -> None:
    place = await postgres.make()
    await make(place)
    files = await files_of(place)
    other = await asyncpg.connect(place)
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await other.fetch("SELECT 1 FROM migration")
    with capture_logs() as logs:
        assert_upgraded(await start(place))
    assert "old row versions" in logs[-1]["reason"]
    files += await files_of(place)
    assert found_in_files(files)
    await other.close()
    assert_upgraded(await start(place))
    assert found_in_files([*files, *await files_of(place)]) == []


async def test_processes_that_start_together_leave_no_plaintext(postgres: Server) -> None:
    place = await postgres.make()
    await make(place)
    files = await files_of(place)
    for tokens in await asyncio.gather(*(start(place) for _ in range(3))):
        assert_upgraded(tokens)
    assert_upgraded(await start(place))  # and if all were in each other's way, the next start does
    assert found_in_files([*files, *await files_of(place)]) == []


async def test_while_the_table_is_locked_a_start_does_not_wait_for_long(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await postgres.make()
    await make(place)
    db = connect(place)
    await migrate(db)
    await db.close()
    monkeypatch.setattr(rewrite, "LOCK_TIMEOUT", "10ms")
    other = await asyncpg.connect(place)
    await other.execute("BEGIN")
    await other.fetch("SELECT 1 FROM subscription")
    with capture_logs() as logs:
        assert_upgraded(await start(place))
    assert "LockNotAvailable" in logs[-1]["reason"]
    await other.close()
    assert_upgraded(await start(place))
    assert found_in_files(await files_of(place)) == []


def test_a_file_that_is_too_large_for_a_start_is_left_and_the_operator_is_told(
    tmp_path: Path,
) -> None:
    place = str(tmp_path / "homing.db")
    asyncio.run(start(place))
    before = (tmp_path / "homing.db").read_bytes()
    done, reason = rewrite.rewrite_file(place, bytes_max=1)
    assert not done
    assert "encryption-keys.md" in reason
    assert (tmp_path / "homing.db").read_bytes() == before


def test_a_disk_without_room_is_told_and_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "homing.db")
    asyncio.run(start(place))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1))
    done, reason = rewrite.rewrite_file(place)
    assert not done
    assert "free disk space" in reason


async def test_neither_a_new_database_nor_a_new_key_needs_a_rewrite(db: Db) -> None:
    store, old, new = EncryptionKeys(db), KeyRing((KEY,)), KeyRing((NEXT_KEY, KEY))
    await claim(store, Audit(db), old)
    made = subscription(1)
    at = replace(Maker().endpoint(made.url), id=made.endpoint_id)
    await EncryptedAdmin(Admin(db), FieldCipher(old)).create_subscription(made, endpoint=at)
    with capture_logs() as logs:
        await claim(store, Audit(db), new)
    assert [it["event"] for it in logs] == ["secrets have been encrypted with the current key"]
    assert not await store.is_removal_due()


@pytest.mark.parametrize("writer", ["process", "thread"])
async def test_a_server_that_starts_on_such_a_file_removes_its_plaintext(
    writer: Literal["process", "thread"], tmp_path: Path
) -> None:
    make_and_die(str(tmp_path / "homing.db"))
    stores = await open_stores(Settings.of(data=str(tmp_path), writer=writer))
    assert found_in(tmp_path) == []
    found, _ = await stores.views.subscriptions(tenant=None, before_id=None, limit=COUNT)
    assert_upgraded([it.token for it in found])
    await stores.close()
    assert found_in(tmp_path) == []
