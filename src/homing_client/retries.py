"""When a call is attempted again, and after which pause: pure decisions, without I/O.

A call is repeated only if the repetition cannot have an effect twice. All attempts and pauses of a
call stay within one deadline; no attempt starts after it.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from homing_client.errors import HomingClientError, Unavailable, Unreachable

PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
_DOUBLINGS_MAX = 10


class RetryRule(Enum):
    """After which failures a call may be repeated."""

    NEVER = "never"
    UNSENT = "unsent"  # only if the request was not sent: a second one would have a second effect
    ALWAYS = "always"  # a second request has no further effect


class RetryOptions(Struct, frozen=True):
    """How long a call may take, and whether it is repeated at all."""

    timeout_s: float = 30.0  # for all attempts and pauses together
    attempt_timeout_s: float = 10.0
    retry: bool = True

    def __post_init__(self) -> None:
        if not (self.timeout_s > 0 and self.attempt_timeout_s > 0):
            raise ValueError("a timeout must be more than 0 seconds")


class RetryState:
    """The attempts of one call so far."""

    def __init__(self, rule: RetryRule, options: RetryOptions, *, now: float) -> None:
        self._rule = rule if options.retry else RetryRule.NEVER
        self._attempt_timeout_s = options.attempt_timeout_s
        self._deadline = now + options.timeout_s
        self._failures = 0
        self.maybe_done = False  # an attempt failed that the server may have carried out

    def attempt_deadline(self, now: float) -> float:
        """When the attempt that starts now must have ended."""
        return min(now + self._attempt_timeout_s, self._deadline)

    def pause_s(self, error: HomingClientError, *, now: float, random_fraction: float) -> float:
        """How long to wait before the next attempt; raises the error if there is to be none."""
        if not self._may_repeat(error):
            raise error
        longest = min(PAUSE_FIRST_S * (1 << min(self._failures, _DOUBLINGS_MAX)), PAUSE_MAX_S)
        pause = longest * (1 + random_fraction) / 2  # Jitter keeps callers from retrying in step.
        if isinstance(error, Unavailable) and error.retry_after_s is not None:
            pause += error.retry_after_s
        if now + pause >= self._deadline:
            raise error
        self._failures += 1
        self.maybe_done = self.maybe_done or _maybe_done(error)
        return pause

    def _may_repeat(self, error: HomingClientError) -> bool:
        if not isinstance(error, Unreachable | Unavailable) or self._rule is RetryRule.NEVER:
            return False
        return self._rule is RetryRule.ALWAYS or not _maybe_done(error)


def _maybe_done(error: HomingClientError) -> bool:
    """Whether the server may have carried out the request although it failed."""
    return error.maybe_done if isinstance(error, Unreachable) else True
