"""Commands that talk to a server: how they find it and its key, and the three shapes they have.

A command lists items, shows one, or does something to one; each shape is written here once, with
its JSON form. A key that was found in a local data directory is sent to this machine only:
``--server`` with another host needs ``--key``.
"""

from __future__ import annotations

import functools
import inspect
import ipaddress
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from homing.cli.arguments import JsonFlag, KeyFlag, ServerFlag
from homing.cli.errors import NoServer, Usage
from homing.cli.output import console, note, print_json, print_list
from homing.server.settings import ADMIN_KEY_FILE, ENV_SERVER, Settings, load_settings

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import Homing

T = TypeVar("T")


class Remote(Struct, frozen=True):
    """The flags ``--server``, ``--key`` and ``--json`` of a command, and what it does with them."""

    server: str | None
    key: str | None
    json: bool

    def __repr__(self) -> str:
        return f"Remote({self.server}, ****)"

    def connect(self) -> Homing:
        """A client of a server that responds; raises Usage, BadSetting or NoServer."""
        from homing_client import Homing, NotTrusted, Unreachable

        target = find_server(self.server, self.key)
        try:
            client = Homing(target.url, target.key)
        except ValueError as error:
            raise Usage(f"--server {target.url}: {error}.") from None
        try:
            client.ready()  # Not repeated, so that a missing server is reported at once.
        except (Unreachable, NotTrusted) as error:
            raise no_server(target.url, error) from None
        return client

    def list_items(
        self,
        fetch: Callable[[Homing], Iterable[T]],
        *,
        limit: int,
        columns: Sequence[str],
        row: Callable[[T], Sequence[object]],
        empty: str,
        right: Sequence[str] = (),
    ) -> None:
        """Print at most ``limit`` items as a table or as lines of JSON."""
        with self.connect() as client:
            found = list(islice(fetch(client), limit + 1))
        print_list(
            found[:limit], columns=columns, row=row, empty=empty, right=right, json=self.json
        )
        if len(found) > limit and not self.json:
            note(f"… and more: --limit shows more than {limit}.")

    def show(self, fetch: Callable[[Homing], T], view: Callable[[Console, T], None]) -> None:
        """Print one object, as its view or as JSON."""
        with self.connect() as client:
            found = fetch(client)
        if self.json:
            print_json(found)
        else:
            view(console(), found)

    def do(
        self, action: Callable[[Homing], None], *, document: dict[str, Any], sentence: str
    ) -> None:
        """Do something that returns nothing, then print the sentence, or the document as JSON."""

        def act(client: Homing) -> dict[str, Any]:
            action(client)
            return document

        self.show(act, lambda out, _: out.print(sentence, soft_wrap=True))


def remote_command(command: Callable[..., None]) -> Callable[..., None]:
    """Adds ``--server``, ``--key`` and ``--json``; the command gets them as its ``remote``."""
    signature = inspect.signature(command, eval_str=True)
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in (
            ("server", None, ServerFlag),
            ("key", None, KeyFlag),
            ("json", False, JsonFlag),
        )
    ]
    own = [one for one in signature.parameters.values() if one.name != "remote"]

    @functools.wraps(command)
    def wrapper(*args: Any, server: str | None, key: str | None, json: bool, **more: Any) -> None:
        command(*args, remote=Remote(server, key, json), **more)

    wrapper.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    return wrapper


# --- which server, with which key -----------------------------------------------------------


class Target(Struct, frozen=True):
    """The URL of a server and the key for it."""

    url: str
    key: str

    def __repr__(self) -> str:
        return f"Target({self.url}, ****)"


def find_server(server: str | None, key: str | None, settings: Settings | None = None) -> Target:
    """From the flags, or else from the settings of this directory; raises Usage or BadSetting."""
    settings = settings or load_settings()
    url = server or local_url(settings)
    if key:
        return Target(url, key)
    if not _is_this_machine(url):
        raise Usage(f"{url} is not on this machine: give its key with --key.")
    return Target(url, _local_key(settings, url))


def local_url(settings: Settings) -> str:
    """The URL of a server with these settings, as seen from this machine."""
    listen = settings.listen
    if listen.port == 0:
        raise Usage("The server takes any free port: name its URL with --server.")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104
    return f"http://[{host}]:{listen.port}" if ":" in host else f"http://{host}:{listen.port}"


def _is_this_machine(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _local_key(settings: Settings, url: str) -> str:
    if settings.security.admin_key:
        return settings.security.admin_key
    path = settings.database.directory / ADMIN_KEY_FILE
    try:
        key = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise Usage(
            f"There is no key for {url}: {path} does not exist. Start a server in this directory "
            "with `homing serve`, name its data directory with HOMING_DATA, or give --key."
        ) from None
    except (OSError, ValueError) as error:
        raise Usage(f"The key file {path} cannot be read: {error}.") from None
    if not key:
        raise Usage(f"The key file {path} is empty: start the server once, or give --key.")
    return key


def no_server(url: str, error: Exception) -> NoServer:
    """The error for a server that does not respond."""
    cause = error.__cause__
    reason = str(error).rstrip(".")
    if isinstance(cause, OSError) and cause.errno:
        reason = os.strerror(cause.errno)
    return NoServer(
        f"No server responds at {url} ({reason}). `homing serve` starts one; --server or "
        f"{ENV_SERVER} names another."
    )
