"""Signatures as others judge them: `standardwebhooks` and `svix` at any time, and RFC 8032.

Neither library verifies v1a (nor do their versions in other languages): both skip it. So v1a is
judged by an implementation of RFC 8032 that shares no code with the one that signs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import standardwebhooks.webhooks
import svix.webhooks

from ed25519_reference import verifies

if TYPE_CHECKING:
    from collections.abc import Iterator

WRONG = (
    standardwebhooks.webhooks.WebhookVerificationError,
    svix.webhooks.WebhookVerificationError,
)


@contextmanager
def clock_at(ms: int) -> Iterator[None]:
    """Both libraries look at the clock; here it says what a virtual one says."""

    class Then(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.fromtimestamp(ms / 1000, tz)

    with patch.object(standardwebhooks.webhooks, "datetime", Then):
        yield


def accepted_by_both(
    headers: Mapping[str, str], body: bytes, secret: str, *, at: int | None = None
) -> bool:
    """Whether both accept it; they must never disagree. ``at``: the receiver's time in ms."""
    if at is not None:
        with clock_at(at):
            return accepted_by_both(headers, body, secret)
    lower = {name.lower(): value for name, value in headers.items()}
    verdicts = {_accepts(kind(secret), body, lower) for kind in LIBRARIES}
    assert len(verdicts) == 1, "the libraries disagree"
    return verdicts.pop()


def accepted_v1a(headers: Mapping[str, str], body: bytes, public_key: str) -> bool:
    """Whether one of the v1a signatures was made with the pair of this public key (``whpk_…``)."""
    lower = {name.lower(): value for name, value in headers.items()}
    signed = f"{lower['webhook-id']}.{lower['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(public_key.removeprefix("whpk_"), validate=True)
    given = (it.partition(",") for it in lower["webhook-signature"].split(" "))
    return any(
        verifies(key, signed, base64.b64decode(coded, validate=True))
        for version, _, coded in given
        if version == "v1a"
    )


LIBRARIES: tuple[Any, ...] = (standardwebhooks.webhooks.Webhook, svix.webhooks.Webhook)


def _accepts(library: Any, body: bytes, headers: dict[str, str]) -> bool:
    try:
        library.verify(body.decode(), headers)
    except WRONG:
        return False
    except json.JSONDecodeError:  # They read the body after they have accepted its signature.
        return True
    return True
