"""``homing publish``: publish one event from the command line, or many from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from homing.cli.arguments import OwnerFlag
from homing.cli.errors import Usage
from homing.cli.output import console, counted, plain, print_json
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import Event, Receipt


@remote_command
def publish(
    event_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="Its type, like order.paid.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(help="JSON; @FILE reads a file, - reads standard input. Default: null."),
    ] = None,
    *,
    remote: Remote,
    event_id: Annotated[
        str | None, typer.Option("--id", help="Idempotency key: the same id twice is one event.")
    ] = None,
    tenant: OwnerFlag = None,
    time: Annotated[str | None, typer.Option("--time", help="RFC 3339; default: now.")] = None,
    event_key: Annotated[
        str | None,
        typer.Option(
            "--event-key", help="The object that it is about; subscriptions may have order by it."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", help="Many events, one JSON object per line; - is standard input."),
    ] = None,
) -> None:
    """Publish an event, or a file of them; at the end they are on the server's disk."""
    if (event_type is None) == (file is None):
        raise Usage("Give either a TYPE with its DATA, or --file with many events.")
    if file is not None:
        if event_id or tenant or time or event_key:
            raise Usage("With --file each line has its own id, tenant, time and key.")
        events = _events(file)
        _publish_file(remote, events)
        return
    assert event_type is not None
    content = _data(data)
    remote.show(
        lambda client: client.publish(
            event_type, content, id=event_id, tenant=tenant, time=time, key=event_key
        ),
        _view,
    )


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
    from homing_client import Event

    events = []
    for number, line in enumerate(_read(name).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            events.append(msgspec.convert({**_without_data(raw), "data": raw["data"]}, Event))
        except (msgspec.MsgspecError, KeyError) as error:
            reason = "it has no data" if isinstance(error, KeyError) else str(error)
            raise Usage(f"{name}, line {number} is not an event: {reason}.") from None
    if not events:
        raise Usage(f"{name} contains no events.")
    return events


def _without_data(raw: dict[str, msgspec.Raw]) -> dict[str, object]:
    return {name: msgspec.json.decode(value) for name, value in raw.items() if name != "data"}


def _publish_file(remote: Remote, events: list[Event]) -> None:
    with remote.connect() as client:
        receipts: list[Receipt] = []
        for receipt in client.publish_all(events):
            receipts.append(receipt)
            if remote.json:
                print_json(receipt)
    if remote.json:
        return
    new = [receipt for receipt in receipts if not receipt.duplicate]
    warned = [receipt for receipt in receipts if receipt.warning]
    total = sum(receipt.deliveries for receipt in new)
    out = console()
    out.print(f"Published {counted(len(new), 'event')}: {counted(total, 'delivery')}.")
    if len(new) < len(receipts):
        repeated = counted(len(receipts) - len(new), "event")
        out.print(f"Not sent again: {repeated} with an id that was published before.")
    if warned:
        out.print(f"{counted(len(warned), 'event')} with a warning; the first:")
        _warn(out, warned[0])


def _warn(out: Console, receipt: Receipt) -> None:
    if receipt.warning:
        sentence = f"Warning: {plain(receipt.id)}: {plain(receipt.warning)}"
        out.print(sentence, style="yellow", soft_wrap=True)


def _view(out: Console, receipt: Receipt) -> None:
    match receipt.deliveries:
        case 0:
            where = "no subscription with a URL matches it"
        case 1:
            where = "it goes to 1 subscription"
        case count:
            where = f"it goes to {count:,} subscriptions"
    if receipt.duplicate:
        sentence = f"{plain(receipt.id)} was published before: nothing new is sent."
    else:
        sentence = f"Published {plain(receipt.id)}: {where}."
    out.print(sentence, soft_wrap=True)
    _warn(out, receipt)
    if receipt.deliveries:
        out.print(f"  homing deliveries --event {plain(receipt.id)}", style="dim", soft_wrap=True)
