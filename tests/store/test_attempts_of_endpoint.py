"""The attempts of an endpoint, newest first: every one is listed once, in bounded pages."""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Attempt, Decided, Failure, Lane, Outcome, Status
from homing.ports import SettleBatch
from homing.ports.views import AttemptFilter
from homing.store.admin import Admin
from homing.store.tx import Db
from homing.store.views import Views
from store.build import NOW
from store.scene import Scene

SECOND = 1_000


class Story(Scene):
    """Attempts of one endpoint, each a second after the one before."""

    made: list[Attempt]

    async def begin(self) -> Story:
        await super().begin()
        self.made = []
        return self

    async def attempt(
        self,
        *,
        delivered: bool = True,
        code: int | None = 204,
        failure: Failure | None = None,
        lane: Lane = Lane.FRESH,
        before: Attempt | None = None,
    ) -> Attempt:
        """Publish and settle one attempt, or the next one of an earlier delivery."""
        self.make.now += SECOND
        if before is None:
            (delivery,) = await self.deliver(1)
        else:
            row = await Views(self.db).delivery(before.delivery_id)
            assert row is not None
            delivery = row.delivery
        number = 1 if before is None else before.number + 1
        attempt = replace(
            self.make.attempt(delivery, number=number),
            outcome=Outcome.DELIVERED if delivered else Outcome.FAILED,
            code=code,
            failure=failure,
            lane=lane,
            decided=Decided.DELIVERED if delivered else Decided.RETRY,
        )
        tried = replace(delivery, attempts=number)
        finished = (self.make.finished(tried),) if delivered else ()
        waiting = () if delivered else (tried,)
        await self.flow.settle(
            SettleBatch(
                number=self.number(), finished=finished, waiting=waiting, attempts=(attempt,)
            )
        )
        self.made.append(attempt)
        return attempt

    async def listed(self, *, limit: int = 100, **conditions: object) -> list[Attempt]:
        views, cursor, found = Views(self.db), None, []
        for _ in range(100):
            page, cursor = await views.endpoint_attempts(
                self.endpoint.id,
                AttemptFilter(**conditions),  # type: ignore[arg-type]
                cursor=cursor,
                limit=limit,
            )
            assert len(page) <= limit
            found += page
            if cursor is None:
                return found
        raise AssertionError("it never ends")


async def mixed(db: Db) -> Story:
    """Successes, failures, retries and a probe in turn."""
    story = await Story(db).begin()
    for turn in range(4):
        await story.attempt()
        failed = await story.attempt(delivered=False, code=503)
        refused = await story.attempt(delivered=False, code=None, failure=Failure.REFUSED)
        if turn % 2:
            await story.attempt()
        await story.attempt(before=failed, lane=Lane.RETRY, code=200)
        await story.attempt(before=refused, delivered=False, code=503, lane=Lane.PROBE)
    return story


async def test_all_attempts_are_listed_once_newest_first(db: Db) -> None:
    story = await mixed(db)
    newest_first = story.made[::-1]
    for limit in (1, 2, 3, 7, 100):
        assert await story.listed(limit=limit) == newest_first


async def test_attempts_are_chosen_by_outcome_failure_code_and_time(db: Db) -> None:
    story = await mixed(db)
    newest_first = story.made[::-1]

    def those(**wanted: object) -> list[Attempt]:
        return [it for it in newest_first if all(getattr(it, n) == v for n, v in wanted.items())]

    assert await story.listed(limit=2, code=503) == those(code=503)
    assert await story.listed(limit=2, code=204) == those(code=204)
    assert await story.listed(limit=2, failure="http_status") == those(code=503)
    assert await story.listed(failure="refused") == those(failure=Failure.REFUSED)
    assert await story.listed(failure="tls") == []
    assert await story.listed(limit=3, outcome=Outcome.DELIVERED) == those(
        outcome=Outcome.DELIVERED
    )
    since, until = NOW + 5 * SECOND, NOW + 12 * SECOND
    between = [it for it in newest_first if since <= it.started_at < until]
    assert await story.listed(limit=2, since=since, until=until) == between


async def test_a_success_of_a_cancelled_delivery_and_a_test_send_are_listed(db: Db) -> None:
    story = await Story(db).begin()
    (delivery,) = await story.deliver(1)
    await Admin(db).cancel_delivery(delivery.id, now=NOW)
    arrived = replace(
        story.make.attempt(delivery), outcome=Outcome.DELIVERED, code=200, failure=None
    )
    finished = story.make.finished(replace(delivery, attempts=1), Status.DELIVERED)
    await story.flow.settle(SettleBatch(number=1, finished=(finished,), attempts=(arrived,)))
    test = replace(
        story.make.attempt(replace(delivery, id=story.make.id())),
        lane=Lane.TEST,
        started_at=NOW + SECOND,
    )
    await Admin(db).log_test(test)

    assert [it.lane for it in await story.listed()] == [Lane.TEST, Lane.FRESH]


async def test_another_endpoint_has_its_own_attempts(db: Db) -> None:
    story = await mixed(db)
    page, cursor = await Views(db).endpoint_attempts(7, AttemptFilter(), cursor=None, limit=10)
    assert (page, cursor) == ([], None)
    assert len(await story.listed()) == len(story.made)
