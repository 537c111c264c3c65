"""How long a call goes on trying: pure decisions about one call's failures.

A call is repeated only where that cannot do it twice. All of its attempts and pauses together
stay within one deadline; an attempt that would begin after it is not begun.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from homing.client.errors import HomingClientError, Unavailable, Unreachable

PAUSE_FIRST_S = 0.1
PAUSE_MOST_S = 5.0
_DOUBLINGS_MOST = 10


class Again(Enum):
    """After which failures a call may be repeated."""

    NEVER = "never"  # its failure is its answer
    UNSENT = "unsent"  # only when the request did not leave: doing it twice is not doing it once
    ALWAYS = "always"  # doing it twice is doing it once


class Patience(Struct, frozen=True):
    """How long a call may take."""

    timeout_s: float = 30.0  # for all of it
    attempt_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not (self.timeout_s > 0 and self.attempt_timeout_s > 0):
            raise ValueError("a timeout must be more than 0 seconds")


class Effort:
    """One call on its way to an answer."""

    def __init__(self, again: Again, patience: Patience, *, now: float) -> None:
        self._again = again
        self._attempt_timeout_s = patience.attempt_timeout_s
        self._until = now + patience.timeout_s
        self._failures = 0
        self.maybe_done = False  # an attempt failed of which nobody knows what it did

    def attempt_until(self, now: float) -> float:
        """When the attempt that begins now has to be over."""
        return min(now + self._attempt_timeout_s, self._until)

    def pause_s(self, error: HomingClientError, *, now: float, chance: float) -> float:
        """How long to wait before the next attempt; raises the error if there is to be none."""
        if not self._may_repeat(error):
            raise error
        longest = min(PAUSE_FIRST_S * (1 << min(self._failures, _DOUBLINGS_MOST)), PAUSE_MOST_S)
        pause = longest * (1 + chance) / 2  # Half of it is jitter: callers must not march in step.
        if isinstance(error, Unavailable) and error.retry_after_s is not None:
            pause += error.retry_after_s
        if now + pause >= self._until:
            raise error
        self._failures += 1
        self.maybe_done = self.maybe_done or _maybe_done(error)
        return pause

    def _may_repeat(self, error: HomingClientError) -> bool:
        if not isinstance(error, Unreachable | Unavailable) or self._again is Again.NEVER:
            return False
        return self._again is Again.ALWAYS or not _maybe_done(error)


def _maybe_done(error: HomingClientError) -> bool:
    """Whether the request may have been carried out although it failed."""
    return error.maybe_done if isinstance(error, Unreachable) else True
