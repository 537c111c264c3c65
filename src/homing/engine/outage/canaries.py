"""The few attempts that are sent during an outage: tenants take turns, then their hosts.

A host represents all URLs of one tenant at that host: a connection to one of them proves that all
can be reached. Hosts that have had no canary yet go first, and among them those that were healthy
most recently. A round has enough canaries for every host to get one within a minute.

A host whose canary fails gets the next one after 5 s, then after 10 s and so on, doubling. This
wait and the wait for its turn are a minute at most together. So a single delivery is not attempted
in every round of a long outage.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator

from msgspec import Struct

from homing.engine.dispatch import Dispatcher
from homing.engine.queue import LANES, EndpointQueue
from homing.model import Lane
from homing.policy import outage as policy
from homing.policy.outage import OutageRules
from homing.ports import Clock

SLICE = 1_000  # endpoints that are checked in one turn of the event loop


class Candidate(Struct, gc=False):
    """The endpoint that would get the next canary of its host."""

    rank: tuple[int, int, int, int]  # number of its last canary, standing (two values), id
    host: tuple[str, str]  # the tenant, and the host with its port
    queue: EndpointQueue
    lane: Lane


class Waiting:
    """The candidates of each tenant: one for each of its hosts that may have a canary now."""

    def __init__(self, busy: set[tuple[str, str]]) -> None:
        self._busy = busy
        self.tenants: dict[str, dict[tuple[str, str], Candidate]] = {}

    def add(self, one: Candidate) -> None:
        """Add a candidate; of two for one host the better one stays."""
        if one.host in self._busy:
            return
        hosts = self.tenants.setdefault(one.host[0], {})
        best = hosts.get(one.host)
        if best is None or one.rank < best.rank:
            hosts[one.host] = one

    @property
    def count(self) -> int:
        return sum(map(len, self.tenants.values()))


class Canaries:
    """Chooses and sends canaries, and keeps the turns since the outage began."""

    def __init__(
        self,
        rules: OutageRules,
        dispatcher: Dispatcher,
        clock: Clock,
        *,
        standing: Callable[[int], tuple[int, int]],
    ) -> None:
        self._rules, self._dispatcher, self._clock = rules, dispatcher, clock
        self._standing = standing
        self.count = 0  # sent since the start of the process
        # The number of the last canary of each tenant, host and endpoint.
        self._tenants: dict[str, int] = {}
        self._hosts: dict[tuple[str, str], int] = {}
        self._endpoints: dict[int, int] = {}
        self._tries: dict[
            tuple[str, str], tuple[int, int]
        ] = {}  # host → canaries sent, and when it may get the next
        self._in_flight: dict[int, tuple[EndpointQueue, tuple[str, str]]] = {}  # by delivery

    def begin(self) -> None:
        """Forget the turns of the last outage: no host has had a canary."""
        for turns in (self._tenants, self._hosts, self._endpoints, self._in_flight, self._tries):
            turns.clear()

    async def send(self, active: Callable[[], bool]) -> None:
        """Send the canaries of a round; none when the outage is over."""
        dispatcher = self._dispatcher
        for one in await self._choose(list(dispatcher.queues.values())):
            now, queue = self._clock.now(), one.queue
            if not active() or dispatcher.paused or dispatcher.draining:
                return
            if queue.ready(one.lane, now) and dispatcher.capacity.has_slot(one.lane):
                self._sent(one, queue.queued(one.lane)[0].delivery.id, now)
                dispatcher.start(queue, one.lane, now, queue.rank)

    async def _choose(self, queues: list[EndpointQueue]) -> list[Candidate]:
        """The candidates of the next round, in order."""
        now = self._clock.now()
        in_flight = {id_: it for id_, it in self._in_flight.items() if id_ in it[0].in_flight}
        self._in_flight = in_flight
        busy = {host for _, host in in_flight.values()}
        busy |= {host for host, (_, next_at) in self._tries.items() if next_at > now}
        waiting = Waiting(busy)
        for number, queue in enumerate(queues, 1):
            if queue.fresh or queue.retry:
                lane = next((it for it in LANES if queue.ready(it, now)), None)
                if lane is not None and not queue.closed:
                    waiting.add(self._candidate(queue, lane))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return list(self._in_turn(waiting, policy.canaries(waiting.count, self._rules)))

    def _candidate(self, queue: EndpointQueue, lane: Lane) -> Candidate:
        endpoint = queue.endpoint
        rank = (self._endpoints.get(endpoint.id, 0), *self._standing(endpoint.id), endpoint.id)
        return Candidate(rank, (endpoint.tenant, endpoint.url.split("/", 3)[2]), queue, lane)

    def _in_turn(self, waiting: Waiting, limit: int) -> Iterator[Candidate]:
        """One of each tenant, then another of each, until there are enough."""

        def rank(one: Candidate) -> tuple[int, ...]:
            return (self._hosts.get(one.host, 0), *one.rank[1:])

        queues = {
            tenant: heapq.nsmallest(limit, hosts.values(), key=rank)[::-1]
            for tenant, hosts in waiting.tenants.items()
        }
        order = sorted(queues, key=lambda it: (self._tenants.get(it, 0), *rank(queues[it][-1])))
        left = limit
        while left and order:
            for tenant in order:
                if left:
                    left -= 1
                    yield queues[tenant].pop()
            order = [tenant for tenant in order if queues[tenant]]

    def _sent(self, one: Candidate, delivery_id: int, now: int) -> None:
        """Note that a tenant, a host and an endpoint have had their turn."""
        tries = self._tries.get(one.host, (0, 0))[0] + 1
        wait_ms = policy.canary_wait_ms(tries, hosts=len(self._tries), rules=self._rules)
        self._tries[one.host] = tries, now + wait_ms
        self.count += 1
        self._tenants[one.host[0]] = self._hosts[one.host] = self.count
        self._endpoints[one.queue.endpoint.id] = self.count
        self._in_flight[delivery_id] = one.queue, one.host
