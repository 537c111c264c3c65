"""Private keys of tenants: read in a time that does not depend on what is in them.

OpenSSL's own check of an RSA key tests its primes, which takes a tenth of a second for 2048 bits
and six seconds for 8,676: too long for an event loop. So a key is loaded without that check, and
its numbers are compared instead. To load a key of another kind can take as long (the public half
of a DSA key is computed from the private one), so the kind is known before a key is loaded.
"""

from __future__ import annotations

import base64
import re
from binascii import Error as NotBase64

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa

from homing.languages.sentences import say

RSA_BITS = range(2048, 4096 + 1)
EXPONENT_MAX = 1 << 33

PrivateKey = (
    rsa.RSAPrivateKey
    | ec.EllipticCurvePrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----([^-]*)-----END \1-----")
_BY_LABEL = ("RSA PRIVATE KEY", "EC PRIVATE KEY")
_BY_ALGORITHM = tuple(  # The name of the algorithm in a PKCS #8 key, which has it near its begin.
    bytes.fromhex(it)
    for it in (
        "06092a864886f70d010101",  # RSA
        "06092a864886f70d01010a",  # RSA for PSS
        "06072a8648ce3d0201",  # EC
        "06032b6570",  # Ed25519
        "06032b6571",  # Ed448
    )
)
_HEAD_BYTES = 32

_ENCRYPTED = say(
    "is encrypted: remove its passphrase first ({command})", command="openssl pkey -in FILE"
)
_NO_KEY = say("must be a private key in PEM: it has no line -----BEGIN PRIVATE KEY-----")
_SEVERAL = say("must be one private key in PEM: there are several")
_OTHER_KIND = say("must be a key that can sign: use RSA or an elliptic curve")
_UNREADABLE = say("must be a private key in PEM: it cannot be read")


class BadKey(Exception):
    """Why a private key cannot be used. The reason begins with a verb; it has no part of the key"""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def load_key(pem: str) -> PrivateKey:
    """The key in a PEM text, whose numbers fit together; raises BadKey."""
    if "ENCRYPTED" in pem:
        raise BadKey(_ENCRYPTED)
    if "PRIVATE KEY-----" not in pem:
        raise BadKey(_NO_KEY)
    if pem.count("PRIVATE KEY-----") > 2:
        raise BadKey(_SEVERAL)
    block = _BLOCK.search(pem)
    if block is None:
        raise BadKey(_UNREADABLE)
    if not _can_sign(block[1], block[2]):
        raise BadKey(_OTHER_KIND)
    try:
        key = serialization.load_pem_private_key(
            block[0].encode(), password=None, unsafe_skip_rsa_key_validation=True
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadKey(_UNREADABLE) from None
    if not isinstance(key, PrivateKey):
        raise BadKey(_OTHER_KIND)
    if isinstance(key, rsa.RSAPrivateKey):
        _check_numbers(key)
    return key


def accept_key(pem: str) -> PrivateKey:
    """The same for a key that somebody gives: a signature that is made with it must verify, too."""
    key = load_key(pem)
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(b"?", padding.PKCS1v15(), hashes.SHA256())
        try:
            key.public_key().verify(signature, b"?", padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):
            reason = say("must be a valid RSA key: a signature made with it does not verify")
            raise BadKey(reason) from None
    return key


def _can_sign(label: str, text: str) -> bool:
    """Whether a block is of a kind that is quick to load."""
    if label != "PRIVATE KEY":
        return label in _BY_LABEL
    try:
        head = base64.b64decode("".join(text.split()))[:_HEAD_BYTES]
    except (NotBase64, ValueError):
        raise BadKey(_UNREADABLE) from None
    return any(it in head for it in _BY_ALGORITHM)


def _check_numbers(key: rsa.RSAPrivateKey) -> None:
    if key.key_size not in RSA_BITS:
        raise BadKey(
            say("must be an RSA key of 2048 to 4096 bits, not of {bits}", bits=str(key.key_size))
        )
    it = key.private_numbers()
    p, q, d = it.p, it.q, it.d
    e, n = it.public_numbers.e, it.public_numbers.n
    fits = (
        p * q == n
        and p & q & e & 1
        and min(p, q) > 1
        and 3 <= e < EXPONENT_MAX
        and e * d % (p - 1) == 1
        and e * d % (q - 1) == 1
        and it.dmp1 == d % (p - 1)
        and it.dmq1 == d % (q - 1)
        and it.iqmp * q % p == 1
    )
    if not fits:
        raise BadKey(say("must be a valid RSA key: its numbers do not fit together"))
