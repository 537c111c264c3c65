"""Plays a scenario: the real engine, policy and store on virtual time, receivers by script."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from homing.engine.options import EngineOptions
from homing.model import Delivery, Failure, State, Status, read_id
from homing.policy.admission import EventDraft
from homing.policy.health import HealthRules
from homing.policy.outage import OutageRules
from homing.ports import (
    AdminStore,
    FlowStore,
    NewEvent,
    Published,
    ReplayFilter,
    ReplayJob,
    ViewStore,
)
from homing.ports.admin import EventPlace
from homing.sim.loop import START_MS, OrderlyLoop, run_virtual
from homing.sim.record import Recorder, Trace
from homing.sim.scenario import (
    Action,
    Do,
    Receiver,
    Scenario,
    Start,
    Traffic,
    random_fraction_of,
)
from homing.sim.world import Hit, Reply, Script, WatchedAdmin, WatchedFlow, World
from homing.store.views import Views

PROGRESS_STEPS = 200
PERSON = "a person"

_SECRET = "whsec_c2ltdWxhdGVkIHNlY3JldCwgMzIgYnl0ZXMgbG9uZw=="  # noqa: S105 - nothing is kept
_DATA = b'{"simulated":true}'
_INSTANT_S = 0.0004  # less than the clock's resolution: time for everything that takes none


class Played(Struct, frozen=True):
    """A scenario and its trace."""

    scenario: Scenario
    trace: Trace


def play(scenario: Scenario, on_progress: Callable[[float], None] = lambda _: None) -> Played:
    """Play a scenario to its end; ``on_progress`` is called with the share that is done."""
    return run_virtual(_play(scenario, on_progress), OrderlyLoop())


async def _play(scenario: Scenario, on_progress: Callable[[float], None]) -> Played:
    recorder = Recorder(START_MS)
    world = await _RecordedWorld.make(_options(scenario), watch=recorder)
    recorder.outage = world.engine.outage
    subscribed = [
        await _subscribe(world, recorder, scenario, one) for one in range(len(scenario.receivers))
    ]
    async with asyncio.TaskGroup() as group:
        group.create_task(_run_actions(world, scenario, subscribed))
        for step in range(1, PROGRESS_STEPS + 1):
            await _until(world, scenario.run_for_ms * step // PROGRESS_STEPS)
            on_progress(step / PROGRESS_STEPS)
    await asyncio.sleep(_INSTANT_S)
    return Played(scenario, recorder.trace(end_ms=scenario.run_for_ms))


def _options(scenario: Scenario) -> EngineOptions:
    return EngineOptions(
        schedules={scenario.schedule.name: scenario.schedule},
        policy=scenario.schedule.name,
        health=scenario.rules,
        outage=OutageRules(detects=scenario.outage_detection),
        node=scenario.seed % 128,  # Jitter is computed from ids: another seed gives other ids.
    )


class _RecordedFlow(WatchedFlow):
    """Also reports accepted deliveries to the recorder."""

    async def publish(
        self, requests: Sequence[Sequence[NewEvent]], *, number: int, fence: int = 0
    ) -> Published:
        published = await super().publish(requests, number=number, fence=fence)
        recorder = self._world.watch
        assert isinstance(recorder, Recorder)
        for request in requests:  # Every event is new: none has an id of its publisher.
            recorder.accepted(delivery for new in request for delivery in new.deliveries)
        return published


class _RecordedAdmin(WatchedAdmin):
    """Also reports replays to the recorder."""

    async def replay_step(
        self,
        job: ReplayJob,
        *,
        after: ReplayJob,
        new: Sequence[Delivery],
        seen: Mapping[str, EventPlace],
    ) -> bool:
        taken = await super().replay_step(job, after=after, new=new, seen=seen)
        recorder = self._world.watch
        assert isinstance(recorder, Recorder)
        if taken:
            recorder.accepted(new)
        return taken


class _RecordedWorld(World):
    """A world whose stores report accepted deliveries to the recorder."""

    admin: AdminStore
    views: ViewStore

    def stores(self) -> tuple[FlowStore, AdminStore, ViewStore]:
        self.admin, self.views = _RecordedAdmin(self.db, self), Views(self.db)
        return _RecordedFlow(self.db, self), self.admin, self.views


# --- receivers ------------------------------------------------------------------------------


class _Subscribed(Struct, frozen=True):
    """The subscription of a receiver, in a tenant of its own."""

    tenant: str
    endpoint_id: int


async def _subscribe(
    world: _RecordedWorld, recorder: Recorder, scenario: Scenario, index: int
) -> _Subscribed:
    """Subscribe a receiver to its events."""
    receiver, tenant = scenario.receivers[index], f"t{index}"
    url = f"https://{tenant}.example/"
    made = await world.subscribe(
        url, "*", tenant=tenant, secret=_SECRET, deadline_ms=receiver.deadline_ms
    )
    recorder.name_endpoint(made.endpoint_id, url, receiver.name)
    if receiver.start != Start():
        await _begin_with(world, made.endpoint_id, receiver.start, scenario.rules)
    world.scripts[url] = _script(scenario.seed, receiver, recorder)
    return _Subscribed(tenant, made.endpoint_id)


async def _begin_with(
    world: _RecordedWorld, endpoint_id: int, start: Start, rules: HealthRules
) -> None:
    """Give an endpoint its state and counters before its first delivery."""
    endpoint = await world.views.endpoint(endpoint_id)
    assert endpoint is not None
    health = replace(
        endpoint.health,
        state=start.state,
        attempts=start.attempts,
        failures=start.failures,
        consecutive_failures=start.consecutive_failures,
        first_attempt_at=_before_start(start.first_attempt_age_ms),
        last_success_at=_before_start(start.last_success_age_ms),
    )
    probe_at = START_MS + rules.probe_every_ms if start.state is State.DISABLED else None
    await world.admin.set_endpoint(
        replace(endpoint, health=health, next_probe_at=probe_at),
        seen=endpoint,
        transition=None,
        notices=(),
    )


def _before_start(age_ms: int | None) -> int | None:
    return None if age_ms is None else START_MS - age_ms


def _script(seed: int, receiver: Receiver, recorder: Recorder) -> Script:
    def script(hit: Hit) -> Reply:
        outage = receiver.outage_at(hit.at - START_MS)
        random = 0.0
        if outage is not None and outage.fails is not None:
            number = recorder.number_of(read_id("dlv", hit.delivery) or 0)
            random = random_fraction_of(seed, receiver.name, number, hit.number)
        reply = receiver.reply(outage, random=random)
        if reply.code is None and not reply.hangs:
            return Reply(None, Failure.REFUSED, latency_ms=reply.latency_ms)
        recorder.seen(hit)
        wait = None if reply.retry_after_s is None else str(reply.retry_after_s)
        if reply.code is not None:
            return Reply(reply.code, latency_ms=reply.latency_ms, retry_after=wait)
        return Reply(None, Failure.TIMEOUT, latency_ms=hit.deadline_ms)

    return script


# --- events and actions ------------------------------------------------------------------------


async def _until(world: World, at_ms: int) -> None:
    await asyncio.sleep((START_MS + at_ms - world.clock.now()) / 1000)


async def _run_actions(world: World, scenario: Scenario, subscribed: Sequence[_Subscribed]) -> None:
    """Publish and act at the times of the scenario; at the same time actions go first."""
    moments = heapq.merge(
        _actions(scenario), *(_events(*one) for one in enumerate(scenario.traffic))
    )
    for at_ms, due in groupby(moments, key=itemgetter(0)):
        await _until(world, at_ms)
        drafts: list[EventDraft] = []
        for _, _, one in due:
            if isinstance(one, Action):
                await _act(world, one, subscribed[one.endpoint])
            else:
                drafts.append(EventDraft(subscribed[one.to].tenant, one.type, _DATA))
        if drafts:
            await world.engine.publish(drafts)


def _actions(scenario: Scenario) -> Iterator[tuple[int, int, Action | Traffic]]:
    for action in sorted(scenario.actions, key=lambda it: it.at_ms):
        yield action.at_ms, -1, action


def _events(index: int, traffic: Traffic) -> Iterator[tuple[int, int, Action | Traffic]]:
    for at_ms in traffic.times():
        yield at_ms, index, traffic


async def _act(world: World, action: Action, one: _Subscribed) -> None:
    engine = world.engine
    match action.do:
        case Do.ENABLE:
            await engine.enable(one.endpoint_id, by=PERSON)
        case Do.FREEZE:
            await engine.freeze(one.endpoint_id, by=PERSON)
        case Do.REPLAY_DROPPED:
            wanted = ReplayFilter(status=Status.DROPPED, endpoint_id=one.endpoint_id)
            await engine.start_replay(wanted)
