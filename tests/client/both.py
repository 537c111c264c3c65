"""Both clients behind one face: a story is written once and lived by each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from homing_client import AsyncHoming, Homing

LISTS = {
    "events",
    "subscriptions",
    "endpoints",
    "deliveries",
    "publish_all",
    "keys",
    "notices",
    "notice_targets",
    "portal_links",
}
STREAMS = {"stream"}  # lists without an end


class Threaded:
    """The blocking client, each call in a thread, so that it can be awaited."""

    def __init__(self, homing: Homing) -> None:
        self._homing = homing

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._homing, name)
        if name not in LISTS | STREAMS:

            async def call(*args: Any, **more: Any) -> Any:
                return await asyncio.to_thread(method, *args, **more)

            return call

        if name in STREAMS:

            async def endless(*args: Any, **more: Any) -> AsyncIterator[Any]:
                items = method(*args, **more)
                try:
                    while True:
                        yield await asyncio.to_thread(next, items)
                finally:
                    await asyncio.to_thread(items.close)

            return endless

        async def each(*args: Any, **more: Any) -> AsyncIterator[Any]:
            for item in await asyncio.to_thread(lambda: list(method(*args, **more))):
                yield item

        return each


Make = Callable[..., AsyncHoming]


def blocking(url: str, key: str = "key", **more: Any) -> AsyncHoming:
    return cast("AsyncHoming", Threaded(Homing(url, key, **more)))


def asynchronous(url: str, key: str = "key", **more: Any) -> AsyncHoming:
    return AsyncHoming(url, key, **more)


both = pytest.mark.parametrize("make", [blocking, asynchronous], ids=["sync", "async"])


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def methods(kind: type) -> Iterator[tuple[str, inspect.Signature]]:
    """The public methods of a client with what they take, without what makes the difference."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name, inspect.signature(method).replace(return_annotation=None)


async def raised(doing: Awaitable[Any]) -> BaseException:
    """The error that this raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        await doing
    return caught.value
