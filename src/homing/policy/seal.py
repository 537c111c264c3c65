"""Sealed text: what lies in the database can be read only with a key that does not lie there.

AES-256-GCM. What it is about (which row, which field) is bound into the seal: a sealed text that
is moved to another row does not open. It names its key, so that several keys can be at hand while
one replaces another: the first seals, all open. Text from before there were keys opens as it is.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from homing.errors import CannotOpen
from homing.policy.seal_keys import KEY_BYTES, key_id

NONCE_BYTES = 12
MARK = "sealed:1:"


class Sealer:
    """Seals with the first key, opens with any."""

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        assert keys, "somebody must seal"
        assert all(len(key) == KEY_BYTES for key in keys)
        self.ids = tuple(key_id(key) for key in keys)
        self._keys = {name: AESGCM(key) for name, key in zip(self.ids, keys, strict=True)}

    def seal(self, text: str, about: str, nonce: bytes) -> str:
        """The nonce is chance, and never used twice."""
        sealed = nonce + self._keys[self.ids[0]].encrypt(nonce, text.encode(), about.encode())
        return f"{MARK}{self.ids[0]}:{urlsafe_b64encode(sealed).decode()}"

    def open(self, text: str, about: str) -> str:
        """Raises CannotOpen, which tells nothing of the text."""
        if not text.startswith(MARK):
            return text
        name, _, coded = text[len(MARK) :].partition(":")
        key = self._keys.get(name)
        if key is None:
            raise CannotOpen(f"{about} is sealed with the key {name[:16]}, which is not here.")
        try:
            sealed = urlsafe_b64decode(coded)
            return key.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about.encode()).decode()
        except (InvalidTag, ValueError):
            raise CannotOpen(f"{about} is damaged or was sealed for another row.") from None

    def is_sealed(self, text: str) -> bool:
        """Whether it is sealed with any key."""
        return text.startswith(MARK)

    def is_current(self, text: str) -> bool:
        """Whether it is sealed with the first key."""
        return text.startswith(f"{MARK}{self.ids[0]}:")

    def __repr__(self) -> str:
        return f"Sealer({', '.join(self.ids)})"
