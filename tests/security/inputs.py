"""Everything that reads input, and the input that makes it work hardest: one line for each.

``make test`` counts the steps of each line at sizes that double; ``make security`` measures its
CPU time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from homing.policy.admission import check_events
from homing.web.api.publish import read_drafts
from homing.web.body import decode
from homing.web.dashboard.cookies import read_cookie
from homing.web.dashboard.forms import read_form
from homing.web.query import Query
from homing.web.schemas import SubscriptionIn

EVENT = b'{"type":"a.b","data":1}'


class Input(NamedTuple):
    """A reader, and a function that makes its input of about so many parts."""

    name: str
    read: Callable[[Any], object]
    make: Callable[[int], Any]
    size: int = 200

    def of(self, size: int) -> Callable[[], object]:
        """The reader with an input of this size, made beforehand."""
        given = self.make(size)
        return lambda: self.read(given)


def _names(count: int, *more: bytes) -> bytes:
    return b"{" + b",".join([b'"n%d":"1"' % n for n in range(count)] + list(more)) + b"}"


def _published(body: bytes) -> None:
    check_events(read_drafts(body, "default", lines=not body.startswith((b"[", b"{"))))


def _command(body: bytes) -> object:
    return decode(
        b'{"url":"https://a.example","types":["*"],"headers":' + body + b"}", SubscriptionIn
    )


INPUTS = (
    Input("cookies", lambda it: read_cookie(it, "z"), lambda n: b'a="\\"; ' * n),
    Input("a quoted cookie", lambda it: read_cookie(it, "a"), lambda n: b'a="' + b"\\" * n),
    Input("forms", read_form, lambda n: b"a=" + b"%41%" * n),
    Input("query strings", lambda it: Query(it, {"a"}), lambda n: b"a=" + b"%41" * n),
    Input("a name twice", _command, lambda n: _names(n, b'"n0":"1"')),
    Input("a name twice, at the end", _command, lambda n: _names(n, b'"z":"1"', b'"z":"2"')),
    Input("names of an object", _command, _names),
    Input("a batch", _published, lambda n: b"[" + b",".join([EVENT] * n) + b"]"),
    Input(
        "a batch in which all is wrong", _published, lambda n: b"[" + b",".join([b"1"] * n) + b"]"
    ),
    Input("lines", _published, lambda n: b"\n".join([EVENT] * n)),
    Input("lines that are wrong", _published, lambda n: b" 1\n" * n),
)
