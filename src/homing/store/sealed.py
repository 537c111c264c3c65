"""Tokens, secrets and header values sealed on their way into the store, opened on their way out.

It stands in front of the ports, in the process that signs: the writer's process and the database
never see the plain text nor the key.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from homing.model import SPEC, Endpoint, Kind, Secret, Subscription, show_id
from homing.policy.seal import NONCE_BYTES, Sealer
from homing.ports import AdminStore, SealStore, ViewStore

PAGE = 500


class Envelopes:
    """Subscriptions, sealed and opened."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal(self, sub: Subscription) -> Subscription:
        def seal(text: str, field: str) -> str:
            nonce = secrets.token_bytes(NONCE_BYTES)
            return self._sealer.seal(text, _about(sub, field), nonce)

        return _each(sub, seal)

    def open(self, sub: Subscription) -> Subscription:
        return _each(sub, lambda text, field: self._sealer.open(text, _about(sub, field)))

    def is_current(self, sub: Subscription) -> bool:
        return all(self._sealer.is_current(text) for text in _texts(sub))

    def has_plaintext(self, sub: Subscription) -> bool:
        return not all(self._sealer.is_sealed(text) for text in _texts(sub))


def _texts(sub: Subscription) -> list[str]:
    """Every text of a subscription that is secret."""
    texts: list[str] = []

    def note(text: str, _field: str) -> str:
        texts.append(text)
        return text

    _each(sub, note)
    return texts


def _each(sub: Subscription, change: Callable[[str, str], str]) -> Subscription:
    """The subscription with every secret text changed."""
    values: dict[str, Any] = {}
    for name, field in SPEC.items():
        value = getattr(sub, name)
        if not field.secret or value is None:
            continue
        if field.kind is Kind.PAIRS:
            values[name] = tuple(
                (key, change(text, f"{field.option} {key}")) for key, text in value
            )
        else:
            values[name] = change(value, name)
    signing = tuple(Secret(change(it.value, "secret"), it.until) for it in sub.secrets)
    return replace(sub, secrets=signing, **values)


def _about(sub: Subscription, field: str) -> str:
    return f"{show_id('sub', sub.id)} {field}"


class _Front:
    """Everything but what is sealed goes straight on."""

    def __init__(self, store: Any, envelopes: Envelopes) -> None:
        self._store, self._envelopes = store, envelopes

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._store, method)
        setattr(self, method, found)  # Once for each method.
        return found


class SealedAdmin(_Front):
    """``AdminStore`` in front of another."""

    _store: AdminStore

    async def subscriptions_since(self, version: int) -> list[Subscription]:
        return [self._envelopes.open(it) for it in await self._store.subscriptions_since(version)]

    async def create_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint
    ) -> Subscription:
        sealed = self._envelopes.seal(subscription)
        stored = await self._store.create_subscription(sealed, endpoint=endpoint)
        return self._envelopes.open(stored)

    async def change_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint, chore_id: int
    ) -> Subscription:
        stored = await self._store.change_subscription(
            self._envelopes.seal(subscription), endpoint=endpoint, chore_id=chore_id
        )
        return self._envelopes.open(stored)

    async def change_pair(
        self,
        subscription: Subscription,
        twin: Subscription,
        *,
        endpoint: Endpoint,
        chore_ids: tuple[int, int],
    ) -> Subscription:
        seal = self._envelopes.seal
        stored = await self._store.change_pair(
            seal(subscription), seal(twin), endpoint=endpoint, chore_ids=chore_ids
        )
        return self._envelopes.open(stored)

    async def delete_pair(
        self,
        subscription: Subscription,
        twin: Subscription | None,
        *,
        now: int,
        chore_ids: tuple[int, int],
    ) -> Subscription:
        stored = await self._store.delete_pair(subscription, twin, now=now, chore_ids=chore_ids)
        return self._envelopes.open(stored)

    async def delete_subscription(
        self, subscription_id: int, *, now: int, chore_id: int
    ) -> Subscription:
        stored = await self._store.delete_subscription(subscription_id, now=now, chore_id=chore_id)
        return self._envelopes.open(stored)


class SealedViews(_Front):
    """``ViewStore`` in front of another."""

    _store: ViewStore

    async def subscriptions(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        found, after = await self._store.subscriptions(
            tenant=tenant, before_id=before_id, limit=limit
        )
        return [self._envelopes.open(it) for it in found], after

    async def subscription(self, subscription_id: int) -> Subscription | None:
        found = await self._store.subscription(subscription_id)
        return None if found is None else self._envelopes.open(found)


async def seal_what_is_open(store: SealStore, sealer: Sealer) -> int:
    """Seal with the first key what another key sealed, or none did; how many it were.

    A subscription that is changed meanwhile is left: whoever changed it has sealed it.
    """
    envelopes, done, after_id = Envelopes(sealer), 0, 0
    while page := await store.sealed_page(after_id, limit=PAGE):
        old = [it for it in page if not envelopes.is_current(it)]
        plaintext = any(envelopes.has_plaintext(it) for it in old)
        sealed = [envelopes.seal(envelopes.open(it)) for it in old]
        await store.seal_again(sealed, plaintext=plaintext)
        done, after_id = done + len(old), page[-1].id
    await store.all_sealed(sealer.ids[0])
    return done
