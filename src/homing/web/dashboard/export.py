"""Lists as files: NDJSON with the objects of the API, or CSV with a column for each field of them.

A spreadsheet runs a cell that begins with one of ``= + - @`` as a formula. Such a cell, which may
come from a receiver or a publisher, gets an apostrophe in front and stays text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from homing.web.dashboard.request import Handler, Page, PageRequest
from homing.web.response import Response

CSV, NDJSON = "csv", "ndjson"
_TYPES = {CSV: b"text/csv; charset=utf-8", NDJSON: b"application/x-ndjson"}
_LEFT_OUT = {"sentence_parts"}  # of CSV: the column sentence has the text
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")

T = TypeVar("T")


def export_pages(
    path: str,
    handler: Callable[[PageRequest, str], Awaitable[Response]],
    use_case: Callable[..., Any],
) -> tuple[Page, ...]:
    """The pages ``path.csv`` and ``path.ndjson``."""
    return tuple(
        Page(path=f"{path}.{form}", handler=_of(handler, form), use_case=use_case)
        for form in (CSV, NDJSON)
    )


def _of(handler: Callable[[PageRequest, str], Awaitable[Response]], form: str) -> Handler:
    async def export(request: PageRequest) -> Response:
        return await handler(request, form)

    return export


def export_response(
    name: str,
    form: str,
    pages: AsyncIterator[list[T]],
    view: Callable[[T], msgspec.Struct],
    kind: type[msgspec.Struct],
) -> Response:
    """A response that streams the rows; ``kind`` is what ``view`` returns."""
    columns = [it for it in kind.__struct_encode_fields__ if it not in _LEFT_OUT]
    stream = _csv(pages, view, columns) if form == CSV else _ndjson(pages, view)
    head = f'attachment; filename="homing-{name}.{form}"'.encode()
    return Response(
        200, content_type=_TYPES[form], headers=((b"content-disposition", head),), stream=stream
    )


async def _ndjson(
    pages: AsyncIterator[list[T]], view: Callable[[T], msgspec.Struct]
) -> AsyncIterator[bytes]:
    async for page in pages:
        yield b"".join(msgspec.json.encode(view(it)) + b"\n" for it in page)


async def _csv(
    pages: AsyncIterator[list[T]], view: Callable[[T], msgspec.Struct], columns: Sequence[str]
) -> AsyncIterator[bytes]:
    yield _lines([columns])
    async for page in pages:
        rows = [msgspec.to_builtins(view(it)) for it in page]
        yield _lines([[cell(row.get(it)) for it in columns] for row in rows])


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def cell(value: Any) -> str:
    """A value as the text of a cell that no spreadsheet runs."""
    if value is None:
        return ""
    if isinstance(value, bool | int):
        return str(value).lower()
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if text.startswith(_FORMULA) else text
