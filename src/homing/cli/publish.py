"""``homing publish``: one event from the command line, or many from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from homing.cli.output import console, plain, say_json
from homing.cli.trouble import Usage
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, connect

if TYPE_CHECKING:
    from homing.client import Event, Homing, Receipt


def publish(
    event_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="Its type, like order.paid.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(help="JSON; @FILE reads a file, - standard input. Default: null."),
    ] = None,
    *,
    event_id: Annotated[
        str | None, typer.Option("--id", help="Idempotency key: the same id twice is one event.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Whose event it is; default: default.")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", help="RFC 3339; default: now.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", help="Many events, one JSON object per line; - is standard input."),
    ] = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Publish an event, or a file of them; when it returns, they are on the server's disk."""
    if (event_type is None) == (file is None):
        raise Usage("Give either a TYPE with its DATA, or --file with many events.")
    if file is not None:
        if event_id or tenant or time:
            raise Usage("With --file each line says its own id, tenant and time.")
        events = _events(file)
        with connect(server, key) as client:
            _many(client, events, json=json)
        return
    assert event_type is not None
    content = _data(data)
    with connect(server, key) as client:
        receipt = client.publish(event_type, content, id=event_id, tenant=tenant, time=time)
    _say(receipt, json=json)


def _data(text: str | None) -> msgspec.Raw:
    """JSON as it was written, byte for byte."""
    content = b"null" if text is None else text.encode()
    if text is not None and (text == "-" or text.startswith("@")):
        content = _read(text.removeprefix("@"))
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Usage(
            f"DATA is not JSON: {error}. Text needs its own quotes: '\"hello\"'; a file is @FILE."
        ) from None
    return msgspec.Raw(content.strip())


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise Usage(f"{name} cannot be read: {error.strerror}.") from None


def _events(name: str) -> list[Event]:
    from homing.client import Event

    events = []
    for number, line in enumerate(_read(name).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            events.append(msgspec.convert({**_plain(raw), "data": raw["data"]}, Event))
        except (msgspec.MsgspecError, KeyError) as error:
            reason = "it has no data" if isinstance(error, KeyError) else str(error)
            raise Usage(f"{name}, line {number} is not an event: {reason}.") from None
    if not events:
        raise Usage(f"{name} holds no events.")
    return events


def _plain(raw: dict[str, msgspec.Raw]) -> dict[str, object]:
    return {name: msgspec.json.decode(value) for name, value in raw.items() if name != "data"}


def _many(client: Homing, events: list[Event], *, json: bool) -> None:
    receipts: Iterator[Receipt] = client.publish_all(events)
    if json:
        for receipt in receipts:
            say_json(receipt)
        return
    made = list(receipts)
    new = [receipt for receipt in made if not receipt.duplicate]
    total = sum(receipt.deliveries for receipt in new)
    out = console()
    out.print(f"Published {_count(len(new), 'event')}: {_count(total, 'delivery')}.")
    if len(new) < len(made):
        repeated = _count(len(made) - len(new), "event")
        out.print(f"Not sent again: {repeated} with an id that was published before.")


def _count(number: int, noun: str) -> str:
    plural = f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _say(receipt: Receipt, *, json: bool) -> None:
    if json:
        say_json(receipt)
        return
    out = console()
    match receipt.deliveries:
        case 0:
            where = "no subscription wants it"
        case 1:
            where = "it goes to 1 subscription"
        case count:
            where = f"it goes to {count:,} subscriptions"
    if receipt.duplicate:
        said = f"{plain(receipt.id)} was published before: nothing new is sent."
    else:
        said = f"Published {plain(receipt.id)}: {where}."
    out.print(said, soft_wrap=True)
    if receipt.deliveries:
        out.print(f"  homing deliveries --event {plain(receipt.id)}", style="dim", soft_wrap=True)
