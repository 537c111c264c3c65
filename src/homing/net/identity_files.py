"""The client certificates and authorities of tenants and of the installation, which are in files.

Programs that renew a certificate replace its files while the server runs. So the files are looked
at again before a new connection, at most every few seconds, and read if one of them has changed. A
file that is missing or does not fit is a reason why the attempt cannot be made: it is tried again
shortly, by then with the file that the operator has put in place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from homing.languages.sentences import say
from homing.model import TlsIdentity
from homing.net.clock import monotonic as system_monotonic
from homing.policy.certificates import make_identity
from homing.policy.egress import IdentityPaths

LOOK_EVERY_S = 5.0
FILE_BYTES_MAX = 1024 * 1024

Stamp = tuple[tuple[int, int, int], ...]


def read_identity(paths: IdentityPaths) -> TlsIdentity | None:
    """The identity in these files; one that cannot be used has a ``problem``."""
    texts = []
    for path in (paths.certificate, paths.key, paths.authorities):
        try:
            texts.append(_read(path) if path else "")
        except (OSError, ValueError) as error:
            what = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
            return TlsIdentity(
                "",
                problem=say(
                    "the file {file} cannot be read: {error}", file=str(path), error=what.lower()
                ),
            )
    return make_identity(certificate=texts[0], key=texts[1], authorities=texts[2])


def _read(path: str) -> str:
    with Path(path).open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise OSError(0, f"it has more than {FILE_BYTES_MAX:,} bytes")
    return content.decode("utf-8")


class IdentityFile:
    """The identity in some files, read again after they have changed."""

    def __init__(
        self,
        paths: IdentityPaths,
        *,
        on_change: Callable[[], None],
        monotonic: Callable[[], float] = system_monotonic,
    ) -> None:
        self._paths, self._on_change, self._monotonic = paths, on_change, monotonic
        self._looked_at: float | None = None
        self._stamp: Stamp | None = None
        self._identity: TlsIdentity | None = None

    def identity(self) -> TlsIdentity | None:
        """The identity as the files are now, or were a few seconds ago."""
        now = self._monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return self._identity
        self._looked_at = now
        stamp = self._stamp_now()
        if stamp != self._stamp or (self._identity is not None and self._identity.problem):
            before, self._stamp = self._identity, stamp
            self._identity = read_identity(self._paths)
            if before is not None and before != self._identity:
                self._on_change()
        return self._identity

    def _stamp_now(self) -> Stamp:
        stamps = []
        for path in (self._paths.certificate, self._paths.key, self._paths.authorities):
            try:
                it = Path(path).stat() if path else None
            except OSError:
                it = None
            stamps.append((0, 0, 0) if it is None else (it.st_mtime_ns, it.st_size, it.st_ino))
        return tuple(stamps)
