"""The fast publish path responds as the normal path does, and leaves the hard cases to it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from homing.engine.publish import Publisher, PublishResult
from homing.errors import TooLarge
from homing.testing import KEY, HomingServer, running_server
from homing.web.api.publish import Plain
from homing.web.fast_publish import FastPublishProtocol, _Head

LONG = "content-encoding: identity\r\n"  # A header that says nothing, and is not plain.
GOOD = '{"type":"a.b","id":"one","data":{"n":1}}'


@pytest.fixture(scope="module")
def server() -> Iterator[HomingServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each publish went the fast path."""
    seen: list[bool] = []
    publish_fast = FastPublishProtocol._publish_fast

    def watched(self: FastPublishProtocol, plain: Plain, body: bytes, *, keep_alive: bool) -> bool:
        seen.append(publish_fast(self, plain, body, keep_alive=keep_alive))
        return seen[-1]

    monkeypatch.setattr(FastPublishProtocol, "_publish_fast", watched)
    return seen


@pytest.fixture
def agains(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of the requests on a connection with a remembered head: whether it was that head."""
    seen: list[bool] = []
    again = FastPublishProtocol._publish_again

    def watched(self: FastPublishProtocol, data: bytes, head: _Head) -> bool:
        seen.append(again(self, data, head))
        return seen[-1]

    monkeypatch.setattr(FastPublishProtocol, "_publish_again", watched)
    return seen


def post(body: str, *, key: str = KEY, more: str = "", version: str = "1.1") -> bytes:
    head = f"POST /v1/events HTTP/{version}\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    return f"{head}{more}content-length: {len(body.encode())}\r\n\r\n{body}".encode()


def connect(server: HomingServer) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def read_one(line: socket.socket) -> bytes:
    """One response with a content-length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(line)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [it for it in head.lower().split(b"\r\n") if it.startswith(b"content-length:")]
    while len(body) < int(lengths[0].split(b":")[1]):
        body += _some(line)
    return head + b"\r\n\r\n" + body


def _some(line: socket.socket) -> bytes:
    data = line.recv(1)
    assert data, "the server hung up"
    return data


def response(server: HomingServer, request: bytes) -> bytes:
    with connect(server) as line:
        line.sendall(request)
        return read_one(line)


@pytest.mark.parametrize(
    ("body", "key", "status", "is_fast"),
    [
        pytest.param(GOOD, KEY, 202, True, id="good"),
        pytest.param(f"[{GOOD}]", KEY, 202, True, id="a batch"),
        pytest.param('{"type":"a.b","id":"one","data":2}', KEY, 409, True, id="a conflict"),
        pytest.param('{"type":"a b","data":1}', KEY, 422, False, id="a bad type"),
        pytest.param("{", KEY, 400, False, id="not JSON"),
        pytest.param("", KEY, 400, False, id="nothing"),
        pytest.param(GOOD, "hk_wrong", 401, False, id="a wrong key"),
    ],
)
def test_both_ways_give_the_same_bytes(
    server: HomingServer, fast: list[bool], body: str, key: str, status: int, is_fast: bool
) -> None:
    response(server, post(GOOD))
    fast.clear()
    went = response(server, post(body, key=key))
    assert fast == [is_fast]
    assert went.startswith(b"HTTP/1.1 %d " % status)
    assert went == response(server, post(body, key=key, more=LONG))


@pytest.mark.parametrize("more", ["", LONG])
def test_both_ways_tell_a_repeated_id_apart(
    server: HomingServer, fast: list[bool], more: str
) -> None:
    request = post(GOOD.replace("one", f"twice{len(more)}"), more=more)
    assert response(server, request).endswith(b'"deliveries":0,"duplicate":false}]}')
    assert response(server, request).endswith(b'"deliveries":0,"duplicate":true}]}')
    assert fast == ([] if more else [True, True])


def test_a_request_that_comes_in_pieces_goes_the_normal_path(
    server: HomingServer, fast: list[bool]
) -> None:
    request = post(GOOD)
    response(server, request)
    whole = response(server, request)
    fast.clear()
    for cut in (5, 20, len(request) - len(GOOD), len(request) - 1):
        with connect(server) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.sendall(request[:cut])
            line.sendall(b"")
            _until_read(server)
            line.sendall(request[cut:])
            assert read_one(line) == whole
    assert len(fast) <= 2  # Only where the head itself was cut is the rest in one piece.


def _until_read(server: HomingServer) -> None:
    """What was written on another connection before this has been read when this is answered."""
    response(server, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")


def test_requests_behind_each_other_are_answered_in_order(server: HomingServer) -> None:
    ids = [f"p{number}" for number in range(8)]
    requests = [post(GOOD.replace("one", it)) for it in ids]
    requests.insert(4, b"GET /v1/nothing HTTP/1.1\r\nhost: x\r\n\r\n")
    with connect(server) as line:
        line.sendall(b"".join(requests))
        responses = [read_one(line) for _ in requests]
    assert responses.pop(4).startswith(b"HTTP/1.1 404 ")
    for it, got in zip(ids, responses, strict=True):
        assert f'"{it}"'.encode() in got


@pytest.mark.parametrize("more", ["", LONG])
def test_a_connection_that_shall_close_is_closed_after_the_response(
    server: HomingServer, more: str
) -> None:
    with connect(server) as line:
        line.sendall(post(GOOD, more=f"connection: close\r\n{more}"))
        got = read_one(line)
        assert b"\r\nconnection: close\r\n" in got
        assert line.recv(1) == b""


@pytest.mark.parametrize("more", ["", LONG])
def test_a_refusal_that_ends_the_connection_ends_it_on_both_ways(
    server: HomingServer, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    def refuse(_self: Publisher, _drafts: object, tell: Callable[[PublishResult], None]) -> None:
        tell(TooLarge("It would make too many deliveries."))

    monkeypatch.setattr(Publisher, "publish_then", refuse)
    with connect(server) as line:
        line.sendall(post(GOOD, more=more))
        got = read_one(line)
        assert got.startswith(b"HTTP/1.1 413 ")
        assert got.count(b"connection: close\r\n") == 1
        assert line.recv(1) == b""


def test_the_same_connection_serves_again_and_again(server: HomingServer, fast: list[bool]) -> None:
    with connect(server) as line:
        for number in range(20):
            line.sendall(post(GOOD.replace("one", f"again{number}")))
            assert read_one(line).startswith(b"HTTP/1.1 202 ")
    assert fast == [True] * 20


def test_who_hangs_up_before_the_response_harms_nobody(server: HomingServer) -> None:
    for number in range(10):
        line = connect(server)
        line.sendall(post(GOOD.replace("one", f"gone{number}")))
        line.close()
    assert response(server, post(GOOD)).startswith(b"HTTP/1.1 202 ")


def test_a_malformed_second_request_is_refused_and_closed(server: HomingServer) -> None:
    with connect(server) as line:
        line.sendall(post(GOOD) + b"NOT HTTP\r\n\r\n")
        data = b""
        while part := line.recv(65536):
            data += part
    assert b"HTTP/1.1 400 " in data


def test_the_same_head_again_is_not_read_again(server: HomingServer, agains: list[bool]) -> None:
    bodies = [GOOD.replace("one", name) for name in ("a", "bb" * 40, "c")]
    with connect(server) as line:
        for body in bodies:
            response(server, post(body))
            line.sendall(post(body))
            assert read_one(line) == response(server, post(body))
    assert agains == [True, True]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(post(GOOD, key="hk_wrong"), 401, id="a wrong key"),
        pytest.param(post(GOOD, more="x: y\r\n"), 202, id="another header"),
        pytest.param(post("{"), 400, id="a bad body"),
        pytest.param(post(GOOD).replace(b": 40", b": 040"), 202, id="a zero before its length"),
        pytest.param(post(GOOD).replace(b": 40", b": +40"), 400, id="a length with a sign"),
        pytest.param(post(GOOD).replace(b": 40", b":\t40"), 202, id="a tab before its length"),
        pytest.param(post(GOOD).replace(b": 40", b": 4x"), 400, id="not a length"),
        pytest.param(post(GOOD, more="content-length: 40\r\n"), 400, id="two lengths"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", 200, id="something else"),
    ],
)
def test_after_a_remembered_head_all_is_answered_as_on_a_new_connection(
    server: HomingServer, request_: bytes, status: int
) -> None:
    assert len(GOOD) == 40
    response(server, post(GOOD))
    with connect(server) as line:
        for _ in range(2):
            line.sendall(post(GOOD))
            read_one(line)
        line.sendall(request_)
        got = read_one(line)
        assert got.startswith(b"HTTP/1.1 %d " % status)
        assert got == response(server, request_)


def test_requests_behind_a_remembered_head_are_all_answered(server: HomingServer) -> None:
    with connect(server) as line:
        line.sendall(post(GOOD))
        read_one(line)
        line.sendall(post(GOOD.replace("one", "q1")) + post(GOOD.replace("one", "q2")))
        assert b'"q1"' in read_one(line)
        assert b'"q2"' in read_one(line)
        request = post(GOOD.replace("one", "q3"))
        line.sendall(request[:-5])
        _until_read(server)
        line.sendall(request[-5:])
        assert b'"q3"' in read_one(line)


def test_a_body_that_looks_like_a_request_is_a_body(
    server: HomingServer, agains: list[bool]
) -> None:
    inner = post(GOOD.replace("one", "smuggled"))
    for path in ("/v1/events", "/v1/nothing"):  # The second is refused before its body has come.
        with connect(server) as line:
            line.sendall(post(GOOD))
            read_one(line)
            agains.clear()
            outer = post("x" * (10 + len(inner))).replace(b"/v1/events", path.encode())
            line.sendall(outer[: -len(inner)])
            _until_read(server)
            line.sendall(inner)
            assert not read_one(line).startswith(b"HTTP/1.1 202 ")
            assert True not in agains
    asked = f"GET /v1/events/smuggled HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n"
    assert response(server, asked.encode()).startswith(b"HTTP/1.1 404 ")
