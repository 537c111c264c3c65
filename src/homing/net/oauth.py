"""Access tokens of OAuth 2.0 for the requests of a sender: fetched, shared, renewed.

``OAuthSender`` wraps another sender. A request without credentials goes straight through.
For a request with credentials it fetches an access token from the token endpoint, with a request of
that sender: with the same guard, look-ups and limits, no redirects. Then it sends the request with
the token.

- **Shared.** Equal clients of one tenant share a token, and one fetch per client is under way
  however many attempts wait for it. Each waiting attempt holds its slot, so slots limit them.
- **Ahead.** A token in the last minute or the last fifth of its life is still used, and the first
  attempt that uses it also starts the fetch of the next one.
- **Refused.** After a 401 the request is repeated once, immediately, with a newer token. No retry
  is used up. If the newer token is refused as well, the 401 counts. Then, until a token is accepted
  again, a 401 starts another fetch only after a wait of 1 s, doubling to 60 s.
- **Changed.** A request that has waited for a token is sent only if it is still wanted: not after
  a change of its subscription or an erasure was confirmed. Then it is a sender-side failure; the
  delivery goes again as it is by then. After a 401 such a request is not repeated.
- **Time.** A fetch has 5 s, and the wait for its turn another 5 s. The deadline of an attempt
  covers only its request to the receiver, and the repeated request has a deadline of its own.
- **Limits.** At most 64 fetches are under way. Tenants have fair shares of fetches, as they do of
  look-ups (``policy/look_ups``), and of kept tokens. A failed fetch is not repeated for 1 s,
  doubling to 60 s: attempts in that time fail with the same failure.
- **Failures.** ``token`` is a failure of the token endpoint, and counts against the URL that needs
  the token. If the sender could not ask the token endpoint, that is a sender-side failure.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.model import Credentials, Failure, Phases
from homing.net.clock import monotonic as system_monotonic
from homing.net.clock import wall_ns
from homing.policy.look_ups import FairCache, LookUpQueue
from homing.policy.oauth import (
    AGAIN_MAX_S,
    LIFE_S_MAX,
    RESPONSE_BYTES_MAX,
    NoToken,
    Token,
    no_response,
    read_token,
    token_request,
    wait_s,
)
from homing.policy.outcome import SENDER_FAILURES
from homing.ports import Request, Response, Sender

FETCHES_MAX = 64  # of which one tenant can have 11
FETCH_MS = 5_000
QUEUE_S_MAX = 5.0
CLIENTS_MAX = 8_192  # whose tokens are kept
PORTION = 32  # attempts that go on in one turn of the loop, after a fetch

_log = structlog.get_logger("homing.net")

Found = Token | NoToken
UNWANTED = NoToken(
    Failure.SENDER_TOKEN,
    "not sent: its subscription changed, or data was erased, while it waited for an access token",
)


class _Wait(Struct, frozen=True):
    """How often in a row something failed, and when it may be tried again."""

    count: int
    again_at: float
    why: NoToken | None = None


class _Fetch:
    """One fetch, in the queue or under way, and the attempts that wait for its token."""

    __slots__ = ("client", "timer", "waiting")

    def __init__(self, client: Credentials) -> None:
        self.client = client
        self.waiting: list[Callable[[Found], None]] = []
        self.timer: asyncio.TimerHandle | None = None  # only while it is queued


class Tokens:
    """The tokens of all clients, and the fetches of new ones."""

    def __init__(
        self, inner: Sender, *, monotonic: Callable[[], float], clients_max: int = CLIENTS_MAX
    ) -> None:
        self._inner, self._monotonic = inner, monotonic
        self._loop = asyncio.get_running_loop()
        self._queue: LookUpQueue[bytes] = LookUpQueue(FETCHES_MAX)
        self._fetches: dict[bytes, _Fetch] = {}
        self._starting = False
        self._tokens: FairCache[bytes, Token] = FairCache(clients_max, keep_s_max=LIFE_S_MAX)
        self._failed: FairCache[bytes, _Wait] = FairCache(clients_max, keep_s_max=2 * AGAIN_MAX_S)
        self._refused: FairCache[bytes, _Wait] = FairCache(clients_max, keep_s_max=2 * AGAIN_MAX_S)

    @property
    def fetching(self) -> int:
        """How many fetches are under way or wait for their turn."""
        return len(self._fetches)

    def kept(self, tenant: str) -> int:
        """How many tokens of this tenant are kept."""
        return self._tokens.owned(tenant)

    def at_hand(self, client: Credentials) -> Token | None:
        """A token that can be used now; if it expires soon, the fetch of the next one begins."""
        now, key = self._monotonic(), client.identity
        token = self._tokens.get(key, now)
        if token is not None and now >= token.renew_at and key not in self._fetches:
            failed = self._failed.get(key, now)
            if failed is None or now >= failed.again_at:
                self._begin(client)
        return token

    def wait_for(self, client: Credentials, then: Callable[[Found], None]) -> None:
        """Call ``then`` with a new token, later, or with the reason why there is none."""
        now, key = self._monotonic(), client.identity
        fetch = self._fetches.get(key)
        if fetch is None:
            failed = self._failed.get(key, now)
            if failed is not None and now < failed.again_at:
                assert failed.why is not None
                self._loop.call_soon(then, failed.why)
                return
            fetch = self._begin(client)
        fetch.waiting.append(then)

    def newer(self, client: Credentials, refused: Token) -> Token | None:
        """A newer token than the refused one, if there is one."""
        token = self._tokens.get(client.identity, self._monotonic())
        return None if token is refused else token

    def renew(self, client: Credentials, then: Callable[[Found], None]) -> bool:
        """Fetch a token to replace a refused one; False while renewed ones were refused recently.

        The refused token is used meanwhile: another receiver may accept it.
        """
        now = self._monotonic()
        refused = self._refused.get(client.identity, now)
        if refused is not None and now < refused.again_at:
            return False
        self.wait_for(client, then)
        return True

    def refused(self, client: Credentials) -> None:
        """Note that the receiver refused a renewed token as well."""
        now, key = self._monotonic(), client.identity
        before = self._refused.get(key, now)
        self._note(self._refused, client, 1 if before is None else before.count + 1, now)

    def accepted(self, client: Credentials) -> None:
        """Note that the receiver accepted a token."""
        if len(self._refused):
            self._refused.forget(client.identity)

    @staticmethod
    def _note(
        cache: FairCache[bytes, _Wait],
        client: Credentials,
        count: int,
        now: float,
        why: NoToken | None = None,
    ) -> None:
        """Remember a failure for twice its wait, so that another one can double the wait."""
        again_s = wait_s(count)
        wait = _Wait(count, now + again_s, why)
        cache.put(client.tenant, client.identity, wait, now=now, keep_s=2 * again_s)

    # --- fetching -----------------------------------------------------------------------------

    def _begin(self, client: Credentials) -> _Fetch:
        fetch = self._fetches[client.identity] = _Fetch(client)
        self._queue.join(client.tenant, client.identity)
        fetch.timer = self._loop.call_later(QUEUE_S_MAX, self._give_up, fetch)
        self._start_soon()
        return fetch

    def _start_soon(self) -> None:
        if not self._starting:
            self._starting = True
            self._loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        """Start one fetch per turn of the loop: signing an assertion can take milliseconds."""
        self._starting = False
        turn = self._queue.start()
        if turn is None:
            return
        self._start_soon()
        tenant, key = turn
        fetch = self._fetches[key]
        if fetch.timer is not None:
            fetch.timer.cancel()
        try:
            self._send(fetch.client, partial(self._fetched, tenant, fetch))
        except Exception as error:  # noqa: BLE001 - an attempt always ends in a response
            self._loop.call_exception_handler(
                {"message": "a request for a token could not be made", "exception": error}
            )
            why = NoToken(Failure.SENDER_FAULT, f"unexpected {type(error).__name__} in the sender")
            self._end(tenant, fetch, why)

    def _send(self, client: Credentials, done: Callable[[Response], None]) -> None:
        lines, body = token_request(
            client, wall_s=wall_ns() // 1_000_000_000, unique=secrets.token_urlsafe(16)
        )
        request = Request(
            client.tenant,
            client.target,
            lines,
            body,
            FETCH_MS,
            tls=client.tls,
            body_bytes_max=RESPONSE_BYTES_MAX + 1,
        )
        self._inner.send(request, done)

    def _give_up(self, fetch: _Fetch) -> None:
        """End a fetch whose turn did not come in time: a sender-side failure."""
        client = fetch.client
        self._queue.leave(client.tenant, client.identity)
        del self._fetches[client.identity]
        detail = f"its turn did not come within {QUEUE_S_MAX:g} s, because of other token endpoints"
        why = NoToken(
            Failure.SENDER_TOKEN, f"the token endpoint {client.target.host} was not asked: {detail}"
        )
        self._hand_out(fetch.waiting, why)

    def _fetched(self, tenant: str, fetch: _Fetch, response: Response) -> None:
        host, now = fetch.client.target.host, self._monotonic()
        if response.code is not None:
            found: Found = read_token(host, response.code, response.excerpt, now=now)
        else:
            failure = response.failure
            assert failure is not None, "a response is a status code or a failure"
            found = no_response(host, failure, response.detail, ours=failure in SENDER_FAILURES)
        self._end(tenant, fetch, found)

    def _end(self, tenant: str, fetch: _Fetch, found: Found) -> None:
        now, client = self._monotonic(), fetch.client
        key = client.identity
        self._queue.end(tenant)
        self._start_soon()
        del self._fetches[key]
        if isinstance(found, Token):
            self._failed.forget(key)
            self._tokens.put(client.tenant, key, found, now=now, keep_s=found.expires_at - now)
        else:
            before = self._failed.get(key, now)
            count = 1 if before is None else before.count + 1
            self._note(self._failed, client, count, now, found)
            _log.info(
                "no access token was fetched",
                tenant=client.tenant,
                failure=found.failure,
                why=found.detail,
                again_in_s=wait_s(count),
            )
        self._hand_out(fetch.waiting, found)

    def _hand_out(self, waiting: list[Callable[[Found], None]], found: Found) -> None:
        """Continue the attempts that waited for a token, a few per turn of the loop."""
        for then in waiting[:PORTION]:
            try:
                then(found)
            except Exception as error:  # noqa: BLE001 - one attempt must not end the others
                message = "the callback of an attempt failed"
                self._loop.call_exception_handler({"message": message, "exception": error})
        if len(waiting) > PORTION:
            self._loop.call_soon(self._hand_out, waiting[PORTION:], found)


class OAuthSender:
    """A sender that adds access tokens to the requests that have credentials."""

    def __init__(
        self,
        inner: Sender,
        *,
        monotonic: Callable[[], float] = system_monotonic,
        clients_max: int = CLIENTS_MAX,
    ) -> None:
        self._inner, self._monotonic = inner, monotonic
        self.tokens = Tokens(inner, monotonic=monotonic, clients_max=clients_max)

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        """Begin one attempt; ``done`` is called later on the loop, exactly once."""
        if request.credentials is None:
            self._inner.send(request, done)
        else:
            attempt = _Attempt(
                self._inner, self.tokens, request, request.credentials, done, self._monotonic
            )
            attempt.begin()

    async def close(self) -> None:
        """Close the inner sender."""
        await self._inner.close()


class _Attempt:
    """One request with credentials, until ``done`` is called with its response."""

    __slots__ = (
        "_begun_at",
        "_client",
        "_done",
        "_inner",
        "_monotonic",
        "_note",
        "_repeated",
        "_request",
        "_token",
        "_tokens",
    )

    def __init__(
        self,
        inner: Sender,
        tokens: Tokens,
        request: Request,
        client: Credentials,
        done: Callable[[Response], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._inner, self._tokens, self._client = inner, tokens, client
        self._request, self._done, self._monotonic = request, done, monotonic
        self._begun_at = monotonic()
        self._token: Token | None = None
        self._note = ""  # about tokens, for the log of attempts
        self._repeated = False

    def begin(self) -> None:
        token = self._tokens.at_hand(self._client)
        if token is None:
            self._tokens.wait_for(self._client, self._found)
        else:
            self._send(token)

    def _found(self, found: Found) -> None:
        """Continue after the fetch of a first token, or of a newer one after a 401."""
        passed_ms = (self._monotonic() - self._begun_at) * 1000
        if isinstance(found, Token) and not self._is_wanted():
            found = UNWANTED
        if isinstance(found, Token):
            after = " after a 401 from the receiver" if self._repeated else ""
            self._note = f"a new access token was fetched{after} ({passed_ms:.0f} ms)"
            self._send(found)
            return
        detail = found.detail + (" (after a 401 from the receiver)" if self._repeated else "")
        phases = Phases(total_us=int(passed_ms * 1000))
        self._finish(Response(None, found.failure, detail, None, phases))

    def _send(self, token: Token) -> None:
        self._token = token
        line = b"authorization: Bearer " + token.value.encode() + b"\r\n"
        request = replace(
            self._request, header_block=self._request.header_block + line, credentials=None
        )
        self._inner.send(request, self._responded)

    def _responded(self, response: Response) -> None:
        tokens, client = self._tokens, self._client
        if response.code != 401:
            if response.code is not None:
                tokens.accepted(client)
        elif self._repeated:
            tokens.refused(client)
        elif self._is_wanted():
            assert self._token is not None
            self._repeated = True
            newer = tokens.newer(client, self._token)
            if newer is not None:
                self._note = "repeated with a newer access token after a 401 from the receiver"
                self._send(newer)
                return
            if tokens.renew(client, self._found):
                return
        self._finish(response)

    def _is_wanted(self) -> bool:
        return self._request.is_wanted is None or self._request.is_wanted()

    def _finish(self, response: Response) -> None:
        if self._note:
            detail = f"{response.detail} ({self._note})" if response.detail else self._note
            response = replace(response, detail=detail)
        self._done(response)
