"""The response reader: every form of response, in any pieces, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing_client.errors import BadResponse
from homing_client.http1 import Response, ResponseReader, read_server, write_request

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n"
    b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: t\r\n\r\n"
)
TO_THE_END = b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nhello"


def read(*parts: bytes) -> ResponseReader:
    reader = ResponseReader()
    for part in parts:
        reader.feed(part)
    return reader


@given(form=st.sampled_from([PLAIN, CHUNKED, TO_THE_END]), data=st.data())
def test_a_response_is_the_same_however_it_is_cut(form: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(form) - 1), unique=True).map(sorted))
    parts = [form[a:b] for a, b in zip([0, *cuts], [*cuts, len(form)], strict=True)]
    reader = read(*parts, *([b""] if form is TO_THE_END else []))
    assert reader.response is not None
    assert (reader.response.status, reader.response.body) == (200, b"hello")
    assert reader.response.headers["x"] == "y"
    assert reader.keep_alive is (form is not TO_THE_END)


@given(form=st.sampled_from([PLAIN, CHUNKED]), data=st.data())
def test_a_response_that_is_cut_off_is_never_taken_for_a_whole_one(
    form: bytes, data: st.DataObject
) -> None:
    reader = read(form[: data.draw(st.integers(1, len(form) - 1))])
    assert reader.response is None
    with pytest.raises(EOFError):
        reader.feed(b"")


def test_204_has_no_body_and_the_connection_stays() -> None:
    reader = read(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert reader.response == Response(204, {}, b"")
    assert reader.keep_alive


@pytest.mark.parametrize(
    "more",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore than was said",
    ],
)
def test_a_connection_is_kept_only_where_the_next_response_can_be_trusted(more: bytes) -> None:
    reader = read(more)
    assert reader.response is not None
    assert not reader.keep_alive


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(nonsense: bytes) -> None:
    with pytest.raises(BadResponse):
        read(nonsense)


@given(noise=st.binary(max_size=200), head=st.sampled_from([b"", PLAIN[:40], CHUNKED[:90]]))
def test_noise_gives_a_response_or_an_error_of_the_tree(noise: bytes, head: bytes) -> None:
    reader = ResponseReader()
    try:
        reader.feed(head + noise)
        if reader.response is None:
            reader.feed(b"")
    except (BadResponse, EOFError):
        return
    assert reader.response is not None


def test_a_request_goes_below_the_prefix_of_its_server_and_carries_the_key() -> None:
    server = read_server("https://proxy.example:8443/homing/", "secret-key")
    sent = write_request(server, "POST", "/v1/events", body=b"{}", content_type="a/b").decode()
    assert sent.startswith("POST /homing/v1/events HTTP/1.1\r\nhost: proxy.example:8443\r\n")
    assert "authorization: Bearer secret-key\r\n" in sent
    assert sent.endswith("content-type: a/b\r\ncontent-length: 2\r\n\r\n{}")
    assert (server.tls, server.host, server.port) == (True, "proxy.example", 8443)
    assert "secret-key" not in repr(server)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_ports_have_their_defaults(scheme: str) -> None:
    assert read_server(f"{scheme}://[::1]", "k").port == {"http": 80, "https": 443}[scheme]
    assert read_server(f"{scheme}://[::1]", "k").host == "::1"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("ftp://a", "k"),
        ("localhost:8700", "k"),
        ("http://", "k"),
        ("http://a?b=c", "k"),
        ("http://user:pass@a", "k"),
        ("http://a/ b", "k"),
        ("http://a", ""),
        ("http://a", "k\r\nx: y"),
    ],
)
def test_a_server_or_key_that_cannot_be_one_is_refused_without_repeating_the_key(
    url: str, key: str
) -> None:
    with pytest.raises(ValueError, match=r"the (URL|key) must") as caught:
        read_server(url, key)
    assert "x: y" not in str(caught.value)
