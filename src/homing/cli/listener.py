"""``homing listen``: a receiver that creates its own subscription, verifies and shows requests.

It can be made to fail or to respond slowly, so that retries can be watched.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.rule import Rule
from rich.text import Text

from homing.cli.errors import Failed, Usage
from homing.cli.output import clock_ms, console, note, plain, print_json, time_of
from homing.cli.receiver import ReceivedRequest, receiver
from homing.cli.remote import Target, no_server
from homing_client import (
    AsyncHoming,
    HomingClientError,
    Invalid,
    NewSubscription,
    NotTrusted,
    NotVerified,
    Unreachable,
    verify,
)
from homing_client.subscription import SubscriptionOptions

GOOD = 204
BODY_CHARS_MAX = 4_000
RULE_WIDTH_MAX = 100
_BRIGHT = ("webhook-", "homing-")


class Behaviour(Struct, frozen=True):
    """How the receiver responds."""

    fail: int | None = None
    rate: float = 1.0
    for_s: float | None = None
    slow_s: float = 0.0

    def response(self, *, after_s: float, random_fraction: float) -> tuple[int, float]:
        """The status and the delay of a response, this long after the start."""
        over = self.for_s is not None and after_s >= self.for_s
        if over or random_fraction >= self.rate:
            return GOOD, 0.0
        return self.fail or GOOD, self.slow_s

    def sentence(self) -> str:
        """The behaviour in words; empty if every response is good."""
        if self.fail is None and not self.slow_s:
            return ""
        text = f"responds with {self.fail or GOOD}"
        text += f" after {self.slow_s:g} s" if self.slow_s else ""
        text += f" to {self.rate:.0%} of the requests" if self.rate < 1 else ""
        return text + (f" for {self.for_s:g} s, then with 204" if self.for_s is not None else "")


class Listener:
    """One run of ``homing listen``."""

    def __init__(
        self, target: Target, behaviour: Behaviour, *, count: int | None, json: bool
    ) -> None:
        self._target, self._behaviour, self._remaining, self._json = target, behaviour, count, json
        self._out = console()
        self._subscribed: NewSubscription | None = None
        self._done = asyncio.Event()
        self._random = random.Random()  # noqa: S311 - it decides about test responses only
        self._started = 0.0

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
        """Run until Ctrl-C, SIGTERM or the last of ``count`` requests."""

        async def work() -> None:
            loop = asyncio.get_running_loop()
            self._started = loop.time()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._done.set)
            try:
                async with receiver(self._handle, host=host, port=port) as bound:
                    name = f"[{host}]" if ":" in host else host
                    await self._run(url or f"http://{name}:{bound}/", types, tenant, keep=keep)
            except OSError as error:
                raise Usage(f"Cannot listen on {host}:{port}: {error.strerror}.") from None

        asyncio.run(work())

    async def _run(self, url: str, types: Sequence[str], tenant: str | None, *, keep: bool) -> None:
        options: SubscriptionOptions = {"description": "homing listen"}
        if tenant is not None:
            options["tenant"] = tenant
        async with AsyncHoming(self._target.url, self._target.key) as client:
            try:
                await client.ready()
            except (Unreachable, NotTrusted) as error:
                raise no_server(self._target.url, error) from None
            try:
                made = await client.subscribe(url, types, **options)
            except Invalid as error:
                raise _url_refused(error, url) from None
            self._subscribed = made
            self._print_start(made, keep=keep)
            try:
                await self._done.wait()
            finally:
                if not keep:
                    await self._unsubscribe(client, made)

    async def _unsubscribe(self, client: AsyncHoming, made: NewSubscription) -> None:
        try:
            await client.delete_subscription(made.id)
        except HomingClientError as error:
            note(f"The subscription {made.id} could not be deleted: {error}")
        else:
            if not self._json:
                note(f"Deleted the subscription {made.id}; its pending deliveries are cancelled.")

    def _print_start(self, made: NewSubscription, *, keep: bool) -> None:
        if self._json:
            print_json({"listening": made.url, "subscription": made.id, "endpoint": made.endpoint})
            return
        self._out.print(f"Listening at {plain(made.url)}", style="bold", soft_wrap=True)
        types = ", ".join(made.types)
        self._out.print(f"  subscribed as {made.id} to {plain(types)}", style="dim")
        if behaviour := self._behaviour.sentence():
            self._out.print(f"  {behaviour}", style="yellow")
        end = "keeps the subscription" if keep else "deletes the subscription"
        self._out.print(f"  Ctrl-C ends it and {end}", style="dim")

    async def _handle(self, request: ReceivedRequest) -> int:
        loop = asyncio.get_running_loop()
        after_s = loop.time() - self._started
        status, slow_s = self._behaviour.response(
            after_s=after_s, random_fraction=self._random.random()
        )
        error = self._verify(request)
        if error:
            status = 401
        handled = Handled(request=request, error=error, status=status, slow_s=slow_s)
        if self._json:
            print_json(handled.document())
        else:
            _print_request(self._out, handled)
        if slow_s:
            await asyncio.sleep(slow_s)
        if self._remaining is not None:
            self._remaining -= 1
            if self._remaining <= 0:
                loop.call_later(0.2, self._done.set)  # The response is sent first.
        return status

    def _verify(self, request: ReceivedRequest) -> str:
        """Why the request is not verified; empty if it is."""
        if self._subscribed is None:
            return "The request came before the subscription was created."
        try:
            verify(request.headers, request.body, self._subscribed.secret)
        except NotVerified as error:
            return str(error)
        return ""


def _url_refused(error: Invalid, url: str) -> Failed:
    reasons = "; ".join(f"{one.field} {one.reason}" for one in error.problems)
    hint = ""
    if any(one.field == "url" for one in error.problems):
        hint = (
            " Restart the server with `homing serve --allow-loopback`, or give with --url a URL at "
            "which the server reaches this machine."
        )
    return Failed(f"The server refuses {url}: {reasons}.{hint}")


# --- printing a request ---------------------------------------------------------------------


class Handled(Struct, frozen=True):
    """A request, the reason if it is not verified, and the response."""

    request: ReceivedRequest
    error: str
    status: int
    slow_s: float

    def document(self) -> dict[str, Any]:
        """The request as JSON."""
        request = self.request
        try:
            body: Any = msgspec.Raw(_formatted(request.body, indent=-1))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            body = request.body.decode("utf-8", "replace")
        attempt = request.header("homing-attempt")
        return {
            "method": request.method,
            "path": request.path,
            "headers": {name.lower(): value for name, value in request.headers},
            "body": body,
            "verified": not self.error,
            "error": self.error or None,
            "type": request.header("homing-event-type") or None,
            "delivery": request.header("homing-delivery") or None,
            "attempt": int(attempt) if attempt.isdecimal() else None,
            "responded": self.status,
        }


def _print_request(out: Console, handled: Handled) -> None:
    """Print method and path, headers, body, and a line with the result."""
    request = handled.request
    title = Text.assemble(
        (f"{time_of(clock_ms())} ", "dim"),
        (plain(request.header("homing-event-type")) or "a request", "bold"),
        (f" · attempt {plain(request.header('homing-attempt')) or '?'} ", "dim"),
    )
    out.print()
    out.print(Rule(title, align="left", style="dim"), width=min(out.width, RULE_WIDTH_MAX))
    out.print(Text.assemble((request.method, "bold cyan"), f" {plain(request.path)}"))
    for name, value in request.headers:
        style = "" if name.lower().startswith(_BRIGHT) else "dim"
        out.print(Text(f"{plain(name)}: {plain(value)}", style=style or "cyan"), soft_wrap=True)
    out.print()
    out.print(_body(request.body), soft_wrap=True)
    out.print()
    out.print(_result(handled), soft_wrap=True)


def _formatted(body: bytes, *, indent: int) -> bytes:
    """JSON with other whitespace, otherwise unchanged; raises DecodeError if it is not JSON."""
    body.decode()
    msgspec.json.decode(body, type=msgspec.Raw)
    return msgspec.json.format(body, indent=indent)


def _body(body: bytes) -> Text:
    try:
        text = _formatted(body, indent=2).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        text = body.decode("utf-8", "replace")
    lines = "\n".join(plain(line) for line in text.splitlines())
    cut = lines[:BODY_CHARS_MAX]
    highlighted = JSONHighlighter()(Text(cut))
    if len(lines) > len(cut):
        highlighted.append(f"\n… {len(lines) - len(cut):,} more characters", "dim")
    return highlighted


def _result(handled: Handled) -> Text:
    text = Text()
    if handled.error:
        text.append(f"✗ not verified: {plain(handled.error)}", "bold red")
    else:
        text.append("✓ verified", "green")
    good = 200 <= handled.status < 300
    text.append("  → ", "dim")
    text.append(f"responded with {handled.status}", "green" if good else "red")
    if handled.slow_s:
        text.append(f" after {handled.slow_s:g} s", "yellow")
    delivery = plain(handled.request.header("homing-delivery"))
    if delivery:
        text.append(f"  homing deliveries show {delivery}", "dim")
    return text
