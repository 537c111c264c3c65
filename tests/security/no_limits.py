"""Deliberately broken builds: one limit of keys, chains, schemas, samples, text or streams is gone.

The variable ``GONE`` says which. Each is what the server did before it had that limit.
"""

from __future__ import annotations

import os
import re

from cryptography.hazmat.primitives import serialization

import security.watched_loop  # noqa: F401 - it watches the loop from its import on
from homing.cli.main import main
from homing.net import tls
from homing.policy import certificates, chains, event_schema
from homing.policy.private_keys import BadKey, PrivateKey
from homing.policy.share import Share
from homing.web.dashboard import characters
from homing.web.dashboard.pages import deliveries

GONE = "NO_LIMITS_GONE"
MANY = 1 << 40


def _tests_primes(pem: str) -> PrivateKey:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, PrivateKey):
        raise BadKey("must be a key that can sign")
    return key


def _takes_all(_share: Share, _tenant: str, amount: int = 1) -> bool:
    del amount
    return True


match os.environ.get(GONE):
    case "keys":
        certificates.accept_key = certificates.load_key = _tests_primes  # type: ignore[attr-defined]
    case "chains":
        chains.COMPARISONS_MAX = chains.AUTHORITY_BYTES_MAX = MANY
        certificates.AUTHORITY_BYTES_MAX = MANY  # type: ignore[attr-defined]
        tls.HANDSHAKE_BYTES_MAX = MANY  # type: ignore[attr-defined]
    case "schemas":
        event_schema.COMPILE_NS_MAX = MANY
    case "patterns":
        item = r"(?:\\[dDwWsS.]|\[\^?(?:[^\]\\\[]|\\.)+\]|[\w\s.:/@#%&=!~,;<>\"'-])"
        event_schema._is_simple = re.compile(rf"\^(?:{item}(?:\{{\d+\}})?)*\$?").fullmatch
    case "samples":
        deliveries.SHOWN_DEPTH_MAX = deliveries.PRETTY_BYTES_MAX = MANY
    case "text":
        characters.NAMED_MAX = MANY
    case "streams":
        Share.may_take = _takes_all  # type: ignore[assignment,method-assign]
    case _:
        pass

if __name__ == "__main__":
    main()
