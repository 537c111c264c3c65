"""Errors as problem documents (RFC 9457), the format of every refusal."""

from __future__ import annotations

from collections.abc import Iterable

import structlog
from msgspec import Struct
from msgspec.json import encode

from homing.errors import (
    Busy,
    FieldProblem,
    HomingError,
    NotFound,
    StoreUnavailable,
    TenantMoved,
    TooMany,
    Unavailable,
)
from homing.languages.language import Language
from homing.languages.sentences import say
from homing.web.response import Headers, Response

CONTENT_TYPE = b"application/problem+json"
TYPE_PREFIX = "urn:homing:error:"
_CLOSE = (b"connection", b"close")  # because the rest of the body is not read

_log = structlog.get_logger("homing.web")


class NoSuchPath(NotFound):
    """There is no page or operation at this path."""

    code = "no_such_path"


class MethodNotAllowed(HomingError):
    """This path does not support this method."""

    code = "method_not_allowed"
    http_status = 405

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(_advice(allowed))
        self.allowed = allowed


def _advice(allowed: tuple[str, ...]) -> str:
    match allowed:
        case (one,):
            return say("Use {method}.", method=one)
        case (one, other):
            return say("Use {one} or {other}.", one=one, other=other)
        case _:  # Only paths of the API have more.
            return f"Use {' or '.join(allowed)}."


class Unexpected(HomingError):
    """The server failed unexpectedly."""

    code = "unexpected"
    http_status = 500


class FieldReason(Struct, frozen=True):
    """A wrong field and the reason."""

    field: str
    reason: str


class Problem(Struct, frozen=True):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    problems: list[FieldReason]


def problem_response(error: HomingError) -> Response:
    """The response to an error."""
    document = Problem(
        type=TYPE_PREFIX + error.code,
        title=error.title,
        status=error.http_status,
        detail=str(error.detail) or _first(error.problems),
        code=error.code,
        problems=[FieldReason(problem.field, str(problem.reason)) for problem in error.problems],
    )
    return Response(error.http_status, encode(document), CONTENT_TYPE, refusal_headers(error))


def refusal(error: HomingError, method: str, path: str) -> Response:
    """The response to an error; an error without its own HTTP status is logged as unexpected."""
    if error.http_status == 500:
        return unexpected_response(error, method=method, path=path)
    return problem_response(error)


def unexpected_response(error: Exception, *, method: str, path: str) -> Response:
    """Logs the error; the response says only that the request failed."""
    log_unexpected(error, method=method, path=path)
    return problem_response(Unexpected("See the server log for details."))


def log_unexpected(error: Exception, *, method: str, path: str) -> None:
    _log.error("request failed", method=method, path=path, exc_info=error)


def refusal_headers(error: HomingError) -> Headers:
    """The headers that an error needs: Retry-After, Allow, WWW-Authenticate or Connection."""
    if isinstance(error, StoreUnavailable):
        return ((b"retry-after", b"2"),)
    if isinstance(error, Busy):
        return ((b"retry-after", b"1"), _CLOSE)
    if isinstance(error, TenantMoved):
        return ((b"retry-after", b"30"),)
    if isinstance(error, Unavailable):
        return ((b"retry-after", b"1"),)
    if isinstance(error, TooMany):
        return ((b"retry-after", b"%d" % max(-(-error.after_ms // 1000), 1)),)
    if isinstance(error, MethodNotAllowed):
        methods = (*error.allowed, "HEAD") if "GET" in error.allowed else error.allowed
        return ((b"allow", ", ".join(methods).encode()),)
    if error.http_status == 401:
        return ((b"www-authenticate", b'Bearer realm="homing"'),)
    if error.http_status in {408, 413, 414, 431}:
        return (_CLOSE,)
    return ()


def reasons_text(problems: Iterable[FieldProblem], language: Language) -> str:
    """The problems of fields as sentences in a person's language; the same on every page."""
    return " ".join(
        language.text(say("{field} {reason}.", field=it.field, reason=it.reason)) for it in problems
    )


def _first(problems: tuple[FieldProblem, ...]) -> str:
    if not problems:
        return ""
    field, reason = problems[0]
    more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{field} {reason}{more}."
