"""Subscriptions with OAuth 2.0: token endpoints in trouble, tokens that end or are revoked.

What fetches, shares and renews tokens is the real code (``net/oauth``), on virtual time. The token
endpoints and the receivers' check of a token are functions here. These rules are checked from what
went over the wire, which no code of the sender has told:

- a 401 reaches the engine only after two different tokens were refused, or soon after that (T1);
- a fetch that failed on our side is a sender-side failure, all others are the token endpoint's, and
  with neither an attempt does not fail for want of a token (T2);
- one fetch per client is under way, and none within a second of a failed one (T3);
- a token goes only to receivers of the tenant that it was issued to (T4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from homing.model import Failure
from homing.net.oauth import UNWANTED, OAuthSender
from homing.policy.outcome import SENDER_FAILURES
from homing.ports import Request, Response
from homing.sim.world import Hit, Reply, Watch, World
from simulation.health_model import HOUR
from simulation.lives import Life, LifeSender
from simulation.reference import Reference

TOKEN_URL = "https://auth.example/token"
CLIENT = {"oauth_token_url": TOKEN_URL, "oauth_client_id": "homing", "oauth_client_secret": "s"}
FAULTS = ("401", "500", "garbage", "hang", "refused", "dns", "sender_dns", "sender_network")
KINDS = frozenset((*(f"token_{it}" for it in FAULTS), "token_revoked", "token_refused_always"))
SPELLS_MS = (20_000, 2 * 60_000, 20 * 60_000)
LIVES_S = (30, 300, 3600)
AGAIN_MS = 60_000  # the longest wait after tokens that were refused
SOON_MS = 1_000  # A token endpoint that failed is not asked again sooner.


@dataclass
class _Client:
    """What the token endpoint knows of a tenant's client; ``until`` ends its present trouble."""

    asked: int = 0  # requests under way
    failed_at: int | None = None
    ours: bool | None = None  # the last fetch failed: whether on our side
    twice_refused_at: int = -AGAIN_MS
    until: int = 0
    fault: str | None = None


@dataclass
class Tokens:
    """The token endpoint of all tenants, and what receivers know of its tokens."""

    rng: Random
    reference: Reference
    fire: Callable[[str], None]
    healed: bool = False
    issued: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # tenant, life, end
    clients: dict[tuple[int, str], _Client] = field(default_factory=dict)  # by life and tenant
    refuses_until: dict[str, int] = field(default_factory=dict)  # URLs that refuse every token

    def client(self, life: int, tenant: str) -> _Client:
        return self.clients.setdefault((life, tenant), _Client())

    def issue(self, life: int, tenant: str, now: int) -> Reply:
        """The reply of the token endpoint."""
        client, rng = self.client(life, tenant), self.rng
        must = self.reference.must
        must(client.asked == 0, "T3", lambda: f"{tenant} has two fetches under way")
        since = now - (client.failed_at if client.failed_at is not None else -HOUR)
        must(since >= SOON_MS, "T3", lambda: f"{tenant} asks again {since} ms after a failure")
        client.asked += 1
        if client.until <= now:
            client.fault = rng.choice((None, rng.choice(FAULTS)))
            ours = (client.fault or "").startswith("sender_")
            client.until = now + rng.choice(SPELLS_MS[:2] if ours else SPELLS_MS)
        if client.fault is None or self.healed:
            value, life_s = f"{tenant}-{len(self.issued)}", rng.choice(LIVES_S)
            self.issued[value] = (tenant, life, now + 1000 * life_s)
            body = f'{{"access_token": "{value}", "expires_in": {life_s}}}'
            return Reply(latency_ms=rng.choice((0, 3, 400)), excerpt=body.encode())
        self.fire(f"token_{client.fault}")
        match client.fault:
            case "401" | "500":
                return Reply(code=int(client.fault), latency_ms=3)
            case "garbage":
                return Reply(latency_ms=3, excerpt=b"<html>")
            case "hang":
                return Reply(latency_ms=10 * HOUR)
            case failure:
                return Reply(None, Failure(failure), latency_ms=3)

    def accepts(self, hit: Hit, tenant: str, token: str, now: int) -> bool:
        """Whether the receiver accepts a token; tokens are revoked now and then."""
        owner, life, ends_at = self.issued[token]
        self.reference.must(
            (owner, life) == (tenant, hit.life), "T4", lambda: f"{tenant} has a token of {owner}"
        )
        if self.healed:
            return ends_at > now
        if self.rng.random() < 0.05:
            self.fire("token_revoked")
            self.issued[token] = (owner, life, 0)
            return False
        if self.rng.random() < 0.01:
            self.fire("token_refused_always")
            self.refuses_until[hit.url] = now + self.rng.choice(SPELLS_MS)
        return ends_at > now and self.refuses_until.get(hit.url, 0) <= now


class AuthorizingSender(LifeSender):
    """The sender of a life, with the real ``OAuthSender`` before its network."""

    def __init__(self, tokens: Tokens, world: World, life: Life) -> None:
        super().__init__(world, life)
        self._tokens = tokens
        network = SimpleNamespace(watch=Watch(), scripts={}, otherwise=self._reply)
        wire = _Wire(self, cast("World", network), life)
        self._oauth = OAuthSender(wire, monotonic=asyncio.get_running_loop().time)
        self._refused: dict[tuple[str, int], set[str]] = {}  # tokens, by delivery and attempt
        self.tenant = ""  # of the request that is being sent

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        if not self._life.alive:
            return
        hit = self.begin(request)
        if request.credentials is None:
            self.ask(hit, done)
            return
        self._refused[hit.delivery, hit.number] = set()

        def responded(response: Response) -> None:
            if self._life.alive:
                self._check(hit, request.tenant, response)
                self.finish(hit, response, done)

        self._oauth.send(request, responded)

    def _now(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def _reply(self, hit: Hit) -> Reply:
        """What comes over the wire: from the token endpoint, or from a receiver."""
        tokens, now = self._tokens, self._now()
        if hit.url == TOKEN_URL:
            return tokens.issue(self._life.number, self.tenant, now)
        token = hit.headers["authorization"].removeprefix("Bearer ")
        if tokens.accepts(hit, self.tenant, token, now):
            return self._world.scripts.get(hit.url, self._world.otherwise)(hit)
        self._refused[hit.delivery, hit.number].add(token)
        return Reply(code=401, latency_ms=3)

    def fetched(self, tenant: str, response: Response) -> None:
        """A fetch is over: note whose failure it was."""
        client = self._tokens.client(self._life.number, tenant)
        client.asked -= 1
        good = response.code == 200 and response.excerpt.startswith(b"{")
        client.failed_at = None if good else self._now()
        client.ours = None if good else response.failure in SENDER_FAILURES

    def _check(self, hit: Hit, tenant: str, response: Response) -> None:
        must, now = self._tokens.reference.must, self._now()
        client = self._tokens.client(self._life.number, tenant)
        refused = self._refused.pop((hit.delivery, hit.number))
        if response.code == 401 and refused:
            soon = now - client.twice_refused_at <= AGAIN_MS
            must(
                len(refused) > 1 or soon,
                "T1",
                lambda: f"{hit.delivery} #{hit.number} fails with the refused token {refused}",
            )
        if len(refused) > 1:
            client.twice_refused_at = now
        failure = response.failure
        if failure in {Failure.TOKEN, Failure.SENDER_TOKEN}:
            # What a request is about was changed while it waited: its token is not used.
            unwanted = response.detail.startswith(UNWANTED.detail)
            must(
                client.ours is (failure is Failure.SENDER_TOKEN) or unwanted,
                "T2",
                lambda: f"{failure} when the fetch was ours={client.ours}",
            )


class _Wire(LifeSender):
    """The network behind ``OAuthSender``."""

    def __init__(self, outer: AuthorizingSender, world: World, life: Life) -> None:
        super().__init__(world, life)
        self._outer = outer

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        tenant = self._outer.tenant = request.tenant
        if f"https://{request.target.authority}{request.target.path}" != TOKEN_URL:
            super().send(request, done)
            return

        def fetched(response: Response) -> None:
            self._outer.fetched(tenant, response)
            done(response)

        super().send(request, fetched)

    async def close(self) -> Any: ...
