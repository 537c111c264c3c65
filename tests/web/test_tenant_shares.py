"""Schemas, samples and pages of one tenant take their share of the loop, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from homing.engine.options import EngineOptions
from homing.engine.shared import WORK_WINDOW_S
from web.browse import Browser
from web.house import House, live

PIECE_NS = 150_000_000
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


class Busy:
    """A thread on which everything takes long: each piece of work uses as much."""

    used_ns = 0

    def __call__(self) -> int:
        self.used_ns += PIECE_NS
        return self.used_ns


async def _took_s(work: Awaitable[Any]) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await work
    return loop.time() - began


def test_schemas_and_samples_are_work_of_their_tenant_and_delay_no_other() -> None:
    async def story(house: House) -> None:
        async def describe(name: str, tenant: str, **more: Any) -> None:
            type_ = {"name": name, "tenant": tenant, "schema": SCHEMA, **more}
            got = await house.client.post("/v1/event-types", type_)
            assert got.status == 201, got.body

        assert await _took_s(describe("a.b", "dear", sample={"id": 1})) < 0.1  # two pieces
        assert await _took_s(describe("a.b", "other")) < 0.1
        assert await _took_s(describe("a.c", "dear")) >= 0.9 * WORK_WINDOW_S

    live(story, EngineOptions(cpu_ns=Busy()))


def test_a_schema_that_is_compiled_for_the_first_event_is_work_of_its_tenant() -> None:
    async def story(house: House) -> None:
        for name in ("a.b", "a.c", "a.d"):
            type_ = {"name": name, "tenant": "dear", "schema": SCHEMA}
            assert (await house.client.post("/v1/event-types", type_)).status == 201

        async def publish(name: str) -> None:
            await house.publish(type=name, tenant="dear", data={"id": 1})

        await asyncio.sleep(2 * WORK_WINDOW_S)
        await publish("a.b")
        await publish("a.c")
        assert await _took_s(publish("a.d")) >= 0.9 * WORK_WINDOW_S
        assert await _took_s(publish("a.d")) < 0.1

    live(story, EngineOptions(cpu_ns=Busy()))


def test_pages_are_work_of_their_reader() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        await asyncio.sleep(2 * WORK_WINDOW_S)
        for _ in range(2):
            assert await _took_s(browser.get("/event-types")) < 0.1
        assert await _took_s(browser.get("/event-types")) >= 0.9 * WORK_WINDOW_S
        for _ in range(5):  # Nobody who has no key can keep others from signing in.
            assert await _took_s(Browser(house.app).get("/sign-in")) < 0.1
        type_ = {"name": "a.b", "tenant": "other", "schema": SCHEMA}
        assert await _took_s(house.client.post("/v1/event-types", type_)) < 0.1

    live(story, EngineOptions(cpu_ns=Busy()))
