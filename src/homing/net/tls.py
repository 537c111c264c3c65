"""TLS as a client: verified, 1.2 or newer, HTTP/1.1 only; and the contexts of client certificates.

A context holds what connections trust and present. The default one is made once. A subscription or
a tenant with a client certificate or authorities of its own has a context of its own, which takes
many milliseconds and almost a megabyte: it is made on a thread, and kept in a bounded cache in
which every tenant has a share. There is no context that does not verify.

The check of a receiver's certificates runs on the event loop, and its time has a limit: a receiver
may send only so many bytes before it is trusted. Who trusts authorities of its own could let its
receiver present certificates that are trusted and take long to check (``policy.chains``). So what
is presented to such a context is weighed first; what is too heavy is not checked, and not trusted.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any

from homing.model import Failure, TlsIdentity
from homing.net.clock import monotonic as system_monotonic
from homing.net.clock import wall_ms as system_wall
from homing.net.identity_files import IdentityFile
from homing.net.trouble import Trouble
from homing.policy.certificates import why_unusable
from homing.policy.chains import HANDSHAKE_BYTES_MAX, ChainWeight, weigh
from homing.policy.egress import NO_FILES, IdentityPaths
from homing.policy.look_ups import FairCache, LookUpQueue

CONTEXTS_MAX = 128  # of identities, at almost a megabyte each
KEEP_S = 600.0
THREADS_MAX = 4  # that make contexts
INSTALLATION = ""  # the owner of contexts that belong to no tenant


class ReceiverRefused(ssl.SSLError):
    """A handshake that was ended because the check of the certificates would take too long."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_TOO_MANY_BYTES = (
    f"the receiver sent more than {HANDSHAKE_BYTES_MAX // 1024} KiB before it was trusted: "
    "its certificates are too large, or too many"
)
_TOO_HEAVY = "the certificates of the receiver have too many names and name constraints"


class BoundedHandshake(ssl.SSLObject):
    """A connection whose peer may send only so much in the handshake, and no heavy chain."""

    _incoming: ssl.MemoryBIO
    _left = _received = 0
    is_too_heavy = False

    def begin(self, incoming: ssl.MemoryBIO) -> None:
        self._incoming = incoming

    def do_handshake(self) -> None:
        self._received += self._incoming.pending - self._left
        if self._received > HANDSHAKE_BYTES_MAX:
            raise ReceiverRefused(_TOO_MANY_BYTES)
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            self._left = self._incoming.pending
            raise
        except ssl.SSLError:
            if self.is_too_heavy:
                raise ReceiverRefused(_TOO_HEAVY) from None
            raise


class BoundedContext(ssl.SSLContext):
    """A context in which the work of a handshake has a limit."""

    sslobject_class = BoundedHandshake
    _own = ChainWeight()

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **more: Any
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **more)
        assert isinstance(made, BoundedHandshake)
        made.begin(incoming)
        return made

    def trust(self, authorities: str) -> None:
        """Trust these authorities as well, and weigh what is presented together with them."""
        self.load_verify_locations(cadata=authorities)
        self._own = weigh(b"".join(map(ssl.PEM_cert_to_DER_cert, _each(authorities))))
        if ssl.OPENSSL_VERSION_INFO >= (3, 2):
            self.options |= _NO_COMPRESSED_CERTIFICATES
        # Python has no public way to see a message before OpenSSL acts on it: its own debugging
        # hook is called at that moment.
        self._msg_callback = self._weigh

    def _weigh(
        self, connection: ssl.SSLObject, direction: str, _version: Any, *message: Any
    ) -> None:
        """Let no authority be trusted by a connection to which a heavy chain is presented."""
        _, kind, content = message
        if direction != "read" or kind != _CERTIFICATES:
            return
        if (self._own + weigh(content)).is_too_much and isinstance(connection, BoundedHandshake):
            connection.is_too_heavy = True
            connection.context = _TRUSTS_NOBODY


_CERTIFICATES = 11  # the type of the message
_NO_COMPRESSED_CERTIFICATES = 1 << 33  # SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
_TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _each(authorities: str) -> Iterator[str]:
    end = "-----END CERTIFICATE-----"
    for text in authorities.split(end)[:-1]:
        yield f"{text.strip()}\n{end}"


def client_context(ca_file: str | None = None) -> BoundedContext:
    """A context that trusts the system's authorities and those in ``ca_file``.

    Raises OSError (SSLError is one) if there is no authority to trust: a failure of the sender.
    """
    context = BoundedContext(ssl.PROTOCOL_TLS_CLIENT)  # It verifies, and checks the name.
    context.load_default_certs()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without VERIFY_X509_STRICT, which refuses many certificates of private authorities.
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST
    context.hostname_checks_common_name = False  # RFC 9525: only subject alternative names count.
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    if not context.cert_store_stats()["x509_ca"] and not _has_lazy_authorities():
        raise FileNotFoundError("the system has no certificate authorities")
    return context


def _has_lazy_authorities() -> bool:
    """Whether there is a directory of authorities, which OpenSSL reads on demand."""
    directory = ssl.get_default_verify_paths().capath
    return directory is not None and any(Path(directory).iterdir())


class TlsContexts:
    """The context of each connection: the default one, or that of its identity."""

    def __init__(
        self,
        make: Callable[[], BoundedContext],
        *,
        installation: IdentityPaths = NO_FILES,
        tenants: Mapping[str, IdentityPaths] = MappingProxyType({}),
        on_change: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = system_monotonic,
        wall: Callable[[], int] = system_wall,
    ) -> None:
        self._make, self._monotonic, self._wall = make, monotonic, wall
        self._default: ssl.SSLContext | None = None
        self._installation = IdentityFile(installation, on_change=on_change, monotonic=monotonic)
        self._tenants = {
            name: IdentityFile(paths, on_change=on_change, monotonic=monotonic)
            for name, paths in tenants.items()
        }
        self._has_files = bool(installation) or bool(tenants)
        self._cache: FairCache[str, ssl.SSLContext] = FairCache(CONTEXTS_MAX, keep_s_max=KEEP_S)
        self._queue: LookUpQueue[str] = LookUpQueue(THREADS_MAX)
        self._making: dict[str, tuple[TlsIdentity, asyncio.Future[ssl.SSLContext | Trouble]]] = {}

    def quick(self, tenant: str, own: TlsIdentity | None) -> ssl.SSLContext | Trouble | None:
        """The context, if it is there or has no identity; None: ``wait_for`` it."""
        identity, _ = self._identity(tenant, own)
        if identity is None:
            return self._made_default()
        if why := why_unusable(identity, wall=self._wall()):
            return Trouble(Failure.SENDER_CERTIFICATE, why)
        return self._cache.get(identity.fingerprint, self._monotonic())

    async def wait_for(self, tenant: str, own: TlsIdentity | None) -> ssl.SSLContext | Trouble:
        """The context of an identity, once a thread has made it; tenants take turns."""
        identity, owner = self._identity(tenant, own)
        if identity is None:
            return self._made_default()
        name = identity.fingerprint
        if name not in self._making:
            self._making[name] = identity, asyncio.get_running_loop().create_future()
            self._queue.join(owner, name)
            self._start_next()
        # A request that is cancelled does not cancel the others.
        return await asyncio.shield(self._making[name][1])

    def _made_default(self) -> ssl.SSLContext | Trouble:
        if self._default is None:
            try:
                self._default = self._make()
            except OSError as error:
                return _unreadable(error)
        return self._default

    def _identity(self, tenant: str, own: TlsIdentity | None) -> tuple[TlsIdentity | None, str]:
        """What a connection of this tenant presents and trusts, and the owner of its context.

        The certificate is the most specific one; authorities of all levels are trusted.
        """
        if not self._has_files:
            return own, tenant
        file = self._tenants.get(tenant)
        theirs = None if file is None else file.identity()
        ours = self._installation.identity()
        levels = [it for it in (own, theirs, ours) if it is not None]
        if len(levels) <= 1:
            only = levels[0] if levels else None
            return only, INSTALLATION if only is ours else tenant
        for it in levels:
            if it.problem and it is not ours:
                return it, tenant
        presents = next((it for it in levels if it.certificate or it.problem), levels[0])
        if presents.problem:
            return presents, tenant
        trusts = "\n".join(dict.fromkeys(it.authorities for it in levels if it.authorities))
        joined = "\0".join((presents.certificate, presents.key, trusts))
        return (
            TlsIdentity(
                sha256(joined.encode()).hexdigest(),
                presents.certificate,
                presents.key,
                trusts,
                presents.valid_from,
                presents.valid_until,
            ),
            INSTALLATION if own is None and theirs is None else tenant,
        )

    # --- threads -----------------------------------------------------------------------------

    def _start_next(self) -> None:
        while (turn := self._queue.start()) is not None:
            owner, name = turn
            loop = asyncio.get_running_loop()
            identity = self._making[name][0]
            thread = threading.Thread(
                target=self._run, args=(owner, identity, loop), name="TLS context", daemon=True
            )
            try:
                thread.start()
            except (RuntimeError, MemoryError):
                limits = Trouble(Failure.SENDER_LIMITS, "no thread could be started for TLS")
                self._finish(owner, name, limits)

    def _run(self, owner: str, identity: TlsIdentity, loop: asyncio.AbstractEventLoop) -> None:
        found = self._context(identity)
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(self._finish, owner, identity.fingerprint, found)

    def _finish(self, owner: str, name: str, found: ssl.SSLContext | Trouble) -> None:
        self._queue.end(owner)
        _, future = self._making.pop(name)
        if not isinstance(found, Trouble):
            self._cache.put(owner, name, found, now=self._monotonic(), keep_s=KEEP_S)
        if not future.done():
            future.set_result(found)
        self._start_next()

    def _context(self, identity: TlsIdentity) -> ssl.SSLContext | Trouble:
        try:
            context = self._make()
        except OSError as error:
            return _unreadable(error)
        try:
            if identity.authorities:
                context.trust(identity.authorities)
            if identity.certificate:
                with _as_file(f"{identity.certificate}\n{identity.key}") as path:
                    context.load_cert_chain(path)
        except (OSError, ValueError) as error:  # SSLError is an OSError.
            reason = getattr(error, "reason", None) or type(error).__name__
            why = f"the client certificate cannot be used: {reason.lower().replace('_', ' ')}"
            return Trouble(Failure.SENDER_CERTIFICATE, why)
        return context


def _unreadable(error: OSError) -> Trouble:
    what = error.strerror or str(error)
    return Trouble(
        Failure.SENDER_TLS, f"the certificate authorities of the sender cannot be read: {what}"
    )


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The name of a file with this text: Python reads a certificate and its key only from one.

    On Linux the file is in memory only, so that the key never reaches a disk.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("homing"), "wb") as file:
            file.write(text.encode())
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            if Path(path).exists():
                yield path
                return
    with NamedTemporaryFile("wb") as file:  # Only its owner may read it.
        file.write(text.encode())
        file.flush()
        yield file.name
