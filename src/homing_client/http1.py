"""HTTP/1.1 for a client, without I/O: a request as bytes, a response from bytes.

Why not a library: a publisher should be able to add the client to any application without a
conflict of versions, so it needs only the standard library and msgspec. Why not ``http.client``: it
reads from a blocking socket only, so the asynchronous client would need a second implementation,
and its timeouts hold for each read instead of for the whole response. This one reader serves both
clients and is tested once. It reads every form of body that a server or a proxy may send:
content-length, chunks, or everything until the connection ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from urllib.parse import urlsplit

from msgspec import Struct

from homing_client.errors import BadResponse
from homing_client.version import __version__

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 256 * 1024 * 1024
_CHUNK_LINE_MAX = 1024

Steps = Generator[None, None, bytes]  # yields while it needs more bytes, then returns its own


class ServerAddress(Struct, frozen=True):
    """Where the server is, and the header lines that every request to it carries."""

    tls: bool
    host: str
    port: int
    prefix: str  # of every path; "" or "/like/this"
    header_block: str

    def __repr__(self) -> str:
        return f"ServerAddress({self.host}:{self.port}{self.prefix})"


def read_server(url: str, key: str) -> ServerAddress:
    """The server at a URL like ``https://homing.example``; raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL must begin with http:// or https:// and name a host")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("the URL must have no user, query or fragment")
    if not url.isascii() or any(char <= " " for char in url):
        raise ValueError("the URL must consist of visible ASCII characters")
    if not key or not key.isascii() or any(char <= " " for char in key):
        raise ValueError("the key must consist of visible ASCII characters")
    tls = parts.scheme == "https"
    lines = (
        f"host: {parts.netloc}",
        f"user-agent: homing-client/{__version__}",
        f"authorization: Bearer {key}",
        "accept: application/json",
    )
    return ServerAddress(
        tls=tls,
        host=parts.hostname,
        port=parts.port or (443 if tls else 80),
        prefix=parts.path.rstrip("/"),
        header_block="\r\n".join(lines) + "\r\n",
    )


def write_request(
    server: ServerAddress,
    method: str,
    path: str,
    *,
    body: bytes,
    content_type: str,
    trace: str = "",
) -> bytes:
    """The whole request; ``trace`` is its traceparent."""
    head = f"{method} {server.prefix}{path} HTTP/1.1\r\n{server.header_block}"
    if body:
        head += f"content-type: {content_type}\r\n"
    if trace:
        head += f"traceparent: {trace}\r\n"
    if body or method != "GET":
        head += f"content-length: {len(body)}\r\n"
    return f"{head}\r\n".encode("ascii") + body


class Response(Struct, frozen=True):
    """A response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class ResponseReader:
    """Takes bytes as they arrive and has the response when it is complete.

    The parser is a generator that yields where it needs more bytes: the code reads like the
    protocol, and the owner of the socket decides how to wait.
    """

    def __init__(self) -> None:
        self.response: Response | None = None
        self.keep_alive = False  # whether another request may follow on this connection
        self._buffer = bytearray()
        self._ended = False
        self._steps = self._read()
        next(self._steps)

    def feed(self, data: bytes) -> None:
        """Take bytes, b"" for the end; raises BadResponse, or EOFError for a cut-off response."""
        self._buffer += data
        self._ended = not data
        next(self._steps, None)

    def _read(self) -> Iterator[None]:
        while True:
            status, headers, keep = _read_head((yield from self._until(b"\r\n\r\n")))
            if status >= 200:
                break
        coding = headers.get("transfer-encoding", "").lower()
        if status in (204, 304):
            body = b""
        elif coding == "chunked":
            body = yield from self._chunks()
        elif coding:
            raise BadResponse(f"It has the transfer-encoding {coding[:32]!r}.")
        elif (length := headers.get("content-length")) is not None:
            body = yield from self._exactly(_read_length(length))
        else:
            body, keep = (yield from self._rest()), False
        self.keep_alive = keep and not self._buffer and not self._ended
        self.response = Response(status, headers, body)

    def _more(self) -> Iterator[None]:
        if self._ended:
            raise EOFError
        yield

    def _until(self, mark: bytes, limit: int = HEAD_BYTES_MAX) -> Steps:
        searched = 0
        while (at := self._buffer.find(mark, searched)) < 0:
            if len(self._buffer) > limit:
                raise BadResponse("Its head is too long.")
            searched = max(len(self._buffer) - len(mark) + 1, 0)
            yield from self._more()
        return self._cut(at, skip=len(mark))

    def _exactly(self, count: int) -> Steps:
        if count > BODY_BYTES_MAX:
            raise BadResponse("Its body is too long.")
        while len(self._buffer) < count:
            yield from self._more()
        return self._cut(count)

    def _rest(self) -> Steps:
        while not self._ended:
            if len(self._buffer) > BODY_BYTES_MAX:
                raise BadResponse("Its body is too long.")
            yield
        return self._cut(len(self._buffer))

    def _chunks(self) -> Steps:
        body = bytearray()
        while True:
            line = yield from self._until(b"\r\n", _CHUNK_LINE_MAX)
            size = _read_length(line.partition(b";")[0].strip().decode("latin-1"), base=16)
            if not size:
                break
            body += yield from self._exactly(size)
            if (yield from self._exactly(2)) != b"\r\n" or len(body) > BODY_BYTES_MAX:
                raise BadResponse("Its chunks have wrong lengths.")
        while (yield from self._until(b"\r\n")):
            pass  # Trailers are not needed.
        return bytes(body)

    def _cut(self, count: int, *, skip: int = 0) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[: count + skip]
        return taken


def _read_head(head: bytes) -> tuple[int, dict[str, str], bool]:
    """Status, headers, and whether the connection stays open."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()):
        raise BadResponse("It does not begin like HTTP.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadResponse("One of its header lines cannot be read.")
        name, value = name.lower(), value.strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise BadResponse("It has two different content-lengths.")
        headers[name] = value
    option = headers.get("connection", "").lower()
    keep = option != "close" if version == "HTTP/1.1" else option == "keep-alive"
    return int(code), headers, keep


def _read_length(text: str, *, base: int = 10) -> int:
    digits = "0123456789abcdefABCDEF" if base == 16 else "0123456789"
    if not text or len(text) > 16 or any(char not in digits for char in text):
        raise BadResponse("Its length cannot be read.")
    return int(text, base)
