"""Access tokens: fetched once, shared, renewed; hostile and slow token endpoints; limits."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from homing.model import Credentials, Failure, OAuthMethod, SubscriptionSpec, TlsIdentity
from homing.net import oauth
from homing.net.oauth import FETCHES_MAX, OAuthSender
from homing.net.resolver import Resolver
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.certificates import make_identity
from homing.policy.oauth import credentials_of
from homing.policy.reach import REFUSED, Reach
from homing.policy.url import parse_url
from homing.ports import Request, Response, Sender
from net.certificates import Authority
from net.oauth_server import Client, OAuthServer, oauth_server
from net.receiver import (
    OK,
    Call,
    a_free_port,
    a_request,
    a_target,
    ask,
    ask_all,
    names,
    receiver,
    say_ok,
)

SECRET = "s3cret of the: client/&+%=ü"[:-1]
PRIVATE = SenderOptions(reach=Reach(loopback=True))


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as it:
        it.add(Client("a client", "client_secret_basic", SECRET))
        yield it


class Steps:
    """A monotonic clock that stands still until a test moves it forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return 1_000 + self.ahead_s


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def sender(anyio_backend: Any, steps: Steps) -> AsyncIterator[OAuthSender]:
    sender = OAuthSender(HttpSender(PRIVATE), monotonic=steps)
    yield sender
    await sender.close()


def a_client(
    url: str, *, tenant: str = "default", tls: TlsIdentity | None = None, **more: Any
) -> Credentials:
    fields = {"oauth_client_id": "a client", "oauth_client_secret": SECRET, **more}
    fields.setdefault("oauth_scope", "events.write")
    spec = SubscriptionSpec(url="http://a.example/", types=("*",), oauth_token_url=url, **fields)
    found = credentials_of(tenant, spec, tls)
    assert found is not None
    return found


def an_attempt(hook: str, client: Credentials | None, *, deadline_ms: int = 20_000) -> Request:
    tenant = "default" if client is None else client.tenant
    lines = b"content-type: application/json\r\n"
    return Request(tenant, parse_url(hook)[1], lines, b"{}", deadline_ms, credentials=client)


async def tried(sender: Sender, server: OAuthServer, **more: Any) -> Response:
    return await ask(sender, an_attempt(server.hook_url, a_client(server.token_url, **more)))


# --- a real server --------------------------------------------------------------------------------


def _pem(key: Any) -> tuple[str, str]:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()


RSA_KEY, RSA_PUBLIC = _pem(rsa.generate_private_key(65537, 2048))
EC_KEY, EC_PUBLIC = _pem(ec.generate_private_key(ec.SECP256R1()))


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_with_a_secret_gets_a_token_that_the_receiver_accepts(
    server: OAuthServer, sender: OAuthSender, method: str
) -> None:
    server.clients["a client"].method = method
    response = await tried(
        sender, server, oauth_method=OAuthMethod(method), oauth_audience="https://api.example"
    )

    assert response.code == 200, response
    assert "a new access token was fetched" in response.detail
    (token,) = server.tokens.values()
    assert (token.scope, token.audience) == ("events.write", "https://api.example")
    assert ("client_secret" in server.asked[0]) is (method == "client_secret_post")


@pytest.mark.parametrize(
    ("kind", "key", "public"), [("RSA", RSA_KEY, RSA_PUBLIC), ("EC", EC_KEY, EC_PUBLIC)]
)
async def test_a_client_with_a_private_key_signs_a_new_assertion_each_time(
    server: OAuthServer, sender: OAuthSender, kind: str, key: str, public: str
) -> None:
    server.add(Client("signer", "private_key_jwt", public_key=public, key_kind=kind))
    more = {
        "oauth_client_id": "signer",
        "oauth_client_secret": None,
        "oauth_private_key": key,
        "oauth_method": OAuthMethod.PRIVATE_KEY_JWT,
    }
    first = await tried(sender, server, **more)
    server.revoke_all()
    second = await tried(sender, server, **more)

    assert (first.code, second.code) == (200, 200)
    assertions = {it["client_assertion"] for it in server.asked}
    assert len(assertions) == 2  # Authlib refuses an id that was used before.


async def test_attempts_share_a_token_and_it_is_fetched_once_however_many_wait(
    server: OAuthServer, sender: OAuthSender
) -> None:
    client = a_client(server.token_url)
    attempts = [an_attempt(server.hook_url, client) for _ in range(100)]
    responses = await ask_all(sender, attempts)
    again = await ask(sender, attempts[0])

    assert {it.code for it in responses} == {200}
    assert len(server.asked) == 1
    assert (again.code, again.detail) == (200, "")


async def test_equal_clients_of_two_tenants_have_a_token_each(
    server: OAuthServer, sender: OAuthSender
) -> None:
    for tenant in ("acme", "bolt", "acme"):
        await tried(sender, server, tenant=tenant)

    assert len(server.tokens) == 2


async def test_a_changed_secret_scope_or_audience_is_another_client(
    server: OAuthServer, sender: OAuthSender
) -> None:
    await tried(sender, server)
    await tried(sender, server, oauth_scope="events.write events.read")
    await tried(sender, server, oauth_audience="https://b.example")
    server.clients["a client"].secret = "rotated"
    rotated = await tried(sender, server, oauth_client_secret="rotated")

    assert (rotated.code, len(server.tokens)) == (200, 4)


@pytest.mark.parametrize("how", ["revoke_all", "expire_all"])
async def test_a_refused_token_is_renewed_and_the_request_repeated_at_once(
    server: OAuthServer, sender: OAuthSender, how: str
) -> None:
    await tried(sender, server)
    getattr(server, how)()
    response = await tried(sender, server)

    assert response.code == 200
    assert "fetched after a 401 from the receiver" in response.detail
    assert [code for _, code in server.arrived] == [200, 401, 200]
    assert len(server.asked) == 2


async def test_many_attempts_with_one_refused_token_fetch_one_new_token(
    server: OAuthServer, sender: OAuthSender
) -> None:
    client = a_client(server.token_url)
    await ask(sender, an_attempt(server.hook_url, client))
    server.revoke_all()
    responses = await ask_all(sender, [an_attempt(server.hook_url, client) for _ in range(50)])

    assert {it.code for it in responses} == {200}
    assert len(server.asked) == 2


async def test_a_receiver_that_refuses_every_token_costs_few_fetches(
    server: OAuthServer, sender: OAuthSender, steps: Steps
) -> None:
    server.refuse_all = True
    codes = [(await tried(sender, server)).code for _ in range(30)]

    assert set(codes) == {401}
    assert len(server.asked) == 2  # the first token, and one to replace it
    steps.ahead_s += 1.1
    await tried(sender, server)
    assert len(server.asked) == 3
    steps.ahead_s += 1.1  # The wait has doubled.
    await tried(sender, server)
    assert len(server.asked) == 3
    server.refuse_all = False
    assert (await tried(sender, server)).code == 200
    server.revoke_all()
    assert (await tried(sender, server)).code == 200  # Accepted once, it is renewed at once.


async def test_a_token_is_renewed_ahead_of_its_end_without_delay(
    server: OAuthServer, sender: OAuthSender, steps: Steps
) -> None:
    client = a_client(server.token_url)
    await ask(sender, an_attempt(server.hook_url, client))
    steps.ahead_s += 3500
    await ask(sender, an_attempt(server.hook_url, client))
    assert len(server.asked) == 1
    steps.ahead_s += 50  # 50 s before its end.
    response = await ask(sender, an_attempt(server.hook_url, client))

    assert (response.code, response.detail) == (200, "")  # with the old one
    async with asyncio.timeout(20):
        while len(server.tokens) < 2 or sender.tokens.fetching:
            await asyncio.sleep(0.01)
    steps.ahead_s += 60
    response = await ask(sender, an_attempt(server.hook_url, client))
    assert (response.code, response.detail, len(server.asked)) == (200, "", 2)
    assert server.arrived[-1][0] == list(server.tokens)[1]


async def test_a_refused_client_is_a_failure_of_the_token_endpoint_in_words(
    server: OAuthServer, sender: OAuthSender
) -> None:
    response = await tried(sender, server, oauth_client_secret="wrong")

    assert (response.code, response.failure, response.address) == (None, Failure.TOKEN, None)
    assert response.detail == "the token endpoint 127.0.0.1 responded 401 invalid_client"
    assert server.arrived == []


async def test_a_scope_that_the_client_may_not_have_is_told(
    server: OAuthServer, sender: OAuthSender
) -> None:
    response = await tried(sender, server, oauth_scope="admin")

    assert response.failure is Failure.TOKEN
    assert response.detail == "the token endpoint 127.0.0.1 responded 400 invalid_scope"


async def test_a_failing_token_endpoint_is_asked_again_after_a_wait_that_doubles(
    server: OAuthServer, sender: OAuthSender, steps: Steps
) -> None:
    server.failing = 3
    for _ in range(5):
        response = await tried(sender, server)
        assert response.detail == "the token endpoint 127.0.0.1 responded 503"
    assert len(server.asked) == 1
    steps.ahead_s += 1.1
    await tried(sender, server)
    steps.ahead_s += 1.1
    await tried(sender, server)
    assert len(server.asked) == 2
    steps.ahead_s += 1
    await tried(sender, server)
    assert len(server.asked) == 3
    steps.ahead_s += 4.1
    assert (await tried(sender, server)).code == 200


# --- hostile token endpoints ----------------------------------------------------------------------


def _json(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (_json(b"<html>"), "responded 200 with a body that is not a JSON object"),
        (_json(b"[1]"), "responded 200 with a body that is not a JSON object"),
        (_json(b"[" * 60_000), "responded 200 with a body that is not a JSON object"),
        (_json(b"{}"), "responded 200 without an access_token"),
        (_json(b'{"access_token": 5}'), "responded 200 without an access_token"),
        (
            _json(b'{"error": "invalid_client"}'),
            "responded 200 without an access_token invalid_client",
        ),
        (
            _json(b'{"access_token": "a\\r\\nx: y"}'),
            "sent an access_token over 8 KiB, or not of visible ASCII",
        ),
        (
            _json(b'{"access_token": "' + b"x" * 9_000 + b'"}'),
            "sent an access_token over 8 KiB, or not of visible ASCII",
        ),
        (
            _json(b'{"access_token": "t0p", "token_type": "mac"}'),
            "sent a token whose token_type is not bearer",
        ),
        (_json(b'{"access_token": "' + b"x" * 70_000 + b'"}'), "sent a response of over 64 KiB"),
        (_json(b'{"error": "s3cret"}', b"400 Bad Request"), "responded 400"),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            "responded 302",
        ),
        (b"SSH-2.0-OpenSSH\r\n", "failed: response is not HTTP"),
        (b"", "failed: connection closed without a response"),
    ],
)
async def test_what_a_token_endpoint_responds_is_told_and_never_repeated(
    sender: OAuthSender, reply: bytes, text: str
) -> None:
    async def respond(call: Call) -> None:
        await call.request()
        await call.say(reply)
        await call.gone() if reply else None

    async with receiver(respond) as peer, receiver(say_ok) as hook:
        client = a_client(f"http://127.0.0.1:{peer.port}/token")
        response = await ask(sender, an_attempt(f"http://127.0.0.1:{hook.port}/", client))

    assert (response.failure, response.code) == (Failure.TOKEN, None)
    assert response.detail == f"the token endpoint 127.0.0.1 {text}"
    assert (response.excerpt, response.headers) == (b"", b"")
    assert hook.calls == []


async def test_a_response_that_never_ends_is_cut_off(sender: OAuthSender) -> None:
    sent = 0

    async def stream(call: Call) -> None:
        nonlocal sent
        await call.request()
        await call.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                await call.say(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                sent += 4096

    async with receiver(stream) as peer, asyncio.timeout(30):
        client = a_client(f"http://127.0.0.1:{peer.port}/token")
        response = await ask(sender, an_attempt("http://127.0.0.1:1/", client))

    assert response.failure is Failure.TOKEN
    assert response.detail.endswith("sent a response of over 64 KiB")


async def test_a_token_endpoint_that_refuses_has_failed(sender: OAuthSender) -> None:
    client = a_client(f"http://127.0.0.1:{a_free_port()}/token")
    response = await ask(sender, an_attempt("http://127.0.0.1:1/", client))

    assert response.failure is Failure.TOKEN
    assert response.detail == "the token endpoint 127.0.0.1 failed: connection refused"


async def test_a_token_endpoint_that_hangs_has_failed(anyio_backend: Any, steps: Steps) -> None:
    async def hang(call: Call) -> None:
        await call.request()
        steps.ahead_s += 5.1
        await call.gone()

    async with receiver(hang) as peer:
        client = a_client(f"http://127.0.0.1:{peer.port}/token")
        sender = HttpSender(PRIVATE, monotonic=steps)
        response = await ask(sender, an_attempt("http://127.0.0.1:1/", client))

    assert response.failure is Failure.TOKEN
    assert response.detail == "the token endpoint 127.0.0.1 failed: no response in time"


async def test_the_time_of_a_slow_fetch_is_not_taken_from_the_receiver(
    anyio_backend: Any, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "FETCH_MS", 60_000)

    async def slow(call: Call) -> None:
        await call.request()
        steps.ahead_s += 30  # longer than the deadline of the attempt
        await call.say(_json(b'{"access_token": "t0p", "token_type": "Bearer"}'))

    async def take_half(call: Call) -> None:
        await call.request()
        steps.ahead_s += 10
        await asyncio.sleep(0.2)  # for the sweep that would end an attempt past its deadline
        await call.say(OK)

    async with receiver(slow) as peer, receiver(take_half) as hook:
        client = a_client(f"http://127.0.0.1:{peer.port}/token")
        attempt = an_attempt(f"http://127.0.0.1:{hook.port}/", client, deadline_ms=20_000)
        response = await ask(HttpSender(PRIVATE, monotonic=steps), attempt)

    assert response.code == 200
    assert b"authorization: Bearer t0p\r\n" in hook.calls[0].got


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), Failure.SENDER_TOKEN),
        (socket.gaierror(socket.EAI_MEMORY, "Memory"), Failure.SENDER_LIMITS),
        (socket.gaierror(socket.EAI_NONAME, "Name unknown"), Failure.TOKEN),
    ],
)
async def test_a_fetch_that_fails_on_our_side_is_not_the_token_endpoints_failure(
    anyio_backend: Any, error: Exception, failure: Failure
) -> None:
    resolver = Resolver(getaddrinfo=names(auth_example=error))
    sender = HttpSender(PRIVATE, resolver=resolver)
    client = a_client("https://auth.example/token")
    response = await ask(sender, an_attempt("http://127.0.0.1:1/", client))

    assert response.failure is failure
    assert response.detail.startswith("the token endpoint auth.example ")


async def test_a_token_endpoint_at_a_forbidden_address_is_never_dialled(
    anyio_backend: Any,
) -> None:
    async with receiver(say_ok) as peer:
        resolver = Resolver(getaddrinfo=names(auth_example="127.0.0.1"))
        sender = HttpSender(SenderOptions(), resolver=resolver)
        clients = (
            a_client(f"http://auth.example:{peer.port}/"),
            a_client(f"http://127.0.0.1:{peer.port}/"),
        )
        responses = await ask_all(sender, [an_attempt("http://a.example/", it) for it in clients])

    assert peer.calls == []
    assert {it.failure for it in responses} == {Failure.FORBIDDEN_ADDRESS}
    assert all(it.detail.endswith(REFUSED) for it in responses)


async def test_the_token_endpoint_may_need_the_certificates_of_the_subscription(
    anyio_backend: Any, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.client("homing")
    asking = authority.server("auth.test")
    asking.verify_mode = ssl.CERT_REQUIRED
    asking.load_verify_locations(authority.ca_file)
    resolver = Resolver(getaddrinfo=names(auth_test="127.0.0.1"))
    sender = HttpSender(PRIVATE, resolver=resolver)
    own = make_identity(certificate=certificate, key=key, authorities=authority.ca_file.read_text())

    async def issue(call: Call) -> None:
        await call.request()
        await call.say(_json(b'{"access_token": "t0p", "token_type": "bearer"}'))

    async with receiver(issue, tls=asking) as peer, receiver(say_ok) as hook:
        url = f"https://auth.test:{peer.port}/token"
        with_own, without = a_client(url, tls=own), a_client(url)
        target = f"http://127.0.0.1:{hook.port}/"
        trusted, unknown = await ask_all(
            sender, [an_attempt(target, it) for it in (with_own, without)]
        )

    assert (trusted.code, unknown.failure) == (200, Failure.TOKEN)
    assert unknown.detail.startswith("the token endpoint auth.test failed: TLS: ")


# --- limits ---------------------------------------------------------------------------------------


async def test_a_thousand_hanging_token_endpoints_of_one_tenant_hold_up_no_other(
    sender: OAuthSender, server: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "QUEUE_S_MAX", 0.5)
    hanging = 0

    async def hang(call: Call) -> None:
        nonlocal hanging
        hanging += 1
        await call.gone()

    responses: list[Response] = []
    async with receiver(hang) as peer:
        for number in range(1_000):
            url = f"http://127.0.0.1:{peer.port}/{number}"
            attempt = an_attempt("http://127.0.0.1:1/", a_client(url, tenant="noisy"))
            sender.send(attempt, responses.append)
        others = [await tried(sender, server, tenant=f"quiet{number}") for number in range(5)]
        async with asyncio.timeout(20):
            while len(responses) + hanging < 1_000:
                await asyncio.sleep(0.01)
        left = sender.tokens.fetching

    assert {it.code for it in others} == {200}
    assert hanging < FETCHES_MAX // 4
    assert {it.failure for it in responses} == {Failure.SENDER_TOKEN}  # Our limit is not theirs.
    assert left == hanging


async def test_one_tenants_clients_leave_room_in_the_cache(
    anyio_backend: Any,
) -> None:
    async def issue(call: Call) -> None:
        while await call.request():
            await call.say(_json(b'{"access_token": "t0p", "token_type": "bearer"}'))

    sender = OAuthSender(HttpSender(PRIVATE), clients_max=100)
    async with receiver(issue) as peer, receiver(say_ok) as hook:
        target = f"http://127.0.0.1:{hook.port}/"

        def attempt(tenant: str, number: int) -> Request:
            url = f"http://127.0.0.1:{peer.port}/{number}"
            return an_attempt(target, a_client(url, tenant=tenant))

        responses = [await ask(sender, attempt("noisy", number)) for number in range(60)]
        await ask(sender, attempt("quiet", 1))
        again = await ask(sender, attempt("quiet", 1))

    assert {it.code for it in responses} == {200}
    assert sender.tokens.kept("noisy") < 25
    assert (again.code, again.detail) == (200, "")


async def test_the_sender_of_the_server_adds_tokens_itself(
    anyio_backend: Any, server: OAuthServer
) -> None:
    response = await tried(HttpSender(PRIVATE), server)

    assert (response.code, len(server.asked)) == (200, 1)


async def test_a_request_without_credentials_goes_as_before(sender: OAuthSender) -> None:
    async with receiver(say_ok) as peer:
        response = await ask(sender, a_request(a_target(peer.port)))

    assert (response.code, response.detail) == (200, "")
    assert b"authorization" not in peer.calls[0].got
