"""The receiver behind ``homing listen``: it subscribes itself, answers as told, and tidies up."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence

from msgspec import Struct

from homing.cli.listen_show import Shown, show_request
from homing.cli.output import console, nothing, plain, say_json
from homing.cli.receiver import Arrived, receiving
from homing.cli.trouble import Failed, Usage
from homing.cli.where import Where, no_server
from homing.client import (
    AsyncHoming,
    HomingClientError,
    Invalid,
    NewSubscription,
    NotTrusted,
    NotVerified,
    Unreachable,
    verify,
)
from homing.client.values import SubscriptionOptions

GOOD = 204


class Manners(Struct, frozen=True):
    """How it answers."""

    fail: int | None = None
    rate: float = 1.0
    for_s: float | None = None
    slow_s: float = 0.0

    def answer(self, *, after_s: float, chance: float) -> tuple[int, float]:
        """The status and how long it takes, this long after the beginning."""
        over = self.for_s is not None and after_s >= self.for_s
        if over or chance >= self.rate:
            return GOOD, 0.0
        return self.fail or GOOD, self.slow_s

    def sentence(self) -> str:
        """What it was told; empty where it is simply good."""
        if self.fail is None and not self.slow_s:
            return ""
        what = f"answers {self.fail or GOOD}"
        what += f" after {self.slow_s:g} s" if self.slow_s else ""
        what += f" to {self.rate:.0%} of the requests" if self.rate < 1 else ""
        return what + (f" for {self.for_s:g} s, then 204" if self.for_s is not None else "")


class Listener:
    """One run of ``homing listen``."""

    def __init__(self, where: Where, manners: Manners, *, count: int | None, json: bool) -> None:
        self._where, self._manners, self._left, self._json = where, manners, count, json
        self._out = console()
        self._subscribed: NewSubscription | None = None
        self._done = asyncio.Event()
        self._chance = random.Random()  # noqa: S311 - it decides about a test's answers only
        self._began = 0.0

    def run(
        self,
        *,
        types: Sequence[str],
        host: str,
        port: int,
        url: str | None,
        tenant: str | None,
        keep: bool,
    ) -> None:
        """Until Ctrl-C, SIGTERM or the last request that was asked for."""

        async def work() -> None:
            loop = asyncio.get_running_loop()
            self._began = loop.time()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._done.set)
            try:
                async with receiving(self._handle, host=host, port=port) as taken:
                    shown = f"[{host}]" if ":" in host else host
                    await self._stay(url or f"http://{shown}:{taken}/", types, tenant, keep=keep)
            except OSError as error:
                raise Usage(f"{host}:{port} cannot be listened on: {error.strerror}.") from None

        asyncio.run(work())

    async def _stay(
        self, url: str, types: Sequence[str], tenant: str | None, *, keep: bool
    ) -> None:
        options: SubscriptionOptions = {"description": "homing listen"}
        if tenant is not None:
            options["tenant"] = tenant
        async with AsyncHoming(self._where.url, self._where.key) as client:
            try:
                await client.ready()
            except (Unreachable, NotTrusted) as error:
                raise no_server(self._where.url, error) from None
            try:
                made = await client.subscribe(url, types, **options)
            except Invalid as error:
                raise _refused(error, url) from None
            self._subscribed = made
            self._greet(made)
            try:
                await self._done.wait()
            finally:
                if not keep:
                    await self._leave(client, made)

    async def _leave(self, client: AsyncHoming, made: NewSubscription) -> None:
        try:
            await client.delete_subscription(made.id)
        except HomingClientError as error:
            nothing(f"The subscription {made.id} could not be removed: {error}")
        else:
            if not self._json:
                nothing(f"Unsubscribed {made.id}; what was pending is cancelled.")

    def _greet(self, made: NewSubscription) -> None:
        if self._json:
            say_json({"listening": made.url, "subscription": made.id, "endpoint": made.endpoint})
            return
        self._out.print(f"Listening at {plain(made.url)}", style="bold", soft_wrap=True)
        types = ", ".join(made.types)
        self._out.print(f"  subscribed as {made.id} to {plain(types)}", style="dim")
        if told := self._manners.sentence():
            self._out.print(f"  {told}", style="yellow")
        self._out.print("  Ctrl-C ends it and unsubscribes", style="dim")

    # --- one request -------------------------------------------------------------------------

    async def _handle(self, request: Arrived) -> int:
        loop = asyncio.get_running_loop()
        after = loop.time() - self._began
        status, slow_s = self._manners.answer(after_s=after, chance=self._chance.random())
        trouble = self._check(request)
        if trouble:
            status = 401
        shown = Shown(request=request, trouble=trouble, status=status, slow_s=slow_s)
        if self._json:
            say_json(shown.document())
        else:
            show_request(self._out, shown)
        if slow_s:
            await asyncio.sleep(slow_s)
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                # Answer first, then go.
                loop.call_later(0.2, self._done.set)
        return status

    def _check(self, request: Arrived) -> str:
        """What is wrong with the signature; empty if nothing is."""
        if self._subscribed is None:
            return "It came before the subscription was made."
        try:
            verify(request.headers, request.body, self._subscribed.secret)
        except NotVerified as error:
            return str(error)
        return ""


def _refused(error: Invalid, url: str) -> Failed:
    reasons = "; ".join(f"{one.field} {one.reason}" for one in error.problems)
    hint = ""
    if any(one.field == "url" for one in error.problems):
        hint = (
            " Restart it with `homing serve --allow-loopback`, or say with --url under which URL "
            "it sees this machine."
        )
    return Failed(f"The server does not take {url}: {reasons}.{hint}")
