"""The errors of publishers and receivers: one root; a class's docstring is its message.

HomingClientError
├── Unreachable        no response; ``maybe_done`` says whether the server may have done it
│   └── TimedOut       no response in time
├── NotTrusted         the server's certificate is not trusted
├── BadResponse        the response is not one that Homing sends
├── Refused            the server responded with a problem document
│   ├── Invalid             400, 422  ``problems`` names the fields
│   ├── NotAuthorized       401, 403
│   ├── NotFound            404
│   ├── Conflict            409       ``code`` says which one
│   ├── Gone                410
│   ├── TooLarge            413
│   └── Unavailable         429, 502, 503, 504
├── NotVerified        a received request was not sent by Homing as it is: respond with 401
│   ├── HeaderMissing
│   ├── SignatureWrong
│   └── TimestampOutside
├── BadSecret          the receiver's own secret or key cannot be read: a configuration error
├── KeysUnavailable    the public keys cannot be fetched: respond with 503
├── CryptographyMissing  Ed25519 needs the package cryptography
└── StillHandling      the same request is being handled right now: respond with 503
"""

from __future__ import annotations

from msgspec import Struct


class FieldProblem(Struct, frozen=True):
    """Which field is wrong, and why."""

    field: str = ""
    reason: str = ""


class Problem(Struct, frozen=True):
    """A problem document (RFC 9457); fields that were not sent have their defaults."""

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    code: str = ""
    problems: tuple[FieldProblem, ...] = ()


class HomingClientError(Exception):
    """Something went wrong."""

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        super().__init__(f"{self._begins()} {detail}".strip())

    def _begins(self) -> str:
        """The beginning of the message: what is true of every error of this class."""
        return (type(self).__doc__ or "").strip()


# --- no response ----------------------------------------------------------------------------


class Unreachable(HomingClientError):
    """The server could not be reached."""

    def __init__(self, detail: str = "", *, maybe_done: bool) -> None:
        super().__init__(detail)
        self.maybe_done = maybe_done


class TimedOut(Unreachable):
    """The server did not respond in time."""


class NotTrusted(HomingClientError):
    """The server's certificate is not trusted."""


class BadResponse(HomingClientError):
    """The response is not from Homing."""


# --- a refusal ------------------------------------------------------------------------------


class Refused(HomingClientError):
    """The server refused the request."""

    def __init__(
        self, status: int, problem: Problem, *, retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.problem = problem
        self.code = problem.code
        self.problems = problem.problems
        self.retry_after_s = retry_after_s
        said = _sentence(problem) or (type(self).__doc__ or "").strip()
        super().__init__(
            f"{status} {problem.code}: {said}" if problem.code else f"{status}: {said}"
        )

    def _begins(self) -> str:
        return ""  # The server has said it.


class Invalid(Refused):
    """A field of the request is wrong."""


class NotAuthorized(Refused):
    """The key is not accepted."""


class NotFound(Refused):
    """The object does not exist."""


class Conflict(Refused):
    """The request conflicts with what exists."""


class Gone(Refused):
    """The object is past retention."""


class TooLarge(Refused):
    """The request is too large."""


class Unavailable(Refused):
    """The server cannot do this right now."""


_BY_STATUS: dict[int, type[Refused]] = {
    400: Invalid,
    401: NotAuthorized,
    403: NotAuthorized,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def refusal(status: int, problem: Problem, *, retry_after_s: float | None) -> Refused:
    """The error class for this status, as an instance."""
    return _BY_STATUS.get(status, Refused)(status, problem, retry_after_s=retry_after_s)


def _sentence(problem: Problem) -> str:
    """The problem document in one line; every wrong field is named."""
    parts = [problem.title]
    if problem.problems:
        parts += [f"{one.field} {one.reason}." for one in problem.problems]
    else:
        parts.append(problem.detail)
    return " ".join(part for part in parts if part)


# --- receiving ------------------------------------------------------------------------------


class NotVerified(HomingClientError):
    """The request is not verified."""


class HeaderMissing(NotVerified):
    """A header is missing or cannot be read."""


class SignatureWrong(NotVerified):
    """No signature matches."""


class TimestampOutside(NotVerified):
    """The signature matches, but its time is outside the tolerance."""


class BadSecret(HomingClientError):
    """The secret cannot be read."""


class KeysUnavailable(HomingClientError):
    """The public keys cannot be fetched."""


class CryptographyMissing(HomingClientError):
    """Ed25519 signatures need the package cryptography: pip install "homing-client[ed25519]"."""


class StillHandling(HomingClientError):
    """The same request is being handled right now."""
