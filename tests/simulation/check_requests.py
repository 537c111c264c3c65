"""Checks every request that starts: who sends it, what it says, and whether it may go now.

The body is put together here from what the publisher offered, and the signature is computed from
the subscription's secret, so neither shares code with what made them. Ed25519 is left to the same
library that signs: which bytes, which keys and when is what is checked here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from homing.model import Secret, Subscription, read_id
from homing.ports import Response
from homing.sim.world import Hit
from simulation.check_outages import host_of
from simulation.check_settles import DEADLINE_MAX_MS
from simulation.health_model import (
    HOLD_MAX_MS,
    MINUTE,
    DeliveryModel,
    EndpointModel,
    whose_refusal,
)
from simulation.reference import (
    WRITTEN_WITHIN_MS,
    Fact,
    Flight,
    Memory,
    Reference,
    Slots,
    Sub,
    name,
)

ASKED_WITHIN_MS = 5_000  # within which the store was asked for a newer event of a key


def body_of(fact: Fact, sub: Subscription) -> bytes | None:
    """The bytes that must go out; None where the time was not the publisher's."""
    match sub.format.value:
        case "raw":
            return fact.data
        case "standard":
            if fact.time is None or fact.key is None:
                return None
            head = f'{{"id":{json.dumps(fact.key)},"type":{json.dumps(fact.type)}'
            return f'{head},"timestamp":{json.dumps(fact.time)},"data":'.encode() + fact.data + b"}"
        case _:
            return None


def is_live(secret: Secret, *, at: int) -> bool:
    """It is not rotated out, or its overlap has not ended."""
    return secret.until is None or at < secret.until


def is_signed_with(private: str, hit: Hit, signature: str) -> bool:
    """As v1a of Standard Webhooks says; the second half of a private key is the public key."""
    key = base64.b64decode(private.removeprefix("whsk_"))[32:]
    head = f"{hit.headers['webhook-id']}.{hit.headers['webhook-timestamp']}.".encode()
    version, _, coded = signature.partition(",")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(base64.b64decode(coded), head + hit.body)
    except InvalidSignature:
        return False
    return version == "v1a"


def signature_of(secret: str, hit: Hit) -> str:
    """As the Standard Webhooks specification says."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    head = f"{hit.headers['webhook-id']}.{hit.headers['webhook-timestamp']}.".encode()
    digest = hmac.new(key, head + hit.body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


class RequestChecks:
    """Every request that starts, and every response."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        # The last first attempt, by process, endpoint and fair group.
        self._order: dict[tuple[int, int, int, str, int], DeliveryModel] = {}

    def sent(self, memory: Memory, hit: Hit) -> None:
        reference = self._reference
        reference.counts["requests"] += 1
        if hit.headers["homing-event-type"] == "homing.test":
            reference.say(f"test to {hit.url}")
            return
        if hit.headers["homing-event-type"] == "homing.challenge":
            reference.say(f"challenge to {hit.url}")
            bare = "authorization" not in hit.headers
            reference.must(bare, "S15", lambda: f"{hit.url} is not proved, and gets a token")
            return
        number = read_id("dlv", hit.delivery)
        delivery = reference.deliveries.get(number or 0)
        if delivery is None:
            reference.violated("S2", f"{hit.delivery} was never accepted")
            return
        reference.say(f"machine {memory.machine} sends {hit.delivery} #{hit.number} to {hit.url}")
        sub = reference.subs[delivery.subscription_id]
        known = memory.catalog.get(sub.id)
        if known is None or known.deleted_at is not None or known.url != hit.url:
            reference.violated("S2", f"{hit.delivery} goes to {hit.url}; its process knew {known}")
            return
        self._receivers_word(hit, delivery, known)
        self._not_paused(memory, hit, sub, known)
        self._content(hit, delivery, known)
        self._signatures(memory, hit, known)
        self._subscribed(memory, hit, sub, known)
        endpoint = reference.endpoints[reference.endpoint_ids[sub.tenant, hit.url]]
        probe = self._is_probe(memory, hit, delivery, endpoint)
        lane = self._lane(memory, delivery, endpoint, probe)
        epoch = self._owned(memory, hit, delivery, endpoint)
        self._standing(memory, hit, delivery)
        if delivery.key:
            if not probe:
                self._quiet_enough(memory, hit, delivery)
            self._of_one_key(memory, hit, delivery)
        if probe:
            self._probe(memory, hit, endpoint)
        else:
            self._ordinary(memory, hit, delivery, endpoint, known)
            # The newest of a key takes the lane of an older one, which a clock set back may change.
            swapped = reference.clock_jumped and delivery.ordered
            if not swapped and lane != "fresh or retry":
                self._slots(memory, endpoint, lane)
        memory.outage_checks.sent(probe=probe)
        if lane == "fresh" and reference.alone:  # Processes do not wait for each other.
            self._in_order(memory, delivery, endpoint)
        bucket = reference.buckets[endpoint.id]
        flight = Flight(hit, delivery.id, endpoint.id, bucket, epoch, probe, lane)
        flight.version = known.version
        self._once(flight)
        memory.flights[delivery.id] = reference.sent[delivery.id, hit.number] = flight

    def _receivers_word(self, hit: Hit, delivery: DeliveryModel, known: Subscription) -> None:
        """Nothing goes to a URL that is not proved, nor what was accepted before a 410."""
        state, must = known.receiver, self._reference.must
        proved = known.verification.value == "none" or (
            state is not None and state.verified_at is not None
        )
        must(proved, "S15", lambda: f"{hit.delivery} goes to {hit.url}, which is not proved")
        gone_at = state.gone_at if state is not None else None
        sub = self._reference.subs[delivery.subscription_id]
        must(
            gone_at is None or delivery.position > sub.gone_upto,
            "S16",
            lambda: f"{hit.delivery} goes to {hit.url}, which is gone since {gone_at}",
        )

    def _not_paused(self, memory: Memory, hit: Hit, sub: Sub, known: Subscription) -> None:
        """Nothing starts while its subscription is paused, as far as its process must know."""
        must = self._reference.must
        must(
            known.paused_since is None,
            "S17",
            lambda: f"{hit.delivery} goes, and its process knew the pause since {hit.at}",
        )
        since = sub.paused_since
        must(
            since is None or (not sub.responded and memory.may_not_know(sub.changed, at=hit.at)),
            "S17",
            lambda: f"{hit.delivery} goes, and its subscription is paused since {since}",
        )

    def _paused(self, delivery: DeliveryModel, known: Subscription, until: int) -> int:
        """By how much its stored times must still move, by the pauses that its process knows."""
        total = 0
        if known.pauses is not None:
            past = known.pauses.past
            spans = past if known.pauses.since is None else (*past, (known.pauses.since, until))
            for begin, end in spans:
                total += max(0, min(end, until) - max(begin, delivery.ready))
        return total - delivery.paused

    def _is_probe(
        self, memory: Memory, hit: Hit, delivery: DeliveryModel, endpoint: EndpointModel
    ) -> bool:
        """It was taken to probe this endpoint, at this moment."""
        taken_for, at = memory.taken.pop(delivery.id, (0, 0))
        if not delivery.key:
            return taken_for == endpoint.id and (self._reference.alone or at == hit.at)
        # It may have waited for a former owner's request; then its key was looked up.
        return taken_for == endpoint.id and hit.at <= at + DEADLINE_MAX_MS + ASKED_WITHIN_MS

    def _lane(
        self, memory: Memory, delivery: DeliveryModel, endpoint: EndpointModel, probe: bool
    ) -> str:
        if probe:
            return "probe"
        first = delivery.attempts == 0 and not delivery.replay and not delivery.after_drop
        known = memory.known[endpoint.id]
        by_time = delivery.ready >= known.enabled_since
        by_place = delivery.turn >= endpoint.enabled_from
        if first and by_time != by_place:
            # It was accepted while the endpoint was being enabled, before or after that commit.
            near = abs(delivery.ready - known.enabled_since) <= WRITTEN_WITHIN_MS
            right = near or self._reference.clock_jumped or not self._reference.alone
            self._reference.must(right, "order", lambda: f"{name(delivery.id)} is in a wrong lane")
            return "fresh or retry"
        return "fresh" if first and by_time else "retry"

    def _subscribed(self, memory: Memory, hit: Hit, sub: Sub, known: Subscription) -> None:
        same = (known.url, known.deleted_at) == (sub.now.url, sub.now.deleted_at)
        self._reference.must(
            same or (not sub.responded and memory.may_not_know(sub.changed, at=hit.at)),
            "S9",
            lambda: f"{hit.delivery} goes to {hit.url}; long since its subscription is {sub.now}",
        )

    def _owned(
        self, memory: Memory, hit: Hit, delivery: DeliveryModel, endpoint: EndpointModel
    ) -> int:
        """The bucket is owned by the process that sends, and the delivery is in it; its epoch."""
        reference, bucket = self._reference, self._reference.buckets[endpoint.id]
        owner, epoch = reference.owner_of(bucket)
        reference.must(
            owner == memory.member_id,
            "S6",
            lambda: f"process {memory.member_id} sends, and {owner} owns the bucket",
        )
        reference.must(
            delivery.bucket == bucket or delivery.status != "pending",
            "S6",
            lambda: f"{hit.delivery} is in {delivery.bucket}, and sent from {bucket}",
        )
        return epoch

    def _once(self, flight: Flight) -> None:
        """The same attempt goes twice only when its bucket has changed hands, or its process."""
        reference = self._reference
        before = reference.sent.get((flight.delivery_id, flight.number))
        if before is None:
            return
        reference.counts["duplicates"] += 1
        reference.must(
            reference.owner_of(before.bucket)[1] > before.epoch,
            "S3",
            lambda: f"{name(flight.delivery_id)} #{flight.number} goes twice by one owner",
        )

    def _content(self, hit: Hit, delivery: DeliveryModel, sub: Subscription) -> None:
        must, headers = self._reference.must, hit.headers
        fact = self._reference.facts[delivery.event_id]
        must(fact.tenant == sub.tenant, "S12", lambda: f"{hit.delivery} left its tenant")
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
        table = self._reference.mix.table_of(sub.policy, sub.tenant)
        deadline_ms = sub.deadline_ms or table.deadline_ms
        must(
            hit.deadline_ms == deadline_ms,
            "deadline",
            lambda: f"{hit.delivery} has {hit.deadline_ms} ms, and should {deadline_ms}",
        )
        token = f"Bearer {sub.token}" if sub.token else None
        must(headers.get("authorization") == token, "S2", lambda: f"{hit.delivery}: another token")

    def _signatures(self, memory: Memory, hit: Hit, sub: Subscription) -> None:
        """Each secret and each signing key that is live signs once, and no other."""
        must, given = self._reference.must, hit.headers["webhook-signature"].split(" ")
        kind, tenant = sub.signature.value, sub.tenant
        secrets = [it for it in sub.secrets if kind != "ed25519" and is_live(it, at=hit.at)]
        signed = [signature_of(it.value, hit) for it in secrets]
        must(
            given[: len(signed)] == signed,
            "S2",
            lambda: f"{hit.delivery} is not signed with its subscription's {len(signed)} secrets",
        )
        rest, keys = given[len(signed) :], []
        if kind != "hmac":
            stored, known = self._reference.signing[tenant], memory.signing[tenant]
            keys = [it.value for it in known.keys if is_live(it, at=hit.at)]
            must(
                known == stored.now
                or (not stored.responded and memory.may_not_know(stored.changed, at=hit.at)),
                "S9",
                lambda: f"{hit.delivery} is signed with keys that {tenant} has no longer",
            )
        must(
            len(rest) == len(keys)
            and all(is_signed_with(key, hit, one) for key, one in zip(keys, rest, strict=True)),
            "S2",
            lambda: (
                f"{hit.delivery} has {len(rest)} more signatures, and {tenant} {len(keys)} keys"
            ),
        )

    def _standing(self, memory: Memory, hit: Hit, delivery: DeliveryModel) -> None:
        reference = self._reference
        flight = memory.flights.get(delivery.id)
        reference.must(
            flight is None or not reference.is_current(flight),
            "S3",
            lambda: f"{hit.delivery} is in flight twice",
        )
        reference.must(
            hit.number == delivery.attempts + 1,
            "S7",
            lambda: f"{hit.delivery} has {delivery.attempts} attempts, and now #{hit.number}",
        )
        if delivery.status == "pending":
            return
        cancelled = reference.cancels.get(delivery.id)
        reference.must(
            cancelled is not None and memory.may_not_know(cancelled, at=hit.at),
            "S7",
            lambda: f"{hit.delivery} is {delivery.status}, and is attempted again: {cancelled}",
        )

    def _quiet_enough(self, memory: Memory, hit: Hit, delivery: DeliveryModel) -> None:
        """The first attempt of an event waits until its key is quiet, or has waited long enough."""
        reference, known = self._reference, memory.catalog[delivery.subscription_id]
        if not known.quiet_ms or delivery.attempts or delivery.replay or reference.clock_jumped:
            return
        sub, line = reference.subs[delivery.subscription_id], reference.order.line(delivery)
        if delivery.accepted_at <= sub.waits_since:
            return  # It was accepted while the subscription said something else.
        longest = line.since + (known.max_wait_ms or 10 * known.quiet_ms)
        quiet_at = min(delivery.accepted_at + known.quiet_ms, longest)
        reference.counts["quiet"] += 1
        reference.must(
            hit.at >= quiet_at,
            "quiet",
            lambda: f"{hit.delivery} is sent {quiet_at - hit.at} ms before its key is quiet",
        )

    def _of_one_key(self, memory: Memory, hit: Hit, delivery: DeliveryModel) -> None:
        """One after the other, in the order of acceptance."""
        reference, must = self._reference, self._reference.must
        must(
            hit.headers.get("homing-key", "").replace("%20", " ") == delivery.key,
            "S2",
            lambda: f"{hit.delivery} has another key",
        )
        must(not delivery.blocked, "order", lambda: f"{hit.delivery} is blocked, and is sent")
        known = memory.catalog[delivery.subscription_id]
        if not delivery.ordered or delivery.freed or known.order.value == "none":
            return
        line = reference.order.line(delivery)
        if known.order.value == "latest":
            newest = reference.order.newest_of(delivery)
            at = hit.at if newest is None else reference.deliveries[newest].accepted_at
            must(
                hit.at <= at + ASKED_WITHIN_MS or reference.clock_jumped,
                "latest",
                lambda: f"{hit.delivery} is sent, and a newer event of its key waits since {at}",
            )
        must(
            delivery.place >= line.last or delivery.status != "pending",
            "order",
            lambda: f"{hit.delivery} is sent after a later one of its key",
        )
        line.last = max(line.last, delivery.place)
        first = reference.order.first_of(delivery)
        line.since = 0 if first is None else reference.deliveries[first].accepted_at
        for other in reference.memories.values() if not reference.alone else (memory,):
            for flight in other.flights.values():
                twin = reference.deliveries[flight.delivery_id]
                same = (twin.subscription_id, twin.key) == (delivery.subscription_id, delivery.key)
                if not same or twin.id == delivery.id or twin.freed or other.stopping:
                    continue
                if not twin.ordered and twin.place > delivery.place:
                    continue  # It was accepted while there was no order.
                must(
                    flight.finished_at is not None or hit.at >= flight.at + flight.hit.deadline_ms,
                    "order",
                    lambda it=twin: f"{hit.delivery} is sent while {name(it.id)} is in flight",  # type: ignore[misc]
                )

    def _is(
        self, memory: Memory, endpoint: EndpointModel, state: str, hit: Hit, *, held: bool
    ) -> bool:
        """The endpoint is in this state and not held, now or as far as its process may know."""
        known = memory.known[endpoint.id]
        if endpoint.state == state and (not held or self._after(memory, hit, endpoint.hold_until)):
            return True
        if known.state != state or (held and not self._after(memory, hit, known.hold_until)):
            return False
        change = self._reference.changed[endpoint.id]
        return endpoint.state == state or memory.may_not_know(change, at=hit.at)

    def _ordinary(
        self,
        memory: Memory,
        hit: Hit,
        delivery: DeliveryModel,
        endpoint: EndpointModel,
        sub: Subscription,
    ) -> None:
        reference, known = self._reference, memory.known[endpoint.id]
        by_ms = self._paused(delivery, sub, hit.at)
        due = delivery.due if delivery.waits_first else delivery.due + by_ms
        reference.must(
            self._is(memory, endpoint, "enabled", hit, held=True),
            "S9",
            lambda: (
                f"{hit.delivery} goes to an endpoint that is {endpoint.state} since "
                f"{endpoint.since}, held until {endpoint.hold_until}"
            ),
        )
        reference.must(
            hit.at >= due or (delivery.attempts == 0 and hit.at < delivery.ready),
            "S8",
            lambda: f"{hit.delivery} #{hit.number} is {due - hit.at} ms early",
        )
        ended = delivery.expires + by_ms <= hit.at and endpoint.refused_at != 0
        reference.must(
            not (ended and known.refused and known.at < hit.at)
            or hit.at < memory.maybe_quiet_until + MINUTE,
            "S8",
            lambda: f"{hit.delivery} was refused by changed settings until its window ended",
        )
        enabled = min(known.enabled_since, endpoint.enabled_since, hit.at)
        late = delivery.expires + self._paused(delivery, sub, enabled) <= enabled
        reference.must(
            not late or hit.at < memory.maybe_quiet_until,
            "S8",
            lambda: f"{hit.delivery} was held back beyond its window and is attempted",
        )

    def _after(self, memory: Memory, hit: Hit, hold_until: int) -> bool:
        """Past a hold; one by a clock that was ahead is no longer than any other."""
        if self._reference.clock_jumped:
            hold_until = min(hold_until, memory.started_at + HOLD_MAX_MS)
        return hit.at >= hold_until

    def _flying(self, memory: Memory) -> list[Flight]:
        return [it for it in memory.flights.values() if self._reference.is_current(it)]

    def _probe(self, memory: Memory, hit: Hit, endpoint: EndpointModel) -> None:
        reference = self._reference
        reference.counts["probes"] += 1
        others = [it for it in self._flying(memory) if it.probe and it.endpoint_id == endpoint.id]
        reference.must(not others, "S9", lambda: f"two probes at {endpoint.url}")
        reference.must(
            self._is(memory, endpoint, "disabled", hit, held=False),
            "S9",
            lambda: f"a probe at an endpoint that is {endpoint.state}",
        )

    def _slots(self, memory: Memory, endpoint: EndpointModel, lane: str) -> None:
        reference, options = self._reference, self._reference.mix.options
        flying = [it for it in self._flying(memory) if it.lane == lane and it.holds_slot]
        if reference.clock_jumped:
            flying = [it for it in flying if not reference.deliveries[it.delivery_id].ordered]
        most = options.fresh_slots if lane == "fresh" else options.retry_slots
        reference.must(
            len(flying) < most, "S13", lambda: f"{len(flying) + 1} {lane} attempts at once"
        )
        here = sum(it.endpoint_id == endpoint.id for it in flying)
        slots = memory.slots.setdefault(endpoint.id, Slots()).slots
        reference.must(
            here < slots,
            "S13",
            lambda: f"{here + 1} {lane} attempts at {endpoint.url}, which has {slots} slots",
        )

    def _in_order(self, memory: Memory, delivery: DeliveryModel, endpoint: EndpointModel) -> None:
        reference = self._reference
        if delivery.moved or reference.facts[delivery.event_id].type.startswith("homing."):
            return
        if delivery.ready != delivery.accepted_at or delivery.ordered:
            return  # It waited for others of its key.
        # By a clock that was ahead, an enable makes fresh what was held back before it.
        since = endpoint.enabled_since if reference.clock_jumped else 0
        # What was paused comes after others, and in the order of its own subscription.
        sub = reference.subs[delivery.subscription_id]
        own = sub.id if sub.pauses else 0
        place = (memory.life, endpoint.id, since, self._value(delivery), own)
        last = self._order.get(place)
        self._order[place] = delivery
        if last is None:
            return
        reference.must(
            last.position < delivery.position,
            "order",
            lambda: f"{name(delivery.id)} goes after {name(last.id)}, accepted before it",
        )

    def _value(self, delivery: DeliveryModel) -> str:
        """The value by which first attempts take turns: those of one value are in order."""
        fact = self._reference.facts[delivery.event_id]
        path = self._reference.mix.options.fair_by_of(fact.tenant).path
        data = json.loads(fact.data) if path else None
        return json.dumps(data.get(path.removeprefix("data."))) if isinstance(data, dict) else ""

    def responded(self, memory: Memory, hit: Hit, response: Response, asked: int | None) -> None:
        reference = self._reference
        word = response.code if response.code is not None else response.failure
        reference.say(f"response {hit.delivery} #{hit.number} {word}")
        flight = memory.flights.get(read_id("dlv", hit.delivery) or 0)
        if flight is None or flight.hit is not hit:
            return
        flight.finished_at = reference.clock()
        flight.code = response.code
        flight.failure = response.failure.value if response.failure is not None else None
        flight.asked = asked
        flight.passed_guard = response.address is not None
        if flight.failure == "forbidden_address":
            passed = reference.guard_passed(memory, flight.endpoint_id)
            flight.refusal_may_be = frozenset(whose_refusal(it, memory.guard) for it in passed)
        dialled = response.phases.connect_us is not None
        memory.outage_checks.responded(flight, host_of(hit.url), dialled=dialled)
