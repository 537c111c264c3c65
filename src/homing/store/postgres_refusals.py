"""Why PostgreSQL refuses, in words: which server, what is wrong, what to do; never a password."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
from msgspec import Struct

# What connecting and reading may raise; a ValueError is an address that cannot be read.
CONNECTION_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError, EOFError)
OLDEST = 15  # the oldest version that is supported


class Place(Struct, frozen=True):
    """A database as messages name it: without its password."""

    server: str  # host and port, or a socket's directory
    database: str
    user: str


class NotWritable(ConnectionError):
    """This server must not be written to; the text names it, the reason and what to do."""


_UNREADABLE = Place("the address in database_url", "?", "?")


def place_of(dsn: str) -> Place:
    """The parts of the address that may be shown."""
    try:
        parts = urlsplit(dsn)
        query = parse_qs(parts.query)
        servers = _servers(parts.netloc.rpartition("@")[2], query)
    except ValueError:
        return _UNREADABLE
    if "@" in parts.path or parts.netloc.count("@") > 1:  # A part of it may be of a password.
        return _UNREADABLE
    user = unquote(parts.username or "") or query.get("user", ["of this system"])[0]
    database = unquote(parts.path.lstrip("/")) or query.get("dbname", [user])[0]
    return Place(", ".join(servers), database, user)


def _servers(hosts: str, query: dict[str, list[str]]) -> list[str]:
    """Each host with its port; raises ValueError."""
    names = hosts.split(",") if hosts else query.get("host", ["localhost"])[0].split(",")
    ports = query.get("port", ["5432"])[0].split(",")
    found = []
    for place, name in enumerate(names):
        host, port = unquote(name), ports[min(place, len(ports) - 1)]
        if host.startswith("/"):
            found.append(f"the socket in {host}")
            continue
        if host.startswith("["):
            host, _, own = host[1:].partition("]")
            port = own.removeprefix(":") or port
        elif host.count(":") == 1:
            host, _, own = host.partition(":")
            port = own or port
        found.append(f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}")
    return found


def shown(dsn: str) -> str:
    """The address without password and options."""
    place = place_of(dsn)
    return f"the database {place.database} of PostgreSQL at {place.server}"


def refusal_text(error: BaseException, dsn: str) -> str:
    """What happened, at which server, and what to do."""
    place = place_of(dsn)
    at = f"PostgreSQL at {place.server}"
    if isinstance(error, NotWritable):
        return str(error)
    for kinds, text in _TEXTS:
        if isinstance(error, kinds):
            return text.format(at=at, server=place.server, db=place.database, user=place.user)
    if isinstance(error, asyncpg.PostgresError):
        said = str(getattr(error, "message", "") or type(error).__name__).splitlines()[0]
        return f"{at} refuses: {said.rstrip('.')}."
    if isinstance(error, ConnectionError) and "SSL" in str(error):
        return (
            f"{at} does not use TLS, but database_url demands it: enable ssl there, or change"
            " sslmode."
        )
    if isinstance(error, OSError):
        return f"{at} cannot be reached: {error.strerror or type(error).__name__}."
    return f"{at}: {type(error).__name__}."


_TEXTS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (
        asyncpg.InvalidPasswordError,
        "{at} refuses the password of the user {user}: correct it in database_url.",
    ),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "{at} does not let the user {user} into the database {db}: the user does not exist, or"
        " pg_hba.conf has no line for it, this machine and this kind of connection (with or"
        " without TLS).",
    ),
    (
        asyncpg.InvalidCatalogNameError,
        "{at} has no database {db}: create it (createdb {db}), or correct database_url.",
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        "{at}: the user {user} has too few rights in the database {db}. Make it the owner:"
        ' ALTER DATABASE "{db}" OWNER TO "{user}".',
    ),
    (
        asyncpg.TooManyConnectionsError,
        "{at} has no free connection: raise max_connections there, or stop other programs.",
    ),
    (
        asyncpg.ReadOnlySQLTransactionError,
        "{at} is read-only, as a standby is: give the address of the primary.",
    ),
    (asyncpg.CannotConnectNowError, "{at} is starting or stopping: try again soon."),
    (
        asyncpg.DiskFullError,
        "{at} has no space left on its disk: free some there; nothing is lost.",
    ),
    (
        (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError),
        "{at}: another session holds a lock on a table for too long. Find it with"
        " SELECT * FROM pg_stat_activity WHERE state <> 'idle'.",
    ),
    (
        ssl.SSLCertVerificationError,
        "{at} has a TLS certificate that is not trusted here: give its authority with sslrootcert"
        " in database_url.",
    ),
    (ssl.SSLError, "{at} does not agree on TLS: check sslmode in database_url."),
    (
        (asyncpg.ClientConfigurationError, ValueError),
        "The address in database_url cannot be read: it must be"
        " postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password"
        " percent-encoded.",
    ),
    (
        socket.gaierror,
        "The name of {at} cannot be resolved: correct the host in database_url, or check the name"
        " servers.",
    ),
    (
        ConnectionRefusedError,
        "Nothing listens at {server}: start PostgreSQL, or correct host and port in database_url.",
    ),
    (
        FileNotFoundError,
        "PostgreSQL does not run here: there is no file for {server}. Start it, or give its host"
        " in database_url.",
    ),
    (
        TimeoutError,
        "{at} did not respond in time: check host and port in database_url, and firewalls.",
    ),
    (
        (asyncpg.InterfaceError, ConnectionResetError, EOFError),
        "{at} closed the connection: another program may listen there.",
    ),
)
