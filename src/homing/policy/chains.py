"""How long the check of a chain of certificates may take, known before it begins.

An authority may have name constraints, and every name of the certificates below it is compared with
each of them: 50 kB of certificates are eight million comparisons, for which the event loop would
stand still. So the possible comparisons are counted: those of a tenant's own authorities when they
are given, and with what a receiver presents in each handshake. The count is made of the lengths of
the extensions, without reading them: it is never too low, and quick whatever they contain.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

HANDSHAKE_BYTES_MAX = 32 * 1024  # that a receiver sends before it is trusted
AUTHORITY_BYTES_MAX = 8 * 1024  # of one certificate of an authority, in DER
COMPARISONS_MAX = 1_000_000  # 10 ms on a small machine

_CONSTRAINTS = bytes.fromhex("551d1e")  # the names of the extensions
_ALTERNATIVES = bytes.fromhex("551d11")
_CONSTRAINT_BYTES = 4  # the least that one takes,
_ALTERNATIVE_BYTES = 2
_SUBJECT_BYTES = 11  # and a part of the subject, which counts as a name, too


class ChainWeight(Struct, frozen=True):
    """At most so many names and name constraints are in some certificates."""

    names: int = 0
    constraints: int = 0

    def __add__(self, other: ChainWeight) -> ChainWeight:
        return ChainWeight(self.names + other.names, self.constraints + other.constraints)

    @property
    def is_too_much(self) -> bool:
        """Whether to compare all of them would take too long."""
        return self.names * self.constraints > COMPARISONS_MAX


def weigh(certificates: bytes) -> ChainWeight:
    """The weight of one or more certificates in DER."""
    alternatives = sum(_lengths(certificates, _ALTERNATIVES))
    return ChainWeight(
        len(certificates) // _SUBJECT_BYTES + alternatives // _ALTERNATIVE_BYTES,
        sum(_lengths(certificates, _CONSTRAINTS)) // _CONSTRAINT_BYTES,
    )


def _lengths(certificates: bytes, name: bytes) -> Iterator[int]:
    """The length of each extension of this name."""
    at = certificates.find(name)
    while at >= 0:
        at += len(name)
        yield _length(certificates, at)
        at = certificates.find(name, at)


def _length(certificates: bytes, at: int) -> int:
    """The length of the extension whose name ends here; of all that follows, if it is unclear."""
    if certificates[at : at + 2] == b"\x01\x01":
        at += 3  # It is critical, or not.
    rest = certificates[at : at + 6]
    if rest[:1] == b"\x04" and len(rest) == 6:
        if rest[1] < 0x80:
            return rest[1]
        count = rest[1] & 0x7F
        if 1 <= count <= 4:
            return int.from_bytes(rest[2 : 2 + count])
    return len(certificates) - at
