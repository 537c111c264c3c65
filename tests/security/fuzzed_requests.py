"""Requests with inputs of every kind: a fragment repeated, or two, up to and beyond every limit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from acceptance.running import KEY

KIB, MIB = 1024, 1024 * 1024

FRAGMENTS = (
    *(
        b'"',
        b"\\",
        b'{"a":',
        b"[",
        b"]",
        b"}",
        b"{}",
        b'"a":1,',
        b'"a":"b",',
        b'"a",',
        b"1,",
        b"{},",
    ),
    *(
        b"%41",
        b"%",
        b"&",
        b"=",
        b";",
        b",",
        b" ",
        b"\t",
        b"a.",
        b"1",
        b"-",
        b":",
        b"..",
        b"/",
        b"*",
    ),
    *(
        b"\xff",
        b"\xc3\xa9",
        b"\\u00e9",
        b"\\",
        b"\\n",
        b"1e9,",
        b"null,",
        b"a=b&",
        b'a="',
        b"[[1]],",
    ),
    *(
        b"status:",
        b"1h",
        b"9",
        b"true,",
        b'"2026-01-01T00:00:00Z",',
        b"whsec_",
        b"v1,",
        b"timeout=",
    ),
)


class Fired(NamedTuple):
    """One request: what kind of input it has, and its bytes."""

    kind: str
    sent: bytes


def post(path: bytes, body: bytes, head: bytes, *, kind: bytes = b"") -> bytes:
    kind = kind or b"application/x-www-form-urlencoded"
    length = b"content-length: %d\r\n" % len(body)
    return (
        b"POST "
        + path
        + b" HTTP/1.1\r\ncontent-type: "
        + kind
        + b"\r\n"
        + length
        + head
        + b"\r\n"
        + body
    )


class Fuzz:
    """Makes inputs of every kind."""

    def __init__(self, rng: random.Random, session: tuple[bytes, bytes]) -> None:
        self._rng = rng
        self._cookie, self._token = session
        bearer = b"authorization: Bearer " + KEY.encode() + b"\r\n"
        self._plain = b"host: localhost\r\nconnection: close\r\n"
        self._with_key = self._plain + bearer
        self._page = self._plain + b"cookie: " + self._cookie + b"\r\n"
        self.makers: list[Callable[[], Fired]] = [
            self.cookies, self.headers, self.urls, self.trailers, self.chunks, self.pipelined,
            self.names, self.names_of_a_value, self.json, self.filters, self.events, self.batches,
            self.lines, self.searches, self.queries, self.simulator, self.sign_in, self.forms,
            self.workfront,
        ]  # fmt: skip

    def _stuff(self, most: int) -> bytes:
        """One fragment or two, again and again; sizes from a byte to beyond the limit."""
        size = int(most * 1.3 ** self._rng.uniform(-24, 1))
        fragment = self._rng.choice(FRAGMENTS)
        if self._rng.random() < 0.4:
            fragment += self._rng.choice(FRAGMENTS)
        begin = self._rng.choice(FRAGMENTS) if self._rng.random() < 0.3 else b""
        return (begin + fragment * (size // len(fragment) + 1))[: max(size, 1)]

    def _header(self, most: int) -> bytes:
        return self._stuff(most).replace(b"\n", b"n").replace(b"\r", b"r")

    def _get(self, target: bytes, head: bytes) -> bytes:
        safe = quote(target, safe="/?&=%:*.,;\"'[]{}-").encode()
        return b"GET " + safe + b" HTTP/1.1\r\n" + head + b"\r\n"

    def cookies(self) -> Fired:
        path = self._rng.choice((b"/", b"/sign-in", b"/healthz", b"/live", b"/nowhere"))
        sent = self._plain + b"accept: text/html\r\ncookie: a=" + self._header(80 * KIB) + b"\r\n"
        return Fired("cookies", self._get(path, sent))

    def headers(self) -> Fired:
        names = b"accept authorization host origin hx-current-url expect if-none-match range"
        names += b" forwarded traceparent connection"
        lines = b"".join(
            self._rng.choice(names.split()) + b": " + self._header(16 * KIB) + b"\r\n"
            for _ in range(self._rng.choice((1, 1, 3, 200)))
        )
        return Fired(
            "headers", self._get(self._rng.choice((b"/", b"/v1/events")), self._plain + lines)
        )

    def urls(self) -> Fired:
        path = self._rng.choice(
            (b"/", b"/v1/deliveries/", b"/v1/events/", b"/static/", b"/sign-in?to=/")
        )
        return Fired("URLs", self._get(path + self._stuff(12 * KIB), self._page))

    def trailers(self) -> Fired:
        head = (
            b"POST /v1/events HTTP/1.1\r\n" + self._with_key + b"transfer-encoding: chunked\r\n\r\n"
        )
        return Fired(
            "trailers",
            head + b"1\r\n1\r\n0\r\n" + b"a: b\r\n" * self._rng.randrange(40_000) + b"\r\n",
        )

    def chunks(self) -> Fired:
        head = (
            b"POST /v1/subscriptions HTTP/1.1\r\n"
            + self._with_key
            + b"transfer-encoding: chunked\r\n\r\n"
        )
        return Fired("chunks", head + b"1\r\n \r\n" * self._rng.randrange(200_000) + b"0\r\n\r\n")

    def pipelined(self) -> Fired:
        one = b"GET /healthz HTTP/1.1\r\n\r\n"
        return Fired(
            "pipelined", one * self._rng.randrange(20_000) + self._get(b"/healthz", self._plain)
        )

    def names(self) -> Fired:
        body = b'{"url":"https://a.example","types":["*"],"headers":{%b}}' % self._names(25_000)
        return self._command("names", b"/v1/subscriptions", body)

    def names_of_a_value(self) -> Fired:
        """Up to a little more than a command may have."""
        one = b'{"fieldName":"f","fieldValue":{%b}}' % self._names(10_500)
        return self._command("names of a value", b"/v1/filters/try", b'{"filters":[%b]}' % one)

    def _names(self, most: int) -> bytes:
        return b",".join(b'"%d":""' % n for n in range(self._rng.randrange(1, most)))

    def json(self) -> Fired:
        path = self._rng.choice(
            (b"/v1/subscriptions", b"/v1/keys", b"/v1/replays", b"/v1/filters/try")
        )
        field = self._rng.choice((b"url", b"types", b"headers", b"name", b"data", b"filters", b"x"))
        inner = self._stuff(256 * KIB)
        whole = self._rng.choice(
            (b"%b", b'{"%b":%%b}' % field, b'{"%b":[%%b1]}' % field, b'{"%b":{%%b"z":1}}' % field)
        )
        body = b"{" + inner if self._rng.random() < 0.1 else whole % inner
        return self._command("JSON", path, body)

    def filters(self) -> Fired:
        op = self._rng.choice(
            (b"contains", b"eq", b"notContains", b"containsOnly", b"gt", b"changed")
        )
        value = self._rng.choice((b'"x"', b'{"a":1}', b'"2026-01-01"', b"1"))
        one = b'{"fieldName":"f","fieldValue":%b,"comparison":"%b"}' % (value, op)
        filters = b",".join([one] * self._rng.randrange(1, 60))
        data = b'{"f":[%b1]}' % (
            self._rng.choice((b"1,", b'"a",', b'{"a":2},', b'"2026-01-01T00:00:00Z",'))
            * self._rng.randrange(20_000)
        )
        return self._command(
            "filters", b"/v1/filters/try", b'{"filters":[%b],"data":%b}' % (filters, data)
        )

    def events(self) -> Fired:
        data = self._rng.choice((b'"%b"', b"[%b1]", b"%b", b'{%b"z":1}')) % self._stuff(MIB)
        return self._command("events", b"/v1/events", b'{"type":"a.b","data":%b}' % data)

    def batches(self) -> Fired:
        event = self._rng.choice((b'{"type":"a","data":1}', b"1", b"{}", b'{"type":1}'))
        most = 8 * MIB // len(event) - 2 if self._rng.random() < 0.3 else 3_000
        body = b"[" + (event + b",") * self._rng.randrange(most) + event + b"]"
        return self._command("batches", b"/v1/events", body)

    def lines(self) -> Fired:
        line = self._rng.choice((b'{"type":"a","data":1}', b"1", b"", b" ", b"{", self._stuff(KIB)))
        most = 8 * MIB // (len(line) + 1) if self._rng.random() < 0.3 else 3_000
        body = (line + b"\n") * self._rng.randrange(most)
        head = self._with_key
        return Fired("lines", post(b"/v1/events", body, head, kind=b"application/x-ndjson"))

    def searches(self) -> Fired:
        path = self._rng.choice(
            (
                b"/deliveries?q=",
                b"/endpoints?q=",
                b"/events?q=",
                b"/bulk?q=",
                b"/subscriptions?q=",
                b"/search?q=",
                b"/incidents?q=",
            )
        )
        return Fired(
            "searches",
            self._get(path + quote(self._stuff(4 * KIB)).encode()[: 7 * KIB], self._page),
        )

    def queries(self) -> Fired:
        path = self._rng.choice(
            (
                b"/v1/deliveries?",
                b"/v1/attempts?",
                b"/v1/endpoints?cursor=",
                b"/v1/events?since=",
                b"/v1/search?q=",
                b"/v1/causes?failure=",
                b"/v1/notices?cursor=",
            )
        )
        return Fired("queries", self._get(path + self._stuff(7 * KIB), self._with_key))

    def simulator(self) -> Fired:
        fields = b"policy=workfront&run_for=%b&from=%b&to=1h&every=%b&seed=1&does=503&percent=1"
        given = tuple(quote(self._stuff(2 * KIB)).encode()[: 2 * KIB] for _ in range(3))
        return Fired("simulator", self._get(b"/simulator?" + fields % given, self._page))

    def sign_in(self) -> Fired:
        return Fired("sign-in", post(b"/sign-in", b"key=" + self._stuff(32 * KIB), self._plain))

    def forms(self) -> Fired:
        path = self._rng.choice((b"/subscriptions", b"/events", b"/bulk/cancel", b"/bulk/replay"))
        field = self._rng.choice((b"url", b"types", b"data", b"q", b"filters", b"headers", b"type"))
        body = b"csrf=" + self._token + b"&tenant=a&type=a&" + field + b"=" + self._stuff(MIB)
        return Fired("forms", post(path, body, self._page))

    def workfront(self) -> Fired:
        field = self._rng.choice((b"objCode", b"url", b"authToken", b"filters", b"objId"))
        body = b'{"eventType":"UPDATE","%b":%b}' % (field, self._stuff(256 * KIB))
        path = b"/attask/eventsubscription/api/v1/subscriptions"
        return self._command("Workfront", path, body)

    def _command(self, kind: str, path: bytes, body: bytes) -> Fired:
        return Fired(kind, post(path, body, self._with_key, kind=b"application/json"))
