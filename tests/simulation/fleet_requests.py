"""Looks at every request that a fleet sends: what it says, whether it may go now, and from whom."""

from __future__ import annotations

import json

from homing.model import Subscription, read_id, show_id
from homing.ports import Response
from homing.sim.world import Hit
from simulation.fleet_books import Duty, FleetBooks, Place, Sent, Sub
from simulation.requests import signature_of


def standard_body(duty: Duty, books: FleetBooks) -> bytes:
    """The bytes that must go out, from what the publisher offered."""
    event = books.events[duty.event_id]
    head = f'{{"id":{json.dumps(event.key)},"type":{json.dumps(event.type)}'
    data = books.offered.get(event.key, event.data)
    return f'{head},"timestamp":{json.dumps(event.time)},"data":'.encode() + data + b"}"


class FleetRequests:
    """Every request that starts, and every response."""

    def __init__(self, books: FleetBooks) -> None:
        self._books = books

    def sent(self, hit: Hit, member_id: int) -> None:
        books = self._books
        books.counts["requests"] += 1
        number = read_id("dlv", hit.delivery) or 0
        duty = books.duties.get(number)
        if duty is None:
            books.violated("S2", f"{hit.delivery} was never accepted")
            return
        books.say(f"process {member_id} sends {hit.delivery} #{hit.number} to {hit.url}")
        sub, told = books.subs[duty.subscription_id], books.catalogs[hit.life]
        known = told.get(sub.now.id)
        if known is None or known.deleted_at is not None or known.url != hit.url:
            books.violated("S2", f"{hit.delivery} goes to {hit.url}; its process knew {known}")
            return
        self._content(hit, duty, known)
        self._subscribed(hit, sub, known)
        place = books.places[books.urls[hit.url]]
        epoch = self._held(hit, member_id, duty, place)
        probe = books.taken.pop(number, None) == (hit.life, hit.at, hit.url)
        self._may_go(hit, place, probe=probe)
        right = probe or hit.at >= duty.due
        books.must(right, "S8", lambda: f"{hit.delivery} is {duty.due - hit.at} ms early")
        self._standing(hit, duty)
        self._once(hit, number)
        books.sent[number, hit.number] = Sent(
            hit.life, place.bucket, epoch, hit.at, place.model.id, probe
        )

    def _content(self, hit: Hit, duty: Duty, known: Subscription) -> None:
        must, headers = self._books.must, hit.headers
        body = standard_body(duty, self._books)
        must(hit.body == body, "S2", lambda: f"{hit.delivery} has other bytes: {hit.body!r}")
        root = show_id("dlv", duty.root_id)
        must(headers["webhook-id"] == root, "S2", lambda: f"webhook-id is not {root}")
        signed = signature_of(known.secrets[0].value, hit)
        right = headers["webhook-signature"] == signed
        must(right, "S2", lambda: f"{hit.delivery} is not signed with its subscription's secret")

    def _subscribed(self, hit: Hit, sub: Sub, known: Subscription) -> None:
        same = (known.url, known.deleted_at) == (sub.now.url, sub.now.deleted_at)
        self._books.must(
            same
            or (not sub.responded and self._books.may_not_know(hit.life, sub.changed, at=hit.at)),
            "S9",
            lambda: f"{hit.delivery} goes to {hit.url}; long since it is {sub}",
        )

    def _held(self, hit: Hit, member_id: int, duty: Duty, place: Place) -> int:
        """The bucket is held by who sends, and the delivery is in it; its epoch."""
        books = self._books
        owner, epoch = books.owner_of(place.bucket)
        books.must(
            owner == member_id,
            "S6",
            lambda: f"process {member_id} sends, and {owner} holds the bucket",
        )
        books.must(
            duty.bucket == place.bucket or duty.status != "pending",
            "S6",
            lambda: f"{hit.delivery} is in {duty.bucket}, and sent from {place.bucket}",
        )
        return epoch

    def _may_go(self, hit: Hit, place: Place, *, probe: bool) -> None:
        state = place.model.state
        may = state == ("disabled" if probe else "enabled")
        self._books.must(
            may or self._books.may_not_know(hit.life, place.changed, at=hit.at),
            "S9",
            lambda: (
                f"{hit.delivery} goes to an endpoint that is {state} since {place.model.since}"
                f" (probe: {probe}): {place.changed}"
            ),
        )

    def _standing(self, hit: Hit, duty: Duty) -> None:
        books = self._books
        right = hit.number == duty.attempts + 1
        books.must(right, "S7", lambda: f"{hit.delivery}: {duty.attempts}, now #{hit.number}")
        if duty.status == "pending":
            return
        cancelled = books.cancels.get(duty.id)
        books.must(
            cancelled is not None and books.may_not_know(hit.life, cancelled, at=hit.at),
            "S7",
            lambda: f"{hit.delivery} is {duty.status}, and is attempted: {cancelled}",
        )

    def _once(self, hit: Hit, number: int) -> None:
        books, before = self._books, self._books.sent.get((number, hit.number))
        if before is None:
            return
        books.counts["duplicates"] += 1
        books.must(
            books.owner_of(before.bucket)[1] > before.epoch,
            "S3",
            lambda: f"{hit.delivery} #{hit.number} goes twice, and its bucket stayed",
        )

    def responded(self, hit: Hit, response: Response) -> None:
        word = response.code if response.code is not None else response.failure
        self._books.say(f"response {hit.delivery} #{hit.number} {word}")
        sent = self._books.sent.get((read_id("dlv", hit.delivery) or 0, hit.number))
        if sent is not None and sent.life == hit.life:
            sent.finished_at, sent.code = self._books.clock(), response.code
