"""Signatures as foreign libraries judge them: `standardwebhooks` and `svix`, at any time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import standardwebhooks.webhooks
import svix.webhooks

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


LIBRARIES: tuple[Any, ...] = (standardwebhooks.webhooks.Webhook, svix.webhooks.Webhook)


def _accepts(library: Any, body: bytes, headers: dict[str, str]) -> bool:
    try:
        library.verify(body.decode(), headers)
    except WRONG:
        return False
    return True
