"""Encryption of single texts: the database cannot be read without a key that it does not hold.

AES-256-GCM. The context of a text (which row, which field) is bound into the ciphertext: moved to
another row, it does not decrypt. A ciphertext names its key, so that several keys can be given
while one replaces another: the first encrypts, all decrypt. Text that was stored before there were
keys is returned as it is.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from homing.errors import CannotDecrypt
from homing.policy.encryption_keys import KEY_BYTES, key_id

NONCE_BYTES = 12
PREFIX = "sealed:1:"  # of every stored ciphertext, followed by the name of its key


class KeyRing:
    """Encrypts with the first key, decrypts with any."""

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        assert keys, "there must be a key to encrypt with"
        assert all(len(key) == KEY_BYTES for key in keys)
        self.ids = tuple(key_id(key) for key in keys)
        self._keys = {name: AESGCM(key) for name, key in zip(self.ids, keys, strict=True)}

    def encrypt(self, text: str, context: str, nonce: bytes) -> str:
        """Encrypt with the first key; the nonce must be random and never used twice."""
        key = self._keys[self.ids[0]]
        encrypted = nonce + key.encrypt(nonce, text.encode(), context.encode())
        return f"{PREFIX}{self.ids[0]}:{urlsafe_b64encode(encrypted).decode()}"

    def decrypt(self, text: str, context: str) -> str:
        """The plain text; raises CannotDecrypt, whose message contains nothing of the text."""
        if not text.startswith(PREFIX):
            return text
        name, _, coded = text[len(PREFIX) :].partition(":")
        key = self._keys.get(name)
        if key is None:
            raise CannotDecrypt(
                f"{context} is encrypted with the key {name[:16]}, which was not given."
            )
        try:
            content = urlsafe_b64decode(coded)
            nonce, encrypted = content[:NONCE_BYTES], content[NONCE_BYTES:]
            return key.decrypt(nonce, encrypted, context.encode()).decode()
        except (InvalidTag, ValueError):
            raise CannotDecrypt(f"{context} is damaged or was encrypted for another row.") from None

    def is_encrypted(self, text: str) -> bool:
        """Whether it is encrypted with any key."""
        return text.startswith(PREFIX)

    def is_current(self, text: str) -> bool:
        """Whether it is encrypted with the first key."""
        return text.startswith(f"{PREFIX}{self.ids[0]}:")

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.ids)})"
