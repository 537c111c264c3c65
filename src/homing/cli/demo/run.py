"""Runs the demo: puts its world together, tells its story, shows it live or line by line."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from homing.cli.demo.rules import SPEED, demo_options, demo_rules, demo_schedule, policy_lines
from homing.cli.demo.story import tell
from homing.cli.demo.view import Line, View, sentences
from homing.cli.demo.world import World
from homing.cli.logs import configure_logs
from homing.cli.output import console, row, say_json, table, word
from homing.client import AsyncHoming
from homing.server.serve import serving
from homing.server.settings import (
    DatabaseSettings,
    DeliverySettings,
    ListenSettings,
    ReachSettings,
    Settings,
)

FRAME_S = 0.1
READ_IT_S = 4.0  # the policy is read before the picture covers it


def run_demo(*, speed: int, json: bool) -> None:
    """In a data directory of its own, which is gone afterwards."""
    configure_logs(level="error", form="console")
    terminal = console()
    with tempfile.TemporaryDirectory(prefix="homing-demo-") as directory:
        asyncio.run(_Demo(terminal, speed=speed, json=json).run(directory))


class _Demo:
    def __init__(self, terminal: Console, *, speed: int, json: bool) -> None:
        self._terminal, self._speed, self._json = terminal, speed, json
        self._live = terminal.is_terminal and not json
        self._view: View | None = None

    async def run(self, directory: str) -> None:
        key = "hk_" + secrets.token_urlsafe(24)
        schedule = demo_schedule(self._speed)
        settings = Settings(
            listen=ListenSettings(address="127.0.0.1:0"),
            database=DatabaseSettings(data=directory),
            reach=ReachSettings(allow_loopback=True),
            delivery=DeliverySettings(
                grace_ms=2_000,
                policies={schedule.name: schedule},
                policy=schedule.name,
                health=demo_rules(self._speed),
            ),
        )
        options = demo_options(self._speed)
        async with (
            serving(settings, admin_key=key, options=options) as (address, house),
            AsyncHoming(address, key) as client,
            World(house, client, options.health, self._say).inhabited() as world,
        ):
            await self._open(address, key)
            self._view = view = View(world, speed=self._speed, address=address)
            try:
                async with self._picture(world, view):
                    await _until_interrupted(tell(world, self._speed))
            finally:
                await world.look()
                self._summary(world)

    def _say(self, about: str, sentence: str) -> None:
        if self._view is None:
            return
        line = self._view.note(about, sentence)
        if self._json:
            say_json(line)
        elif not self._live:
            self._print(line)

    def _print(self, line: Line) -> None:
        print(f"{line.at_ms / 1000:6.1f} s  {line.about or '·':<8} {line.sentence}", flush=True)

    # --- beginning, middle, end --------------------------------------------------------------

    async def _open(self, address: str, key: str) -> None:
        if self._json:
            return
        out = self._terminal
        out.print(
            f"Homing demo: the whole life of a URL, with times ÷ {self._speed:,} and smaller "
            "counts.\n",
            style="bold",
        )
        rules = table("rule", "here", "in production")
        for name, here, there in policy_lines(self._speed):
            row(rules, name, Text(here, style="cyan"), Text(there, style="dim"))
        out.print(rules)
        out.print(
            f"\nIt is a real server. Look into it from another terminal:\n"
            f"  homing tail --server {address} --key {key}\n",
            style="dim",
            soft_wrap=True,
        )
        if self._live:
            await asyncio.sleep(READ_IT_S * SPEED / self._speed)

    @contextlib.asynccontextmanager
    async def _picture(self, world: World, view: View) -> AsyncIterator[None]:
        stack = contextlib.ExitStack()
        live = None
        if self._live:
            live = stack.enter_context(
                Live(console=self._terminal, screen=True, auto_refresh=False, transient=True)
            )
        looking = asyncio.create_task(self._look(world, view, live))
        try:
            with stack:
                yield
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    async def _look(self, world: World, view: View, live: Live | None) -> None:
        while True:
            await world.look()
            view.remember()
            if live is not None:
                size = self._terminal.size
                live.update(view.screen(size.width, size.height), refresh=True)
            await asyncio.sleep(FRAME_S)

    def _summary(self, world: World) -> None:
        view, ledger = self._view, world.ledger
        if view is None or ledger is None:
            return
        if self._json:
            say_json({"events": world.published, "ledger": ledger})
            return
        if self._live:
            self._terminal.print(sentences(view.log))
        made = table(
            "URL", "state", "delivered", "waiting", "changes", right=("delivered", "waiting")
        )
        for url in world.urls:
            state = url.endpoint.health.state.value if url.endpoint else ""
            life = Text(" → ").join(
                [word("enabled"), *(word(change.after.value) for change in url.transitions)]
            )
            row(made, url.name, word(state), f"{url.delivered:,}", f"{url.waiting:,}", life)
        self._terminal.print()
        self._terminal.print(made)
        self._terminal.print(
            f"\n{world.published:,} events, {ledger.accepted:,} deliveries and replays accepted = "
            f"{ledger.delivered:,} delivered + {ledger.pending:,} pending + "
            f"{ledger.dropped:,} dropped + {ledger.cancelled:,} cancelled.\n"
            f"{_moral(world)}"
            "The same in earnest: homing serve, and docs/tutorial/your-first-delivery.md.",
            soft_wrap=True,
        )


def _moral(world: World) -> str:
    homes = {url.delivered for url in world.urls}
    if homes != {world.published}:
        return ""
    return "Every event has reached every URL: what was dropped meanwhile was replayed.\n"


async def _until_interrupted(story: Awaitable[None]) -> None:
    """Ctrl-C ends the story, not the program: there is a summary to show and a server to stop."""
    task = asyncio.ensure_future(story)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        print("Ended early.", file=sys.stderr)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
