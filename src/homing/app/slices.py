"""Explains filters in slices: at most one slice per turn of the event loop, over all requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from homing.policy.exact import decoding
from homing.policy.filters import Filters
from homing.policy.filters_reading import SLICE_STEPS, OutOfSteps, Reading
from homing.policy.filters_run import Verdict, run

_T = TypeVar("_T")


class Slices:
    """Takes turns between all requests that evaluate or explain filters."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def read(self, data: bytes) -> Reading:
        """The data of an event, decoded in slices."""
        slices = decoding(data, SLICE_STEPS)
        step = partial(next, slices)
        while True:
            async with self._turn:
                try:
                    step()
                except StopIteration as end:
                    return Reading(end.value[0])
                step = partial(slices.send, SLICE_STEPS)
                await asyncio.sleep(0)

    async def ask(self, reading: Reading, question: Callable[[], _T]) -> _T:
        """The result of ``question``, which is called again while it raises OutOfSteps."""
        while True:
            async with self._turn:
                reading.left = SLICE_STEPS
                try:
                    return question()
                except OutOfSteps:
                    await asyncio.sleep(0)

    async def run(self, filters: Filters, data: bytes) -> Verdict:
        """Whether the data matches the filters, with the reasons."""
        reading = await self.read(data)
        return await self.ask(reading, lambda: run(filters, reading.data, reading))
