"""Looks at every request that starts: whose it is, what it says, and whether it may go now.

The body is put together here from what the publisher offered, and the signature is computed from
the subscription's secret, so neither shares code with what made them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from homing.model import read_id
from homing.ports import Response
from homing.sim.world import Hit
from simulation.books import Books, Fact, Flight, Slots, Sub, name
from simulation.health_model import HOLD_MAX_MS, DeliveryModel, EndpointModel
from simulation.outage_watch import OutageWatch, host_of


def body_of(fact: Fact, sub: Sub) -> bytes | None:
    """The bytes that must go out; None where the time was not the publisher's."""
    match sub.now.format.value:
        case "raw":
            return fact.data
        case "standard":
            if fact.time is None or fact.key is None:
                return None
            head = f'{{"id":{json.dumps(fact.key)},"type":{json.dumps(fact.type)}'
            return f'{head},"timestamp":{json.dumps(fact.time)},"data":'.encode() + fact.data + b"}"
        case _:
            return None


def signature_of(secret: str, hit: Hit) -> str:
    """As the Standard Webhooks specification says."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    head = f"{hit.headers['webhook-id']}.{hit.headers['webhook-timestamp']}.".encode()
    digest = hmac.new(key, head + hit.body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


class Requests:
    """Every request that starts, and every response."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._order: dict[tuple[int, int, int], DeliveryModel] = {}  # the last first attempt
        self._signed: dict[str, str] = {}
        self.outage_watch: OutageWatch

    def sent(self, hit: Hit) -> None:
        books = self._books
        books.counts["requests"] += 1
        if hit.headers["homing-event-type"] == "homing.test":
            books.say(f"test to {hit.url}")
            return
        number = read_id("dlv", hit.delivery)
        delivery = books.deliveries.get(number or 0)
        if delivery is None:
            books.violated("S2", f"{hit.delivery} was never accepted")
            return
        books.say(f"sent {hit.delivery} #{hit.number} to {hit.url}")
        sub = books.subs[delivery.subscription_id]
        self._content(hit, delivery, sub)
        endpoint_id = books.endpoint_ids.get((sub.tenant, hit.url))
        if endpoint_id is None:
            books.violated("S2", f"{hit.url} is no URL of tenant {sub.tenant}")
            return
        endpoint = books.endpoints[endpoint_id]
        probe = books.taken.pop(delivery.id, None) == endpoint_id
        lane = self._lane(delivery, endpoint, probe)
        self._standing(hit, delivery, sub)
        if probe:
            self._probe(endpoint)
        else:
            self._ordinary(hit, delivery, endpoint)
            self._slots(endpoint, lane)
        self.outage_watch.sent(probe=probe)
        if lane == "fresh":
            self._in_order(delivery, endpoint)
        books.flights[delivery.id] = Flight(
            delivery.id, hit.number, endpoint_id, hit.life, hit.at, probe, lane
        )

    def _lane(self, delivery: DeliveryModel, endpoint: EndpointModel, probe: bool) -> str:
        if probe:
            return "probe"
        first = delivery.attempts == 0 and not delivery.replay
        known = self._books.known[endpoint.id]
        return "fresh" if first and delivery.accepted_at >= known.enabled_since else "retry"

    def _content(self, hit: Hit, delivery: DeliveryModel, sub: Sub) -> None:
        must, headers = self._books.must, hit.headers
        fact = self._books.facts[delivery.event_id]
        must(fact.tenant == sub.tenant, "S12", lambda: f"{hit.delivery} left its tenant")
        must(
            hit.url in {sub.now.url, sub.told.url},
            "S2",
            lambda: f"{hit.delivery} went to {hit.url}, not to {sub.now.url}",
        )
        expected = body_of(fact, sub)
        right = hit.body == expected if expected is not None else fact.data in hit.body
        must(right, "S2", lambda: f"{hit.delivery} has other bytes: {hit.body!r}")
        must(headers["homing-event-type"] == fact.type, "S2", lambda: "another event type")
        root = name(delivery.root_id)
        must(headers["webhook-id"] == root, "S2", lambda: f"webhook-id is not {root}")
        stamp = str(hit.wall // 1000)
        must(
            headers["webhook-timestamp"] == stamp,
            "S2",
            lambda: f"webhook-timestamp is {headers['webhook-timestamp']}, and the time {stamp}",
        )
        signed = signature_of(sub.now.secrets[0].value, hit)
        must(
            headers["webhook-signature"] == signed,
            "S2",
            lambda: f"{hit.delivery} is not signed with its subscription's secret",
        )
        table = self._books.mix.table_of(sub.now.policy, sub.tenant)
        deadline_ms = sub.now.deadline_ms or table.deadline_ms
        must(
            hit.deadline_ms == deadline_ms,
            "deadline",
            lambda: f"{hit.delivery} has {hit.deadline_ms} ms, and should {deadline_ms}",
        )
        token = f"Bearer {sub.now.token}" if sub.now.token else None
        must(headers.get("authorization") == token, "S2", lambda: f"{hit.delivery}: another token")

    def _standing(self, hit: Hit, delivery: DeliveryModel, sub: Sub) -> None:
        books = self._books
        flight = books.flights.get(delivery.id)
        books.must(flight is None, "S3", lambda: f"{hit.delivery} is in flight twice")
        books.must(
            hit.number == delivery.attempts + 1,
            "S7",
            lambda: f"{hit.delivery} has {delivery.attempts} attempts, and now #{hit.number}",
        )
        books.must(not sub.deleted_told, "S9", lambda: f"{hit.delivery}: subscription deleted")
        finished = delivery.status in {"delivered", "dropped"}
        cancelled = delivery.status == "cancelled" and delivery.id in books.cancels_told
        books.must(
            not finished and not cancelled,
            "S7",
            lambda: f"{hit.delivery} is {delivery.status}, and is attempted again",
        )

    def _ordinary(self, hit: Hit, delivery: DeliveryModel, endpoint: EndpointModel) -> None:
        books, known = self._books, self._books.known[endpoint.id]
        may = (endpoint.state == "enabled" and self._after(hit, endpoint.hold_until)) or (
            known.state == "enabled" and self._after(hit, known.hold_until)
        )
        books.must(
            may,
            "S9",
            lambda: (
                f"{hit.delivery} goes to an endpoint that is {endpoint.state} since "
                f"{endpoint.since}, held until {endpoint.hold_until}"
            ),
        )
        books.must(
            hit.at >= delivery.due or (delivery.attempts == 0 and hit.at < delivery.accepted_at),
            "S8",
            lambda: f"{hit.delivery} #{hit.number} is {delivery.due - hit.at} ms early",
        )
        late = delivery.expires <= min(known.enabled_since, endpoint.enabled_since, hit.at)
        books.must(
            not late or hit.at < books.maybe_quiet_until,
            "S8",
            lambda: f"{hit.delivery} was held back beyond its window and is attempted",
        )

    def _after(self, hit: Hit, hold_until: int) -> bool:
        """Past a hold; one by a clock that was ahead is no longer than any other."""
        if self._books.clock_jumped:
            hold_until = min(hold_until, self._books.life_at + HOLD_MAX_MS)
        return hit.at >= hold_until

    def _probe(self, endpoint: EndpointModel) -> None:
        books = self._books
        books.counts["probes"] += 1
        others = [it for it in books.flights.values() if it.probe and it.endpoint_id == endpoint.id]
        books.must(not others, "S9", lambda: f"two probes at {endpoint.url}")
        states = {endpoint.state, books.known[endpoint.id].state}
        books.must(
            "disabled" in states, "S9", lambda: f"a probe at an endpoint that is {endpoint.state}"
        )

    def _slots(self, endpoint: EndpointModel, lane: str) -> None:
        books, options = self._books, self._books.mix.options
        flying = [it for it in books.flights.values() if it.lane == lane and it.holds_slot]
        most = options.fresh_slots if lane == "fresh" else options.retry_slots
        books.must(len(flying) < most, "S13", lambda: f"{len(flying) + 1} {lane} attempts at once")
        here = sum(it.endpoint_id == endpoint.id for it in flying)
        slots = books.slots.setdefault(endpoint.id, Slots()).slots
        books.must(
            here < slots,
            "S13",
            lambda: f"{here + 1} {lane} attempts at {endpoint.url}, which has {slots} slots",
        )

    def _in_order(self, delivery: DeliveryModel, endpoint: EndpointModel) -> None:
        books = self._books
        if delivery.moved or books.facts[delivery.event_id].type.startswith("homing."):
            return
        # By a clock that was ahead, an enable makes fresh what was held back before it.
        since = endpoint.enabled_since if books.clock_jumped else 0
        last = self._order.get((books.life, endpoint.id, since))
        self._order[books.life, endpoint.id, since] = delivery
        if last is None or last.accepted_at < delivery.accepted_at:
            return
        books.must(
            last.id < delivery.id,  # Else a clock was set back between the two.
            "order",
            lambda: f"{name(delivery.id)} goes after {name(last.id)}, accepted before it",
        )

    def responded(self, hit: Hit, response: Response, asked: int | None) -> None:
        books = self._books
        number = read_id("dlv", hit.delivery) or 0
        flight = books.flights.get(number)
        word = response.code if response.code is not None else response.failure
        books.say(f"response {hit.delivery} #{hit.number} {word}")
        if flight is None or flight.life != hit.life:
            return
        flight.finished_at = books.clock()
        flight.code = response.code
        flight.failure = response.failure.value if response.failure is not None else None
        flight.asked = asked
        dialled = response.phases.connect_us is not None
        self.outage_watch.responded(flight, host_of(hit.url), dialled=dialled)
