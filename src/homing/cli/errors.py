"""What a failed command prints on standard error, and its exit code.

0 success · 1 the server refused, or a check failed · 2 wrong usage or settings · 3 no server.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from homing.errors import BadSetting, DataInUse, HomingError, StoreUnavailable

if TYPE_CHECKING:
    from homing_client import Refused

REFUSED = 1
USAGE = 2
NO_SERVER = 3
INTERRUPTED = 130


class Failed(HomingError):
    """The command failed."""

    code = "failed"


class NoServer(HomingError):
    """No server responds."""

    code = "no_server"


class Usage(HomingError):
    """The command line is wrong."""

    code = "usage"


def print_error(error: Exception) -> int | None:
    """Print the error in one line and return the exit code; None for an unexpected error."""
    explained = explain(error)
    if explained is None:
        return None
    sentence, code = explained
    print(f"homing: {sentence}", file=sys.stderr)
    return code


def explain(error: Exception) -> tuple[str, int] | None:
    """The message and the exit code; None for an unexpected error."""
    match error:
        case Failed():
            return error.detail, REFUSED
        case Usage():
            return error.detail, USAGE
        case NoServer():
            return error.detail, NO_SERVER
        case BadSetting() | DataInUse():
            return str(error), USAGE
        case StoreUnavailable(detail=str(detail)) if detail:
            return detail, REFUSED
        case HomingError():
            return str(error), REFUSED
        case OSError(strerror=str(reason)) if error.errno is not None:
            place = f"{error.filename}: " if error.filename is not None else ""
            return f"{place}{reason}.", REFUSED
        case _:
            return _explain_client_error(error)


def _explain_client_error(error: Exception) -> tuple[str, int] | None:
    from homing_client import errors

    match error:
        case errors.NotTrusted() | errors.Unreachable():
            return f"{error} Is the server still running?", NO_SERVER
        case errors.BadResponse():
            return f"{error} Another program may listen there: check --server.", NO_SERVER
        case errors.NotAuthorized(status=403):
            return _refusal(error), REFUSED
        case errors.NotAuthorized():
            return (
                "The server does not accept the key. The key belongs to another server, was "
                "changed or revoked, or has expired: "
                "give the right one with --key or HOMING_ADMIN_KEY.",
                REFUSED,
            )
        case errors.Unavailable():
            return f"{_refusal(error)} Try again later; `homing doctor` shows more.", REFUSED
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
