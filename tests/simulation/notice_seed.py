"""Notices to people from a seed: the real engine and store, crashes, targets that fail and hang.

The reference model is made from what the store committed: every transition, every published warning
and the first published drop of a day is one notice, and a state that lasts is reminded of on three
days. At the end each of them must have one record for each target that was there, all of them sent,
each in one message, and a message that was sent twice must have been the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from random import Random

import msgspec

from homing.engine.engine import NoticeParts
from homing.engine.notice_sender import NoticeOptions
from homing.engine.options import EngineOptions
from homing.errors import HomingError
from homing.model import Endpoint, State, Transition, read_id
from homing.policy.health import HealthRules
from homing.policy.notices import OPERATOR, NoticeTarget, TargetDraft, TargetKind
from homing.policy.presets import PRESETS
from homing.policy.tables import PolicyTable, schedule_from
from homing.ports import Mail, Response, SettleBatch
from homing.sim.loop import run_virtual
from homing.sim.world import Hit, Reply, Watch
from homing.store.notices import Notices
from homing.store.sqlite import SqliteDb
from simulation.lives import Crashed, MortalWorld

HOUR, DAY = 3_600_000, 86_400_000
TENANTS = ("a", "b")
URLS = 5
HOOK = "https://people.example/{}"
STEPS = 40

Wanted = Counter[tuple[str, int]]  # kind and endpoint → how many


class Model(Watch):
    """What people must be told, from the commits."""

    def __init__(self) -> None:
        self.transitions: dict[int, Transition] = {}
        self.others: Wanted = Counter()
        self._dropped_at: dict[int, int] = {}
        self.messages: dict[tuple[str, str], list[bytes]] = defaultdict(list)  # by target and id
        self.arrived: set[tuple[str, str]] = set()  # requests to a webhook that it took

    def settled(self, batch: SettleBatch, gone: frozenset[int]) -> None:
        del gone
        self.transitions.update((it.id, it) for it in batch.transitions)
        for new in batch.notices:
            data = msgspec.json.decode(new.event.data)
            endpoint = int_id(data["endpoint"])
            if new.event.type == "homing.endpoint.warning":
                self.others["warning", endpoint] += 1
            elif new.event.type == "homing.delivery.dropped":
                last = self._dropped_at.get(endpoint, 0)
                self.others["first_drop", endpoint] += data["at"] - last >= DAY
                self._dropped_at[endpoint] = data["at"]

    def commanded(self, endpoint: Endpoint, transition: Transition | None) -> None:
        del endpoint
        if transition is not None:
            self.transitions[transition.id] = transition

    def sent(self, hit: Hit) -> None:
        if hit.url.startswith(HOOK.format("")):
            self.messages[hit.url, hit.headers["webhook-id"]].append(hit.body)

    def responded(self, hit: Hit, response: Response) -> None:
        if hit.url.startswith(HOOK.format("")) and response.code == 200:
            self.arrived.add((hit.url, hit.headers["webhook-id"]))

    def reminders(self, now: int) -> Wanted:
        """Of states that lasted, or last, for a day and more."""
        found: Wanted = Counter()
        by_endpoint: dict[int, list[Transition]] = defaultdict(list)
        for number in sorted(self.transitions):
            by_endpoint[self.transitions[number].endpoint_id].append(self.transitions[number])
        for endpoint, changes in by_endpoint.items():
            ends = [it.at for it in changes[1:]] + [now]
            for change, end in zip(changes, ends, strict=True):
                if change.after is not State.ENABLED:
                    found["reminder", endpoint] += min((end - change.at) // DAY, 3)
        return found


class Inbox:
    """A mailer that fails now and then, and keeps what it took."""

    def __init__(self, model: Model, chance: Random) -> None:
        self._model, self._chance = model, chance

    async def send(self, mail: Mail) -> str:
        self._model.messages[mail.to, mail.message_id].append(mail.text.encode())
        await asyncio.sleep(self._chance.choice((0, 0.2, 20)))
        return "450 later" if self._chance.random() < 0.2 else ""

    async def close(self) -> None: ...


def int_id(text: str) -> int:
    number = read_id("ep", text)
    assert number is not None
    return number


def options() -> EngineOptions:
    table = PolicyTable(delays_ms=(60_000, HOUR), window_ms=6 * HOUR)
    return EngineOptions(
        schedules={**PRESETS, "short": schedule_from("short", table)},
        policy="short",
        health=HealthRules(consecutive_disable=4, consecutive_freeze=40, freeze_after_ms=6 * HOUR),
    )


async def _run(seed: int) -> list[str]:
    chance = Random(f"notices {seed}")
    model = Model()
    world = MortalWorld(await SqliteDb.open(":memory:"), options(), model)
    world.notices = NoticeParts(
        Notices(world.db), Inbox(model, Random(f"mail {seed}")), NoticeOptions("https://h.example")
    )
    await world.start()
    healed = False
    bad: set[str] = set()

    def receiver(hit: Hit) -> Reply:
        if hit.url.startswith(HOOK.format("")):
            kind = "ok" if healed else chance.choice(("ok", "ok", "fails", "hangs"))
            codes = {"ok": 200, "fails": 500, "hangs": 200}
            return Reply(code=codes[kind], latency_ms=DAY if kind == "hangs" else 50)
        return Reply(code=500 if hit.url in bad else 200, latency_ms=20)

    world.otherwise = receiver
    urls = [f"https://{n}.example/" for n in range(URLS)]
    for tenant in TENANTS:
        for n, url in enumerate(urls):
            await world.subscribe(url, f"t.{n}", tenant=tenant)
    targets = [
        TargetDraft(kind=TargetKind.WEBHOOK, address=HOOK.format("a"), tenant="a"),
        TargetDraft(kind=TargetKind.WEBHOOK, address=HOOK.format("all"), tenant=OPERATOR),
        TargetDraft(kind=TargetKind.WEBHOOK, address=urls[0], tenant="b"),
        TargetDraft(kind=TargetKind.EMAIL, address="o@h.example", tenant=OPERATOR),
    ]
    made = [await world.call(world.engine.notice_targets.create(it)) for it in targets]
    owners = {it.id: it for it in made}
    for _ in range(STEPS):
        bad ^= {chance.choice(urls)}
        await _act(world, chance)
        if chance.random() < 0.4:
            world.die()
            await world.wait(chance.choice((0, 1_000, HOUR)))
            await world.start()
    healed = True
    bad.clear()
    for endpoint in await world.endpoints():
        await world.call(world.engine.enable(endpoint.id, by="ada"))
    await world.wait(12 * HOUR)
    return await _judge(world, model, owners)


async def _act(world: MortalWorld, chance: Random) -> None:
    """Publish a little, let a person act, and wait."""
    try:
        for n in range(chance.randrange(12)):
            await world.publish(f"t.{n % URLS}", tenant=chance.choice(TENANTS))
        if chance.random() < 0.4:
            endpoint = chance.choice(await world.endpoints())
            act = chance.choice((world.engine.freeze, world.engine.enable))
            await world.call(act(endpoint.id, by="ada"))
    except (Crashed, HomingError):
        pass
    await world.wait(chance.choice((10, 300, 60_000, HOUR, 7 * HOUR)))


async def _judge(world: MortalWorld, model: Model, owners: dict[int, NoticeTarget]) -> list[str]:
    found, _ = await Notices(world.db).notices(
        owner=None, target_id=None, before_id=None, limit=1_000_000
    )
    tenants = {it.id: it.tenant for it in await world.endpoints()}
    at_url = {it.id: it.url for it in await world.endpoints()}
    said: list[str] = []
    others = model.others + model.reminders(world.clock.now())
    for target in owners.values():
        mine = [it for it in found if it.target_id == target.id]

        def gets(endpoint: int, owner: str = target.tenant) -> bool:
            return owner in {OPERATOR, tenants[endpoint]}

        wanted = {it for it, change in model.transitions.items() if gets(change.endpoint_id)}
        states = [it.id for it in mine if it.notice.kind in {"disabled", "frozen", "recovered"}]
        if sorted(states) != sorted(wanted):
            said.append(f"{len(wanted)} transitions, {len(states)} records")
        rest = Counter(
            (it.notice.kind.value, it.notice.endpoint_id) for it in mine if it.id not in wanted
        )
        due = Counter({key: count for key, count in others.items() if gets(key[1]) and count})
        if rest != due:
            said.append(f"other notices: wanted {due - rest}, too many {rest - due}")
        for it in mine:
            same = at_url[it.notice.endpoint_id] == target.address
            if it.status.value != ("skipped" if same else "sent"):
                said.append(f"a record is {it.status.value}")
    sent = Counter(owners[it.target_id].address for it in found if it.status.value == "sent")
    return said + _judge_messages(model, sent)


def _judge_messages(model: Model, sent: Counter[str]) -> list[str]:
    """Each notice is in one message, and a message is the same each time."""
    said = [f"{key} changed" for key, bodies in model.messages.items() if len(set(bodies)) > 1]
    carried: Counter[tuple[str, str]] = Counter()
    received: Counter[str] = Counter()
    for (url, name), bodies in model.messages.items():
        if url.startswith("https://"):
            notices = msgspec.json.decode(bodies[0])["notices"]
            carried.update((url, it["id"]) for it in notices)
            received[url] += len(notices) * ((url, name) in model.arrived)
    said += [f"{key} is in {count} messages" for key, count in carried.items() if count > 1]
    for url in (HOOK.format("a"), HOOK.format("all")):
        if received[url] != sent[url]:
            said.append(f"{url} received {received[url]} of {sent[url]} notices")
    return said


def run_notice_seed(seed: int) -> list[str]:
    """What does not hold; empty if all does."""
    return run_virtual(_run(seed))
