"""Explaining filters in slices: one slice per turn of the event loop, whoever asks."""

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
    """Takes turns between all requests that ask why filters match or do not."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def read(self, data: bytes) -> Reading:
        """An event's data, ready to be asked."""
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
        """The result, however many slices it takes; the question may raise OutOfSteps."""
        while True:
            async with self._turn:
                reading.left = SLICE_STEPS
                try:
                    return question()
                except OutOfSteps:
                    await asyncio.sleep(0)

    async def run(self, filters: Filters, data: bytes) -> Verdict:
        """Whether this data matches, and what decided."""
        reading = await self.read(data)
        return await self.ask(reading, lambda: run(filters, reading.data, reading))
