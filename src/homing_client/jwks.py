"""``Jwks``: the public keys of a tenant, fetched from its JWK set and kept for a while.

    keys = Jwks("https://homing.example/.well-known/jwks.json?tenant=acme")
    verified = verify(request.headers, body, keys)

The keys are fetched at the first use and again when they are five minutes old. If no key fits a
signature, the sender may have rotated its keys: they are fetched again, at most every 30 seconds,
so that forged requests do not become requests to the sender. While they cannot be fetched, the last
ones are used for up to a day. Any number of threads may share one ``Jwks``. A fetch blocks: on
asyncio call ``await asyncio.to_thread(verify, …)``.
"""

from __future__ import annotations

import ssl
import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from homing_client.connections import SocketConnection
from homing_client.errors import BadResponse, HomingClientError, KeysUnavailable
from homing_client.http1 import ServerAddress, write_request
from homing_client.time_and_random import monotonic
from homing_client.version import __version__

KEYS_MAX = 10  # of one set: Homing lists no more, and each costs a check of each signature
DOCUMENT_BYTES_MAX = 64 * 1024
_KEY_BYTES = 32


class Fetched(NamedTuple):
    """Keys, and the number of the fetch that they are from."""

    number: int
    keys: tuple[bytes, ...]


class Jwks:
    """The public keys at a URL. ``verify`` takes it in place of a secret."""

    def __init__(
        self,
        url: str,
        *,
        max_age_s: float = 300.0,
        refetch_s: float = 30.0,
        stale_s: float = 86_400.0,
        timeout_s: float = 5.0,
        ssl_context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._server, self._path = _read_url(url)
        self._context = (ssl_context or ssl.create_default_context()) if self._server.tls else None
        self._max_age_s, self._refetch_s, self._stale_s = max_age_s, refetch_s, stale_s
        self._timeout_s, self._clock = timeout_s, clock
        self._fetching = threading.Lock()
        self._now = Fetched(0, ())
        self._fetched_at: float | None = None  # None: never
        self._tried_at: float | None = None
        self._trouble: HomingClientError | None = None

    def keys(self) -> Fetched:
        """The keys, fetched if they are too old; raises KeysUnavailable."""
        if self._is_younger(self._fetched_at, self._max_age_s):
            return self._now
        with self._fetching:
            if not self._is_younger(self._fetched_at, self._max_age_s):
                self._fetch()
            if self._is_younger(self._fetched_at, self._stale_s):
                return self._now
            raise KeysUnavailable(str(self._trouble)) from self._trouble

    def keys_after(self, number: int) -> tuple[bytes, ...]:
        """The keys of a later fetch than this one; none if it is too early for another fetch."""
        with self._fetching:
            if self._now.number == number:
                self._fetch()
            return self._now.keys if self._now.number != number else ()

    def _fetch(self) -> None:
        if self._is_younger(self._tried_at, self._refetch_s):
            return
        self._tried_at = self._clock()
        try:
            keys = read_jwks(self._document())
        except HomingClientError as error:
            self._trouble = error
            return
        self._now = Fetched(self._now.number + 1, keys)
        self._fetched_at = self._clock()

    def _document(self) -> dict[str, Any]:
        deadline = monotonic() + self._timeout_s
        connection = SocketConnection.open(self._server, self._context, deadline=deadline)
        try:
            request = write_request(self._server, "GET", self._path, body=b"", content_type="")
            response = connection.exchange(request, deadline=deadline)
        finally:
            connection.close()
        if response.status != 200 or len(response.body) > DOCUMENT_BYTES_MAX:
            raise BadResponse(f"It has the status {response.status} and is no JWK set.")
        try:
            return msgspec.json.decode(response.body, type=dict[str, Any])
        except msgspec.DecodeError:
            raise BadResponse("It is no JWK set.") from None

    def _is_younger(self, at: float | None, seconds: float) -> bool:
        return at is not None and self._clock() - at < seconds

    def __repr__(self) -> str:
        return f"Jwks({self._server.host}:{self._server.port}{self._path})"


def read_jwks(document: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The Ed25519 keys of a JWK set; others are left out. Raises BadResponse."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise BadResponse("A JWK set has a list of keys.")
    found = (_read_jwk(it) for it in entries if isinstance(it, Mapping))
    return tuple(it for it in found if it is not None)[:KEYS_MAX]


def _read_jwk(entry: Mapping[str, Any]) -> bytes | None:
    x = entry.get("x")
    if (entry.get("kty"), entry.get("crv")) != ("OKP", "Ed25519") or not isinstance(x, str):
        return None
    if entry.get("use", "sig") != "sig":
        return None
    try:
        key = urlsafe_b64decode(x + "=" * (-len(x) % 4))
    except ValueError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _read_url(url: str) -> tuple[ServerAddress, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL must begin with http:// or https:// and name a host")
    if parts.username is not None or not url.isascii() or any(char <= " " for char in url):
        raise ValueError("the URL must have no user and consist of visible ASCII characters")
    tls = parts.scheme == "https"
    lines = (
        f"host: {parts.netloc}",
        f"user-agent: homing-client/{__version__}",
        "accept: application/json",
        "connection: close",
    )
    server = ServerAddress(
        tls=tls,
        host=parts.hostname,
        port=parts.port or (443 if tls else 80),
        prefix="",
        header_block="\r\n".join(lines) + "\r\n",
    )
    return server, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
