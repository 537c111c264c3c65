"""Kills a server again and again while endpoints change, and judges the notices to people.

Receivers go bad and heal, and a person freezes and enables. The transitions are compared with the
records of notices in the same file, and the records with what the targets received: two webhooks
and an SMTP server in this process. A target responds late, so that most kills hit a message between
its arrival and the commit that marks it as sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import email
import hashlib
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from aiosmtpd.controller import Controller

from acceptance.running import HONEST, Line, Server
from net.receiver import a_free_port

URLS = 6
LATE_S = 0.15  # a target's response
QUIET_S = 60  # to send everything after the last kill
CHANGE_S = 60  # for the first change after a start
CONFIG = """
[health]
consecutive_disable = 3
probe_every_ms = 1000
[policies.quick]
delays_ms = [300, 600, 900, 1200, 1500]
anchor = "previous_failure"
window_ms = 600000
"""
STATES = ("disabled", "frozen", "recovered")


@dataclass
class NoticeToll:
    """What the run came to."""

    kills: int
    transitions: int = 0
    acknowledged: int = 0  # changes by a person that were answered
    records: int = 0  # of transitions, for all targets
    warnings: int = 0
    missing: int = 0  # a transition without the record of a target
    extra: int = 0  # a record without its transition, or a second one
    unsent: int = 0  # records of a webhook that were never received
    messages: int = 0
    repeated: int = 0  # messages that came more than once
    renamed: int = 0  # notices that came in two messages
    changed: int = 0  # messages that came with another content

    @property
    def fired_enough(self) -> bool:
        return self.repeated > 0 and self.transitions > self.kills

    @property
    def bad(self) -> int:
        return self.missing + self.extra + self.unsent + self.renamed + self.changed


@dataclass
class Receivers:
    """Six URLs that go bad and heal by themselves, and two targets."""

    port: int = 0
    bad: set[int] = field(default_factory=set)
    bodies: dict[tuple[str, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = head.lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
                body = await reader.readexactly(int(headers["content-length"]))
                name = head.split()[1].strip("/")
                status = 200
                if name.startswith("target"):
                    self.bodies[name, headers["webhook-id"]].append(body)
                    await asyncio.sleep(LATE_S)
                elif int(name) in self.bad:
                    status = 500
                writer.write(f"HTTP/1.1 {status} R\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Receivers]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


class Inbox:
    """An SMTP server that keeps what it gets."""

    def __init__(self) -> None:
        self.mails: dict[str, list[str]] = defaultdict(list)  # by Message-ID

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        mail = email.message_from_bytes(envelope.content)
        text = mail.get_payload(decode=True)
        assert isinstance(text, bytes)
        self.mails[mail["Message-ID"]].append(f"{mail['Subject']}\n{text.decode()}")
        return "250 OK"


async def kill_with_notices(
    folder: Path,
    *,
    kills: int,
    seed: int = 1,
    argv: tuple[str, ...] = HONEST,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> NoticeToll:
    """Kill at random moments; then let everything be sent, stop, and judge."""
    chance, receivers, inbox = random.Random(seed), Receivers(), Inbox()
    smtp = Controller(inbox, hostname="127.0.0.1", port=a_free_port())
    smtp.start()
    config = folder / "homing.toml"
    config.write_text(CONFIG)
    environ = {
        "HOMING_CONFIG": str(config),
        "HOMING_POLICY": "quick",
        "HOMING_PUBLIC_URL": "https://homing.example",
        "HOMING_SMTP_HOST": "127.0.0.1",
        "HOMING_SMTP_PORT": str(smtp.port),
        "HOMING_SMTP_SECURITY": "none",
        "HOMING_SMTP_FROM": "homing@homing.example",
    }
    toll = NoticeToll(kills)
    try:
        async with receivers.listening():
            server = Server(folder / "data", argv=argv, environ=environ)
            await server.start()
            endpoints = await _set_up(server.line(), receivers.port)
            for number in range(kills):
                progress(number, kills)
                work = [
                    asyncio.ensure_future(it)
                    for it in (
                        _publish(server.line(), number),
                        _flip(receivers, chance),
                        _person(server.line(), endpoints, chance, toll),
                    )
                ]
                await _change(folder / "data" / "homing.db")
                # Every second kill comes right after a change, before anything else is written.
                await asyncio.sleep(chance.uniform(0.0, 1.2 if number % 2 else 0.1))
                server.kill()
                await server.gone()
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)
                await server.start()
            receivers.bad.clear()
            await _all_sent(server.line())
            assert await server.terminate() == 0
    finally:
        smtp.stop()
    _judge(folder / "data" / "homing.db", receivers, inbox, toll)
    return toll


async def _change(file: Path) -> None:
    """Wait for the next change of an endpoint that no person made, however slow the machine is."""
    store = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    store.set_busy_timeout(5_000)
    count = "SELECT count(*) FROM transition WHERE by = ''"
    before = store.execute(count).get
    for _ in range(CHANGE_S * 100):
        if store.execute(count).get != before:
            break
        await asyncio.sleep(0.01)
    store.close()


async def _set_up(line: Line, port: int) -> list[str]:
    at = f"http://127.0.0.1:{port}"
    for name in ("target-1", "target-2"):
        made = await line.ask(
            "POST", "/v1/notice-targets", {"kind": "webhook", "address": f"{at}/{name}"}
        )
        assert made.status == 201, made.body
    mail = {"kind": "email", "address": "ops@homing.example", "operator": True}
    assert (await line.ask("POST", "/v1/notice-targets", mail)).status == 201
    endpoints = []
    for number in range(URLS):
        given = {"url": f"{at}/{number}", "types": [f"t.{number}"]}
        endpoints.append((await line.ask("POST", "/v1/subscriptions", given)).json["endpoint"])
    line.close()
    return endpoints


async def _publish(line: Line, life: int) -> None:
    for number in itertools.count():
        given = {"type": f"t.{number % URLS}", "id": f"e-{life}-{number}", "data": number}
        with contextlib.suppress(OSError, EOFError):
            await line.ask("POST", "/v1/events", given)
        await asyncio.sleep(0.005)


async def _flip(receivers: Receivers, chance: random.Random) -> None:
    while True:
        receivers.bad ^= {chance.randrange(URLS)}
        await asyncio.sleep(0.1)


async def _person(
    line: Line, endpoints: list[str], chance: random.Random, toll: NoticeToll
) -> None:
    while True:
        do = chance.choice(("freeze", "enable", "enable"))
        with contextlib.suppress(OSError, EOFError):
            reply = await line.ask("POST", f"/v1/endpoints/{chance.choice(endpoints)}/{do}", {})
            toll.acknowledged += reply.status == 200
        await asyncio.sleep(0.05)


async def _all_sent(line: Line) -> None:
    """Wait until no record of a webhook waits; an e-mail waits for its five minutes."""
    targets = (await line.ask("GET", "/v1/notice-targets")).json["items"]
    hooks = [it["id"] for it in targets if it["kind"] == "webhook"]
    for _ in range(QUIET_S * 2):
        found = [
            (await line.ask("GET", f"/v1/notices?target={target}&limit=200")).json["items"]
            for target in hooks
        ]
        if not any(it["status"] == "waiting" for page in found for it in page):
            line.close()
            return
        await asyncio.sleep(0.5)
    line.close()


def _judge(file: Path, receivers: Receivers, inbox: Inbox, toll: NoticeToll) -> None:
    store = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    targets: dict[int, str] = dict(store.execute("SELECT id, kind FROM notice_target"))
    transitions = {row[0] for row in store.execute("SELECT id FROM transition")}
    records = list(store.execute("SELECT target_id, id, kind, status, message_id FROM notice"))
    changes = Counter((it[0], it[1]) for it in records if it[2] in STATES)
    wanted = {(target, number) for target in targets for number in transitions}
    toll.transitions, toll.records = len(transitions), sum(changes.values())
    toll.missing = len(wanted - changes.keys())
    toll.extra = sum(count - (key in wanted) for key, count in changes.items())
    # A warning is published as an event by the same commit.
    warned = sum(1 for it in records if it[2] == "warning")
    events = store.execute("SELECT count(*) FROM event WHERE type = 'homing.endpoint.warning'").get
    toll.warnings = int(str(events))
    toll.missing += max(toll.warnings * len(targets) - warned, 0)
    toll.extra += max(warned - toll.warnings * len(targets), 0)
    hooks = sorted(it for it, kind in targets.items() if kind == "webhook")
    messages_of: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (name, message), bodies in receivers.bodies.items():
        _judge_message([hashlib.sha256(it).hexdigest() for it in bodies], toll)
        for notice in json.loads(bodies[0])["notices"]:
            messages_of[name, notice["id"]].add(message)
    toll.renamed = sum(len(it) > 1 for it in messages_of.values())
    for name, target in zip(("target-1", "target-2"), hooks, strict=True):
        got = {notice for at, notice in messages_of if at == name}
        mine = [it for it in records if it[0] == target]
        toll.unsent += len(mine) - len(got) if len(got) < len(mine) else 0
        toll.extra += max(len(got) - len(mine), 0)
    carried = {it[4] for it in records if targets[it[0]] == "email"}
    for texts in inbox.mails.values():
        _judge_message(texts, toll)
    toll.extra += max(len(inbox.mails) - len(carried - {0}), 0)


def _judge_message(contents: list[str], toll: NoticeToll) -> None:
    toll.messages += 1
    toll.repeated += len(contents) > 1
    toll.changed += len(set(contents)) > 1
