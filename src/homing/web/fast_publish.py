"""The fast publish path: a request that arrives in one read gets its response without a task.

Uvicorn creates a scope, a cycle, an event and a task for each request, which was a quarter of the
cost of a single publish. A plain request needs none of them: a POST to ``/v1/events`` in HTTP/1.1,
complete in the bytes just read, with no other request in progress on its connection, with a cached
key and valid events. Every other request takes the normal path, where bad requests are refused.
Here only the engine refuses (a conflict, too many deliveries, no store). To uvicorn, a request on
the fast path looks like a cycle that is not yet complete, so pipelining, keep-alive and shutdown
stay uvicorn's job.

A publisher usually sends the same head again; only its content-length changes. The last head that
took the fast path is kept with its connection; a head that equals it is not parsed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from homing.app.publishing import PublishResult
from homing.errors import HomingError
from homing.web.api.publish import Plain, published
from homing.web.asgi import PUBLISH_PATH, Front
from homing.web.connections import VERIFIED
from homing.web.problems import refusal
from homing.web.response import response_bytes
from homing.web.write_coalescing import CoalescingProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_PATH = PUBLISH_PATH.encode()
_ACCEPTED = (
    b"HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\n"
    b"x-content-type-options: nosniff\r\ncontent-length: %d\r\n"
)
_CLOSE = b"connection: close\r\n"
_LENGTH = b"\r\ncontent-length:"
_DIGITS_MAX = 7  # of a content-length on the fast path


class _Post:
    """One request on the fast path, with the attributes that uvicorn expects of a cycle."""

    __slots__ = ("_protocol", "disconnected", "keep_alive", "response_complete")
    scope: ClassVar = {VERIFIED: True}  # Only requests with a cached key take the fast path.

    def __init__(self, protocol: FastPublishProtocol, *, keep_alive: bool) -> None:
        self._protocol = protocol
        self.keep_alive = keep_alive
        self.response_complete = self.disconnected = False

    @property
    def message_event(self) -> _Post:
        return self

    def set(self) -> None:
        """Does nothing: no task waits for more of the request."""

    def respond(self, result: PublishResult) -> None:
        if self.disconnected:
            return
        if isinstance(result, HomingError):
            response = response_bytes(refusal(result, "POST", PUBLISH_PATH))
            head, _, body = response.partition(b"\r\n\r\n")
            head += b"\r\n"
        else:
            body = published(result)
            head = _ACCEPTED % len(body)
        if _CLOSE in head:
            self.keep_alive = False
        elif not self.keep_alive:
            head += _CLOSE
        protocol = self._protocol
        protocol.transport.write(b"%b\r\n%b" % (head, body))
        self.response_complete = True
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()


class _Head(NamedTuple):
    """A head that took the fast path: the bytes before and after its content-length, its values."""

    before: bytes
    after: bytes
    plain: Plain


def _head_of(data: bytes, body: bytes, plain: Plain) -> _Head | None:
    """The head of a request, if the request is all of ``data`` and has a content-length."""
    head = data[: len(data) - len(body)]
    lower = head.lower()
    name_at = lower.find(_LENGTH)
    if name_at < 0 or lower.count(_LENGTH) > 1 or not head.endswith(b"\r\n\r\n"):
        return None
    value_at = name_at + len(_LENGTH)
    end = head.find(b"\r", value_at)
    digits = head[value_at:end].strip(b" ")
    if not digits.isdigit() or int(digits) != len(body):
        return None
    digits_at = head.index(digits, value_at)
    return _Head(head[:digits_at], head[digits_at + len(digits) :], plain)


class FastPublishProtocol(CoalescingProtocol):
    """The protocol that uvicorn creates for each connection."""

    _parts: list[bytes] | None = None  # the body of a request that may take the fast path
    _head: _Head | None = None  # the last head that took the fast path
    _between = True  # between two requests: the parser is not inside one
    _data = b""  # the bytes being read

    def data_received(self, data: bytes) -> None:
        if self._head is not None and self._publish_again(data, self._head):
            return
        self._data = data
        super().data_received(data)
        self._data = b""
        parts = self._parts
        if parts is not None:  # The request is incomplete: it takes the normal path.
            self._parts = None
            if not self.transport.is_closing():
                self._normal_path(parts)

    def _publish_again(self, data: bytes, head: _Head) -> bool:
        """Publishes if ``data`` is the stored head and a complete body; False if it is not."""
        digits_at = len(head.before)
        end = data.find(b"\r", digits_at, digits_at + _DIGITS_MAX + 1)
        digits, body_at = data[digits_at:end], end + len(head.after)
        if (
            end < 0
            or not digits.isdigit()
            or len(data) - body_at != int(digits)
            or not data.startswith(head.before)
            or not data.startswith(head.after, end)
            or not self._idle()
            or not self._between
            or self.transport.is_closing()
        ):
            return False
        return self._publish_fast(head.plain, data[body_at:], keep_alive=True)

    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_message_begin(self) -> None:
        self._between = False
        self.begin_head()
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        parser = self.parser
        if (
            self.url == _PATH
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and self._idle()
            and not self.expect_100_continue
            and not parser.should_upgrade()
        ):
            self.end_head()
            self._parts = []
        else:
            self._normal_path([])

    def on_body(self, body: bytes) -> None:
        if self._parts is None:
            super().on_body(body)
        else:
            self.stalled_bytes = 0
            self.add_part(self._parts, body)

    def on_message_complete(self) -> None:
        parts, self._parts = self._parts, None
        self._between = True
        if parts is not None:
            body, keep_alive = b"".join(parts), self.parser.should_keep_alive()
            plain = Plain.of(self.headers)
            if plain is not None and self._publish_fast(plain, body, keep_alive=keep_alive):
                if keep_alive:
                    self._head = _head_of(self._data, body, plain)
                return
            self._normal_path(parts)
        super().on_message_complete()

    def _publish_fast(self, plain: Plain, body: bytes, *, keep_alive: bool) -> bool:
        publish = cast("Front", self.app).publish
        drafts = publish.plain_drafts(plain, body)
        if drafts is None:
            return False
        if self.server_state.default_headers:  # The server drains: every response closes.
            keep_alive = False
        post = _Post(self, keep_alive=keep_alive)
        self.cycle = cast("RequestResponseCycle", post)
        try:
            publish.publish_then(drafts, post.respond)
        except HomingError as error:
            post.respond(error)
        return True

    def _normal_path(self, parts: list[bytes]) -> None:
        """Continues on uvicorn's own path, with the bytes that have arrived so far."""
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expected
        self.headers = headers
        cast("dict[str, Any]", self.scope)["headers"] = headers
        super().on_headers_complete()
        if parts:
            super().on_body(b"".join(parts))
            self._flush_body()
