"""Reads HTTP responses: bytes of a receiver in, a status code or a failure out, without I/O.

A receiver may send anything, so everything that is kept of a response is bounded: a head of 64 KiB
(interim responses included), 16 KiB of body, 128 KiB of bytes in all (chunk framing and trailers
are not body), 20 interim responses. The status line and headers decide; once they have arrived, the
code never changes, and the rest only decides whether the connection may be used again.

llhttp does the parsing, strictly: a response with both Content-Length and Transfer-Encoding, with
folded headers or with two lengths is malformed. One leniency is granted: lines that end in a bare
LF. Receivers written by hand send them, every other client accepts them, and no second response is
ever read from a doubtful connection, so that nothing can be smuggled.

Receivers send the same response again and again, most of them byte for byte within a second. A
whole response that arrived in one piece is cached for a while together with its parsed parts, and
not parsed again.
"""

from __future__ import annotations

import re

import httptools
from msgspec import Struct

from homing.model import Failure

HEAD_BYTES_MAX = 64 * 1024
HEADERS_KEPT_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 16 * 1024
WIRE_BYTES_MAX = 128 * 1024
EXCERPT_BYTES_MAX = 1024
INTERIM_MAX = 20
RETRY_AFTER_CHARS_MAX = 128
SEEN_MAX = 256
SEEN_BYTES_MAX = 1024

_KEEP_ALIVE_TIMEOUT = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*\"?([0-9]{1,9})", re.IGNORECASE)


class Received(Struct, frozen=True, gc=False):
    """What was read of a response: a status code, or why it is not a response."""

    code: int | None
    failure: Failure | None
    detail: str
    headers: bytes  # raw lines, as many as fit into the limit
    excerpt: bytes
    retry_after: str | None
    keep_alive_s: int | None  # how long the receiver keeps an idle connection
    reusable: bool  # the connection may carry another request


_seen: dict[bytes, Received] = {}  # only responses after which the connection is reusable


class ResponseReader:
    """Reads the responses of one connection, one after the other."""

    __slots__ = (
        "_body_bytes",
        "_body_kept_max",
        "_complete",
        "_header_lines",
        "_headers_bytes",
        "_interim",
        "_parser",
        "_wire_bytes",
        "code",
        "detail",
        "excerpt",
        "failure",
        "keep_alive_s",
        "retry_after",
        "reusable",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._reset()

    def next(self) -> None:
        """Prepare for the response to the next request."""
        if self._wire_bytes:  # A cached response leaves no trace.
            self._reset()

    def keep(self, bytes_max: int) -> None:
        """Keep more than an excerpt of the next response's body."""
        self._body_kept_max = bytes_max

    def _reset(self) -> None:
        self._body_kept_max = EXCERPT_BYTES_MAX
        self.code: int | None = None
        self.failure: Failure | None = None
        self.detail = ""
        self.excerpt = b""
        self.retry_after: str | None = None
        self.keep_alive_s: int | None = None  # how long the receiver keeps an idle connection
        self.reusable = False
        self._complete = False
        self._header_lines: list[bytes] = []
        self._headers_bytes = 0
        self._body_bytes = 0
        self._wire_bytes = 0
        self._interim = 0

    def close(self) -> None:
        """Break the reference cycle with the parser; nothing may be fed afterwards."""
        del self._parser

    @property
    def begun(self) -> bool:
        """Whether any byte of a response has arrived."""
        return self._wire_bytes > 0

    def received(self) -> Received:
        """What was read so far."""
        return Received(
            self.code if self.failure is None else None,
            self.failure,
            self.detail,
            b"".join(self._header_lines),
            self.excerpt,
            self.retry_after,
            self.keep_alive_s,
            self.reusable,
        )

    def feed(self, data: bytes) -> Received | None:
        """Read some bytes; returns the response when no more bytes of it are needed."""
        if self._wire_bytes == 0 and (seen := _seen.get(data)) is not None:
            return seen
        if not self._parse(data):
            return None
        received = self.received()
        whole = self._wire_bytes == len(data) and not self._interim
        if whole and self.reusable and len(data) <= SEEN_BYTES_MAX:
            if len(_seen) >= SEEN_MAX:
                _seen.clear()
            _seen[bytes(data)] = received
        return received

    def _parse(self, data: bytes) -> bool:
        """True when there is a code or a failure, and no more bytes are needed."""
        if self._wire_bytes == 0 and data[0] not in b"H\r\n":
            return self._fail(Failure.BAD_RESPONSE, "not an HTTP response")
        if self.code is None and self._wire_bytes + len(data) > HEAD_BYTES_MAX:
            return self._feed_large(data)
        self._wire_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            return self._malformed(error)
        if self._complete or self.failure is not None:
            return True
        return self.code is not None and (
            self._body_bytes >= max(BODY_BYTES_MAX, self._body_kept_max)
            or self._wire_bytes >= WIRE_BYTES_MAX
        )

    def _feed_large(self, data: bytes) -> bool:
        """Read bytes of which only the first may belong to the head, which has a limit."""
        room = HEAD_BYTES_MAX - self._wire_bytes
        if room > 0 and self._parse(data[:room]):
            # The rest is body, or a second response: neither is read.
            self.reusable = False
            return True
        if self.code is None:
            return self._fail(Failure.RESPONSE_TOO_LARGE, "the head of the response is over 64 KiB")
        return self._parse(data[room:])

    def _malformed(self, error: Exception) -> bool:
        self.reusable = False
        if self.code is not None or self.failure is not None:
            return True
        if isinstance(error, httptools.HttpParserCallbackError):
            return self._fail(Failure.SENDER_FAULT, "unexpected error while reading the response")
        return self._fail(Failure.BAD_RESPONSE, f"not an HTTP response: {error}")

    def _fail(self, failure: Failure, detail: str) -> bool:
        self.failure = failure
        self.detail = detail
        self.reusable = False
        return True

    # --- called by the parser ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self.reusable = False  # A second response without a request.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.code is not None:
            return  # A trailer, or a header of a second response.
        line = b"%b: %b\r\n" % (name, value)
        self._headers_bytes += len(line)
        if self._headers_bytes <= HEADERS_KEPT_BYTES_MAX:
            self._header_lines.append(line)
        match len(name):
            case 11 if self.retry_after is None and name.lower() == b"retry-after":
                self.retry_after = value.decode("latin-1").strip()[:RETRY_AFTER_CHARS_MAX]
            case 10 if name.lower() == b"keep-alive":
                found = _KEEP_ALIVE_TIMEOUT.search(value)
                if found is not None:
                    self.keep_alive_s = int(found[1])

    def on_headers_complete(self) -> None:
        if self.code is not None or self.failure is not None:
            return
        code = self._parser.get_status_code()
        version = self._parser.get_http_version()
        if version not in {"1.1", "1.0"}:
            self._fail(Failure.BAD_RESPONSE, f"the response is HTTP {version}")
        elif code >= 200:
            self.code = code
        elif code < 100 or code == 101:
            self._fail(Failure.BAD_RESPONSE, f"the response has status {code:03}")
        else:
            self._skip_interim()

    def _skip_interim(self) -> None:
        self._interim += 1
        if self._interim > INTERIM_MAX:
            self._fail(Failure.BAD_RESPONSE, f"over {INTERIM_MAX} interim responses")
        self._header_lines.clear()
        self._headers_bytes = 0
        self.retry_after = self.keep_alive_s = None

    def on_body(self, body: bytes) -> None:
        if self._complete:
            return
        room = self._body_kept_max - len(self.excerpt)
        if room > 0 and self.code is not None:
            self.excerpt += body[:room]
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.code is not None and not self._complete:
            self._complete = True
            self.reusable = self._parser.should_keep_alive()
