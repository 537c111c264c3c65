"""Runs the demo: starts its server and receivers, plays its chapters, shows it live or by lines."""

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
from homing.cli.demo.story import play
from homing.cli.demo.view import Line, View, sentences
from homing.cli.demo.world import World
from homing.cli.logs import configure_logs
from homing.cli.output import add_row, coloured, console, print_json, table
from homing.cli.sign_in_link import link_to
from homing.server.serve import serving
from homing.server.settings import (
    DatabaseSettings,
    DeliverySettings,
    ListenSettings,
    ReachSettings,
    Settings,
)
from homing_client import AsyncHoming

FRAME_S = 0.1
READ_S = 4.0  # time to read the policy before the live view covers it


def run_demo(*, speed: int, json: bool) -> None:
    """Run the demo in a temporary data directory."""
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
            serving(settings, admin_key=key, options=options) as (address, running),
            AsyncHoming(address, key) as client,
            World(running, client, options.health, self._report).started() as world,
        ):
            await self._print_start(address, key)
            self._view = view = View(world, speed=self._speed, address=address)
            try:
                async with self._refreshing(world, view):
                    await _until_interrupted(play(world, self._speed))
            finally:
                await world.refresh()
                self._print_summary(world)

    def _report(self, about: str, sentence: str) -> None:
        if self._view is None:
            return
        line = self._view.note(about, sentence)
        if self._json:
            print_json(line)
        elif not self._live:
            self._print_line(line)

    def _print_line(self, line: Line) -> None:
        print(f"{line.at_ms / 1000:6.1f} s  {line.about or '·':<8} {line.sentence}", flush=True)

    async def _print_start(self, address: str, key: str) -> None:
        if self._json:
            return
        out = self._terminal
        out.print(
            f"Homing demo: all states of a URL, with times ÷ {self._speed:,} and smaller counts.\n",
            style="bold",
        )
        rules = table("rule", "demo", "production")
        for name, here, there in policy_lines(self._speed):
            add_row(rules, name, Text(here, style="cyan"), Text(there, style="dim"))
        out.print(rules)
        out.print(
            f"\nThis is a real server. Open its dashboard (the link works once), or watch it from "
            f"another terminal:\n"
            f"  {link_to(address, key)}\n"
            f"  homing tail --server {address} --key {key}\n",
            style="dim",
            soft_wrap=True,
        )
        if self._live:
            await asyncio.sleep(READ_S * SPEED / self._speed)

    @contextlib.asynccontextmanager
    async def _refreshing(self, world: World, view: View) -> AsyncIterator[None]:
        stack = contextlib.ExitStack()
        live = None
        if self._live:
            live = stack.enter_context(
                Live(console=self._terminal, screen=True, auto_refresh=False, transient=True)
            )
        refreshing = asyncio.create_task(self._refresh(world, view, live))
        try:
            with stack:
                yield
        finally:
            refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await refreshing

    async def _refresh(self, world: World, view: View, live: Live | None) -> None:
        while True:
            await world.refresh()
            view.remember()
            if live is not None:
                size = self._terminal.size
                live.update(view.screen(size.width, size.height), refresh=True)
            await asyncio.sleep(FRAME_S)

    def _print_summary(self, world: World) -> None:
        view, ledger = self._view, world.ledger
        if view is None or ledger is None:
            return
        if self._json:
            print_json({"events": world.published, "ledger": ledger})
            return
        if self._live:
            self._terminal.print(sentences(view.log))
        made = table(
            "URL", "state", "delivered", "waiting", "changes", right=("delivered", "waiting")
        )
        for url in world.urls:
            state = url.endpoint.health.state.value if url.endpoint else ""
            life = Text(" → ").join(
                [coloured("enabled"), *(coloured(change.after.value) for change in url.transitions)]
            )
            add_row(made, url.name, coloured(state), f"{url.delivered:,}", f"{url.waiting:,}", life)
        self._terminal.print()
        self._terminal.print(made)
        self._terminal.print(
            f"\n{world.published:,} events, {ledger.accepted:,} deliveries and replays accepted = "
            f"{ledger.delivered:,} delivered + {ledger.pending:,} pending + "
            f"{ledger.dropped:,} dropped + {ledger.cancelled:,} cancelled.\n"
            f"{_conclusion(world)}"
            "To run it for real: homing serve, and docs/tutorial/your-first-delivery.md.",
            soft_wrap=True,
        )


def _conclusion(world: World) -> str:
    delivered = {url.delivered for url in world.urls}
    if delivered != {world.published}:
        return ""
    return "Every event has reached every URL: dropped deliveries were replayed.\n"


async def _until_interrupted(chapters: Awaitable[None]) -> None:
    """Ctrl-C ends the chapters, not the program: the summary is printed and the server stopped."""
    task = asyncio.ensure_future(chapters)
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
