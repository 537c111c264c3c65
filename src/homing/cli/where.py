"""Which server a command speaks to, and with which key: given, or found on this machine.

A key that was found in a local data directory is sent to this machine only: ``--server`` with
another host needs a key of its own.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from msgspec import Struct

from homing.cli.trouble import NoServer, Usage
from homing.server.settings import ADMIN_KEY_FILE, ENV_SERVER, Settings, load_settings

if TYPE_CHECKING:
    from homing.client import Homing

ServerFlag = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar=ENV_SERVER,
        metavar="URL",
        help="The server to speak to; default: the one that runs here.",
        show_default=False,
        show_envvar=False,
    ),
]
KeyFlag = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="HOMING_ADMIN_KEY",
        metavar="KEY",
        help="Its admin key; default: the one in the data directory of the server that runs here.",
        show_default=False,
        show_envvar=False,
    ),
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Say it in JSON: a document, or one line per item.")
]
TenantFlag = Annotated[
    str | None, typer.Option("--tenant", metavar="TENANT", help="Only of this tenant.")
]


def given(**flags: object) -> dict[str, Any]:
    """The flags that were given."""
    return {name: value for name, value in flags.items() if value is not None}


class Where(Struct, frozen=True):
    """A server and the key to it."""

    url: str
    key: str

    def __repr__(self) -> str:
        return f"Where({self.url}, ****)"


def find(server: str | None, key: str | None, settings: Settings | None = None) -> Where:
    """What is given, else what the settings of this directory say; raises Usage or BadSetting."""
    settings = settings or load_settings()
    url = server or local_address(settings)
    if key:
        return Where(url, key)
    if not _is_here(url):
        raise Usage(f"{url} is not on this machine: give its key with --key.")
    return Where(url, _kept_key(settings, url))


def local_address(settings: Settings) -> str:
    """Where a server with these settings can be reached from this machine."""
    listen = settings.listen
    if listen.port == 0:
        raise Usage("The server takes any free port: say which one with --server URL.")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104
    return f"http://[{host}]:{listen.port}" if ":" in host else f"http://{host}:{listen.port}"


def _is_here(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _kept_key(settings: Settings, url: str) -> str:
    if settings.security.admin_key:
        return settings.security.admin_key
    path = settings.database.directory / ADMIN_KEY_FILE
    try:
        kept = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise Usage(
            f"There is no key for {url}: {path} is not there. Start a server in this directory "
            "with `homing serve`, name its data directory with HOMING_DATA, or give --key."
        ) from None
    except (OSError, ValueError) as error:
        raise Usage(f"The key at {path} cannot be read: {error}.") from None
    if not kept:
        raise Usage(f"The key at {path} is empty: start the server once, or give --key.")
    return kept


def connect(server: str | None, key: str | None) -> Homing:
    """A client of a server that answers; raises Usage, BadSetting or NoServer."""
    from homing.client import Homing, NotTrusted, Unreachable

    where = find(server, key)
    try:
        client = Homing(where.url, where.key)
    except ValueError as error:
        raise Usage(f"--server {where.url}: {error}.") from None
    try:
        client.ready()  # Asked once: who is not there is told of at once.
    except (Unreachable, NotTrusted) as error:
        raise no_server(where.url, error) from None
    return client


def no_server(url: str, error: Exception) -> NoServer:
    """What to do where nobody answers."""
    cause = error.__cause__
    reason = str(error).rstrip(".")
    if isinstance(cause, OSError) and cause.errno:
        reason = os.strerror(cause.errno)
    return NoServer(
        f"No server answers at {url} ({reason}). `homing serve` starts one; --server or "
        f"{ENV_SERVER} names another."
    )
