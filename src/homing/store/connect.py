"""Connections to the one PostgreSQL server that can be written to, however many an address names.

An address with several hosts means ``target_session_attrs=read-write``: a standby, a server in
recovery and a read-only one are never used. The hosts are tried almost at the same time, beginning
with the one that worked last, so that a host which does not respond at all costs a fraction of a
second. PostgreSQL raises the number of the timeline with every promotion: a server whose timeline
is older than one that this process has seen is an old primary that nobody has stopped, and it is
not used either. The first connection of a process asks all hosts, so that a process which is
started beside an old primary uses the promoted server.

A server that is stopped or cut off breaks no connection: statements wait. While one waits for long,
``Connector`` asks the other hosts, and when one of them was promoted, the connections to the old
one are closed. Their work is run again on the new one, as after any lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from weakref import WeakKeyDictionary

import asyncpg
import structlog

from homing.store.postgres_refusals import (
    CONNECTION_ERRORS,
    NotWritable,
    place_of,
    refusal_text,
)

log = structlog.get_logger("homing.database")

CONNECT_WITHIN_S = 5.0
NEXT_HOST_S = 0.15  # without a response, until the next host is tried as well
OTHERS_S = 1.0  # that the first connection waits for the other hosts
SILENT_S = 0.4  # a statement without a response, until the other hosts are asked
WATCH_EVERY_S = 0.2
LOG_EVERY_S = 10.0  # the same refusal of the same server

# The first eight digits of the name of a WAL file are the timeline.
_TIMELINE = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_STATE = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
_NOT_TOLD = (asyncpg.FeatureNotSupportedError, asyncpg.InsufficientPrivilegeError)


def single_hosts(dsn: str) -> tuple[str, ...]:
    """The address of each host of an address; it may name several, as libpq allows it."""
    parts = urlsplit(dsn)
    auth, at, hosts = parts.netloc.rpartition("@")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(pairs)
    if not hosts:
        hosts = ",".join(
            f"[{it}]" if it.count(":") > 1 and not it.startswith("[") else it
            for it in given.get("host", "").split(",")
        )
    names = hosts.split(",")
    if len(names) < 2 and "target_session_attrs" not in given:
        return (dsn,)
    ports = given.get("port", "").split(",")
    ports = ports * len(names) if len(ports) == 1 else ports
    if len(ports) != len(names):
        raise ValueError("as many ports as hosts must be given")
    rest = [it for it in pairs if it[0] not in {"host", "port", "target_session_attrs"}]
    found = []
    for name, port in zip(names, ports, strict=True):
        query, netloc = list(rest), name
        if unquote(name).startswith("/"):  # A socket's directory cannot be where a host is.
            netloc, query = "", [("host", unquote(name)), *query]
            if port:
                query.append(("port", port))
        elif port and ":" not in name.rpartition("]")[2]:
            netloc = f"{name}:{port}"
        if not netloc and auth:  # asyncpg needs a host behind the user.
            user, _, password = auth.partition(":")
            query.append(("user", unquote(user)))
            query += [("password", unquote(password))] if password else []
        else:
            netloc = f"{auth}{at}{netloc}"
        text = urlencode(query, quote_via=quote)
        found.append(
            parts._replace(netloc=netloc, query=text).geturl()
            if netloc
            else f"{parts.scheme}://{parts.path}?{text}"
        )
    return tuple(found)


class Holder(Protocol):
    """Something that keeps connections open."""

    def waiting_since(self) -> float | None:
        """Since when its oldest statement waits for a response, by the clock of the loop."""

    def connections(self) -> Iterable[Any]:
        """All its connections."""


class _Origin(NamedTuple):
    host: str  # its address
    timeline: int  # 0: unknown


class Connector:
    """Opens connections to the writable server of an address, and watches it with several hosts."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._hosts: tuple[str, ...] = ()
        self._first = 0  # the host that is tried first
        self._timeline = 0  # the newest that this process has seen
        self._asked_all = False
        self._origins: WeakKeyDictionary[Any, _Origin] = WeakKeyDictionary()
        self._logged: dict[str, float] = {}  # texts that were logged, and when
        self._holders: list[Holder] = []
        self._watching: asyncio.Task[None] | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Raises ValueError if the address cannot be read."""
        if not self._hosts:
            self._hosts = single_hosts(self._dsn)
        return self._hosts

    async def connect(self, *, within_s: float = CONNECT_WITHIN_S, **options: Any) -> Any:
        """A connection to the writable server; raises NotWritable, or what asyncpg raises."""
        hosts = self.hosts
        if len(hosts) == 1:
            return await self._open(hosts[0], within_s, options)
        in_turn = (*hosts[self._first :], *hosts[: self._first])
        if self._asked_all:
            connection = await self._race(in_turn, within_s, options)
        else:
            connection = await self._newest(in_turn, within_s, options)
            self._asked_all = True
        self._first = hosts.index(self._origins[connection].host)
        return connection

    async def _race(
        self, hosts: Sequence[str], within_s: float, options: dict[str, Any], *, quiet: bool = False
    ) -> Any:
        """The first connection that can be used; a host is tried when the one before it is slow."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + within_s
        tasks: set[asyncio.Task[Any]] = set()
        errors: list[BaseException] = []
        waiting = list(hosts)
        try:
            while waiting or tasks:
                if waiting:
                    left = max(ends_at - loop.time(), NEXT_HOST_S)
                    opening = self._open(waiting.pop(0), left, options, quiet=quiet)
                    tasks.add(loop.create_task(opening))
                done, tasks = await asyncio.wait(
                    tasks,
                    timeout=NEXT_HOST_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    if task.exception() is None:
                        tasks |= done - {task}  # Another one may have been as fast.
                        return task.result()
                errors += [error for it in done if (error := it.exception()) is not None]
        finally:
            for task in tasks:
                task.add_done_callback(_close)
                task.cancel()
        raise max(errors, key=_weight)

    async def _newest(self, hosts: Sequence[str], within_s: float, options: dict[str, Any]) -> Any:
        """The connection to the server with the newest timeline of those that can be used."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._open(it, within_s, options)) for it in hosts]
        waiting: set[asyncio.Task[Any]] = set(tasks)
        ends_at: float | None = None
        newest: Any = None
        try:
            while waiting and (ends_at is None or loop.time() < ends_at):
                left = None if ends_at is None else ends_at - loop.time()
                done, waiting = await asyncio.wait(
                    waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if ends_at is None and any(it.exception() is None for it in done):
                    ends_at = loop.time() + OTHERS_S
            made = [it.result() for it in tasks if it.done() and it.exception() is None]
            newest = max(made, key=lambda it: self._origins[it].timeline, default=None)
        finally:
            for task in tasks:
                if newest is None or not task.done() or task.exception() or task.result() != newest:
                    task.add_done_callback(_close)
                    task.cancel()
        if newest is None:
            raise max((error for it in tasks if (error := it.exception())), key=_weight)
        for origin in {self._origins[it] for it in made}:
            if origin.timeline < self._timeline:
                self._log(self._old_text(origin.host, origin.timeline))
        return newest

    async def _open(
        self, host: str, within_s: float, options: dict[str, Any], *, quiet: bool = False
    ) -> Any:
        connection: Any = await asyncpg.connect(host, timeout=within_s, **options)
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                timeline = await self._check(connection, host)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, NotWritable) and not quiet and len(self.hosts) > 1:
                self._log(str(error))
            raise
        self._origins[connection] = _Origin(host, timeline)
        return connection

    async def _check(self, connection: Any, host: str) -> int:
        """The timeline of a writable server, 0 if it is not known; raises NotWritable."""
        at, settings = f"PostgreSQL at {place_of(host).server}", connection.get_settings()
        # A server tells what it is when a connection is made; a pooler repeats what it once heard.
        if _is_on(settings, "in_hot_standby") or _is_on(settings, "default_transaction_read_only"):
            row = await _ask(connection, _STATE)
            if row[0]:
                raise NotWritable(
                    f"{at} is a standby or in recovery and cannot be written to: {self._advice()}"
                )
            if row[1]:
                raise NotWritable(
                    f"{at} is read-only: set default_transaction_read_only off there if it is the"
                    f" primary, or {self._advice()}"
                )
        if len(self.hosts) == 1:
            return 0
        try:
            timeline = int((await _ask(connection, _TIMELINE))[0], 16)
        except _NOT_TOLD:  # a service that is PostgreSQL in part
            return 0
        except asyncpg.ObjectNotInPrerequisiteStateError:  # Behind a pooler: in recovery.
            raise NotWritable(f"{at} is in recovery: {self._advice()}") from None
        if timeline < self._timeline:
            raise NotWritable(self._old_text(host, timeline))
        self._timeline = timeline
        return timeline

    def _old_text(self, host: str, timeline: int) -> str:
        return (
            f"PostgreSQL at {place_of(host).server} is an old primary: another server has been"
            f" promoted since (timeline {timeline}, seen {self._timeline}). Stop it and make it a"
            " standby of the new primary, with pg_rewind or a new base backup; what was written"
            " there since is not in the new one."
        )

    def _advice(self) -> str:
        if len(self.hosts) > 1:
            return "promote a standby if no primary is left; the other hosts are tried, too."
        return "give the address of the primary, or of all servers (HOST:PORT,HOST:PORT)."

    def _log(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged.get(text, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged[text] = now
            log.info("a PostgreSQL server is not used", reason=text)

    # --- servers that do not respond ----------------------------------------------------------

    def watch(self, holder: Holder) -> None:
        """Close the holder's connections to a silent server once another one was promoted."""
        if len(self.hosts) == 1 or holder in self._holders:
            return
        self._holders.append(holder)
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def unwatch(self, holder: Holder) -> None:
        if holder in self._holders:
            self._holders.remove(holder)
        if not self._holders and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            since = [at for it in self._holders if (at := it.waiting_since()) is not None]
            if since and loop.time() - min(since) >= SILENT_S:
                await self._ask_others()

    async def _ask_others(self) -> None:
        """Close the connections to servers in whose place another one was promoted."""
        used = {
            origin
            for holder in self._holders
            for it in holder.connections()
            if (origin := self._origins.get(it)) is not None
        }
        silent = {it.host for it in used}
        others = [it for it in self.hosts if it not in silent] or list(self.hosts)
        try:
            found = await self._race(others, SILENT_S, {"statement_cache_size": 0}, quiet=True)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            return  # A statement may well take its time.
        promoted = self._origins[found]
        found.terminate()
        old = {
            it for it in used if it.host != promoted.host and not it.timeline > promoted.timeline
        }
        if promoted.timeline:
            old = {it for it in old if it.timeline < promoted.timeline}
        if not old:
            return
        self._first = self.hosts.index(promoted.host)
        for holder in self._holders:
            for connection in tuple(holder.connections()):
                if self._origins.get(connection) in old:
                    connection.terminate()
        log.warning(
            "a PostgreSQL server does not respond and another one was promoted; the work on the"
            " old one's connections is run again on the new one",
            silent=", ".join(sorted({place_of(it.host).server for it in old})),
            promoted=place_of(promoted.host).server,
        )


async def _ask(connection: Any, text: str) -> Any:
    """The row of a query; in a transaction, so that a pooler keeps to one server."""
    async with connection.transaction():
        return await connection.fetchrow(text)


def _is_on(settings: Any, name: str) -> bool:
    return getattr(settings, name, "off") == "on"


def _weight(error: BaseException) -> int:
    """Which of several errors tells most: a refusal by a server, before a server that is away."""
    if isinstance(error, NotWritable):
        return 1
    return 2 if isinstance(error, asyncpg.PostgresError) else 0


def _close(task: asyncio.Task[Any]) -> None:
    """End a connection that was made although another one was faster."""
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


async def connect(dsn: str, *, within_s: float = CONNECT_WITHIN_S, **options: Any) -> Any:
    """One connection to the writable server of an address, for a tool."""
    return await Connector(dsn).connect(within_s=within_s, **options)


# --- for `homing doctor` ------------------------------------------------------------------------


class HostState(NamedTuple):
    """What one host of an address is at the moment."""

    server: str
    timeline: int = 0  # of a server that is not in recovery
    is_standby: bool = False
    trouble: str = ""  # why it cannot be asked


async def host_states(dsn: str, *, within_s: float = CONNECT_WITHIN_S) -> tuple[HostState, ...]:
    """All hosts of an address that names several; none of an address with one."""
    hosts = single_hosts(dsn)
    if len(hosts) == 1:
        return ()
    return tuple(await asyncio.gather(*(_host_state(it, within_s) for it in hosts)))


async def _host_state(host: str, within_s: float) -> HostState:
    server = place_of(host).server
    try:
        async with asyncio.timeout(within_s):
            connection: Any = await asyncpg.connect(host, statement_cache_size=0)
            try:
                if (await _ask(connection, _STATE))[0]:
                    return HostState(server, is_standby=True)
                return HostState(server, timeline=int((await _ask(connection, _TIMELINE))[0], 16))
            finally:
                connection.terminate()
    except CONNECTION_ERRORS as error:
        return HostState(server, trouble=refusal_text(error, host))
