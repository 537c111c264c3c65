"""What goes wrong, as a newcomer would like to read it: what happened, what to do, an exit code.

0 all is well · 1 the server refused, or a check failed · 2 wrong usage or settings · 3 no server.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from homing.errors import BadSetting, DataInUse, HomingError

if TYPE_CHECKING:
    from homing.client.errors import Refused

REFUSED = 1
USAGE = 2
NO_SERVER = 3
INTERRUPTED = 130


class Failed(HomingError):
    """It did not work."""

    code = "failed"


class NoServer(HomingError):
    """No server answers."""

    code = "no_server"


class Usage(HomingError):
    """The command was given wrongly."""

    code = "usage"


def exit_code(error: Exception) -> int | None:
    """Say what is wrong in one line on standard error; None for what nobody expected."""
    said = explained(error)
    if said is None:
        return None
    sentence, code = said
    print(f"homing: {sentence}", file=sys.stderr)
    return code


def explained(error: Exception) -> tuple[str, int] | None:
    """The sentence and the exit code."""
    match error:
        case Failed():
            return error.detail, REFUSED
        case Usage():
            return error.detail, USAGE
        case NoServer():
            return error.detail, NO_SERVER
        case BadSetting() | DataInUse():
            return str(error), USAGE
        case HomingError():
            return str(error), REFUSED
        case _:
            return _answered(error)


def _answered(error: Exception) -> tuple[str, int] | None:
    """The same for what a server answered, or did not."""
    from homing.client import errors

    match error:
        case errors.NotTrusted() | errors.Unreachable():
            return f"{error} Is the server still running?", NO_SERVER
        case errors.BadAnswer():
            return f"{error} Something else may listen there: look at --server.", NO_SERVER
        case errors.NotAuthorized(status=403):
            return _refusal(error), REFUSED
        case errors.NotAuthorized():
            return (
                "The server does not accept the key. It belongs to another server, or was "
                "changed, revoked or has expired: "
                "give the right one with --key or HOMING_ADMIN_KEY.",
                REFUSED,
            )
        case errors.Unavailable():
            return f"{_refusal(error)} Try again in a moment; `homing doctor` tells more.", REFUSED
        case errors.Refused():
            return _refusal(error), REFUSED
        case errors.HomingClientError():
            return str(error), REFUSED
        case _:
            return None


def _refusal(error: Refused) -> str:
    problem = error.problem
    if problem.problems:
        fields = "; ".join(f"{one.field} {one.reason}".strip() for one in problem.problems)
        return f"{problem.title.rstrip('.')}: {fields}."
    return " ".join(part for part in (problem.title, problem.detail) if part) or str(error)
