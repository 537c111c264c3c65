"""How the Workfront door takes keys and refuses: Adobe's headers, Adobe's statuses."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs
from msgspec.json import decode, encode

from homing.errors import HomingError, Invalid, NotAuthorized
from homing.web.answer import Answer
from homing.web.operation import Manners
from homing.web.problems import Problem, problem_answer
from homing.web.workfront.schemas import DoorProblem, Fault

_HEADERS = (b"sessionid", b"x-user-token", b"authorization")
_SCHEME = b"bearer "
_EMPTY_KEY = "The apiKey provided was empty or deemed invalid."


def key_of(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key as ``Authorization: Bearer`` would carry it; the first header that has one counts."""
    for name in _HEADERS:
        value = headers.get(name, b"").strip()
        if value:
            bare = value[7:].strip() if value[:7].lower() == _SCHEME else value
            return b"Bearer " + bare
    return None


def refusal(error: HomingError) -> Answer:
    """A wrong field is 400 here; and the reason also stands where Workfront's clients look."""
    answer = problem_answer(error)
    problem = decode(answer.body, type=Problem)
    status = 400 if isinstance(error, Invalid) else answer.status
    message = problem.detail or problem.title
    if isinstance(error, NotAuthorized):
        message = _EMPTY_KEY
    fields = {**structs.asdict(problem), "status": status}
    document = DoorProblem(**fields, error=Fault(type(error).__name__, message))
    return Answer(status, encode(document), answer.content_type, answer.headers)


MANNERS = Manners(
    key=key_of, refusal=refusal, problem=DoorProblem, key_headers=("sessionID", "X-User-Token")
)
