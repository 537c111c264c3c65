"""Asks receivers to prove that they own their URL.

A challenge is sent like an attempt: through the same guard, with the subscription's deadline. It
carries neither the token nor the headers of the subscription, which an unproved URL must not get.
Challenges are limited per host, per tenant and in all, so that nobody can flood a URL with them. At
a host and in all, tenants have shares: no tenant uses up what others need to prove their URLs. No
lock is held while a receiver is asked.
"""

from __future__ import annotations

import asyncio
from collections import deque

from msgspec.structs import replace

from homing import __version__
from homing.engine.attempt import RequestTemplate
from homing.engine.core import Core
from homing.engine.sample import sample_work
from homing.errors import TooMany
from homing.languages.sentences import say
from homing.model import Format, Subscription, Verification, Work
from homing.policy.authentication import without_authentication
from homing.policy.certificates import identity_of
from homing.policy.share import Share
from homing.policy.url import parse_url
from homing.policy.verification import (
    ALL_PER_MINUTE_MAX,
    ALL_RESERVE,
    EVENT_TYPE,
    HOST_PER_MINUTE_MAX,
    HOST_RESERVE,
    TENANT_PER_MINUTE_MAX,
    Proof,
    challenge_body,
    handshake_headers,
    judge_echo,
    judge_handshake,
)
from homing.ports import Request, Response
from homing.ports.audit import must_still_act

MINUTE_MS = 60_000


class Challenges:
    """Sends challenges and judges their responses."""

    def __init__(self, core: Core) -> None:
        self._sender, self._clock, self._ids = core.sender, core.clock, core.ids
        self._options, self._signer_of = core.options, core.catalog.signer_of
        # The challenges of the last minute: when, to which host, of which tenant. The limit of all
        # challenges bounds its length.
        self._sent: deque[tuple[int, str, str]] = deque()
        self._all = Share(ALL_PER_MINUTE_MAX, reserve=ALL_RESERVE)
        self._at_host: dict[str, Share] = {}

    async def ask(self, subscription: Subscription, challenge: str) -> Proof:
        """The proof of a receiver, or why there is none; raises TooMany.

        Raises NotAuthorized if the caller's key, session or link ended in the meantime.
        ``challenge`` is a random text that nobody else knows.
        """
        self._count(subscription)
        if subscription.verification is Verification.CLOUDEVENTS:
            proof = await self._handshake(subscription)
        else:
            proof = await self._challenge(subscription, challenge)
        await must_still_act()
        return proof

    async def _challenge(self, subscription: Subscription, challenge: str) -> Proof:
        now, wall = self._clock.now(), self._clock.wall()
        bare = without_authentication(replace(subscription, format=Format.RAW, headers=()))
        work = sample_work(bare, number=self._ids.take(now), now=now, wall=wall)
        event = replace(work.event, type=EVENT_TYPE, data=challenge_body(challenge))
        template = RequestTemplate(
            bare,
            deadline_ms=self._options.deadline_of(subscription),
            signer_of=self._signer_of,
        )
        request, _ = template.write(Work(work.delivery, event), number=1, now=now, wall=wall)
        it = await self._send(request)
        return judge_echo(
            challenge, code=it.code, failure=it.failure, detail=it.detail, body=it.excerpt
        )

    async def _handshake(self, subscription: Subscription) -> Proof:
        origin = self._options.origin
        lines = f"user-agent: homing/{__version__}\r\n".encode()
        request = Request(
            subscription.tenant,
            parse_url(subscription.url)[1],
            lines + handshake_headers(origin, subscription.rate_per_second),
            b"",
            self._options.deadline_of(subscription),
            identity_of(subscription),
            method=b"OPTIONS",
        )
        it = await self._send(request)
        return judge_handshake(
            origin, code=it.code, failure=it.failure, detail=it.detail, headers=it.headers
        )

    async def _send(self, request: Request) -> Response:
        responded: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def done(response: Response) -> None:
            if not responded.done():  # The caller may have gone away.
                responded.set_result(response)

        self._sender.send(request, done)
        return await responded

    def _count(self, subscription: Subscription) -> None:
        """Count a challenge; raises TooMany if the tenant, or its share, has no more of them."""
        now, tenant = self._clock.now(), subscription.tenant
        host, sent = parse_url(subscription.url)[1].host, self._sent
        self._forget(now - MINUTE_MS)
        at_host = self._at_host.get(host) or Share(HOST_PER_MINUTE_MAX, reserve=HOST_RESERVE)
        why, of_what = None, [at for at, _, one in sent if one == tenant]
        if not self._all.may_take(tenant):
            why = say("Too many challenges in all were sent in the last minute: try again later.")
            of_what = [at for at, _, _ in sent]
        elif not at_host.may_take(tenant):
            why = say(
                "Too many challenges to the host {host} were sent in the last minute: try again "
                "later.",
                host=host,
            )
            of_host = [(at, it) for at, one, it in sent if one == host]
            of_what = [at for at, it in of_host if it == tenant] or [at for at, _ in of_host]
        elif len(of_what) >= TENANT_PER_MINUTE_MAX:
            why = say(
                "Too many challenges of this tenant were sent in the last minute: try again later."
            )
        if why is not None:
            raise TooMany(why, after_ms=max(1_000, of_what[0] + MINUTE_MS - now))
        self._at_host[host] = at_host
        self._all.take(tenant)
        at_host.take(tenant)
        sent.append((now, host, tenant))

    def _forget(self, upto: int) -> None:
        """Return what was taken until then."""
        while self._sent and self._sent[0][0] <= upto:
            _, host, tenant = self._sent.popleft()
            self._all.give(tenant)
            at_host = self._at_host[host]
            at_host.give(tenant)
            if at_host.free == at_host.total:
                del self._at_host[host]
