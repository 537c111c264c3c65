"""The keys and refusals of the Workfront-compatible API, with Adobe's headers and statuses."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs
from msgspec.json import decode, encode

from homing.errors import HomingError, Invalid, NotAuthorized
from homing.web.operation import AuthScheme
from homing.web.problems import Problem, problem_response
from homing.web.response import Response
from homing.web.workfront.schemas import Fault, WorkfrontProblem

_HEADERS = (b"sessionid", b"x-user-token", b"authorization")
_SCHEME = b"bearer "
_EMPTY_KEY = "The apiKey provided was empty or deemed invalid."


def key_of(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key of the first header that has one, in the form of ``Authorization: Bearer``."""
    for name in _HEADERS:
        value = headers.get(name, b"").strip()
        if value:
            bare = value[7:].strip() if value[:7].lower() == _SCHEME else value
            return b"Bearer " + bare
    return None


def refusal(error: HomingError) -> Response:
    """The response to an error: 400 for a wrong field, with the reason where clients expect it."""
    response = problem_response(error)
    problem = decode(response.body, type=Problem)
    status = 400 if isinstance(error, Invalid) else response.status
    message = problem.detail or problem.title
    if isinstance(error, NotAuthorized):
        message = _EMPTY_KEY
    fields = {**structs.asdict(problem), "status": status}
    document = WorkfrontProblem(**fields, error=Fault(type(error).__name__, message))
    return Response(status, encode(document), response.content_type, response.headers)


AUTH_SCHEME = AuthScheme(
    key=key_of, refusal=refusal, problem=WorkfrontProblem, key_headers=("sessionID", "X-User-Token")
)
