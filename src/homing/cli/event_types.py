"""``homing event-types``: describe the types of events, list, show, change, delete, export."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from homing.cli.arguments import OwnerFlag, TenantFlag
from homing.cli.errors import Usage
from homing.cli.output import ago, dim, fields, plain, print_json
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import EventType, EventTypeSummary

app = typer.Typer(name="event-types", rich_markup_mode=None)


class Check(StrEnum):
    """What happens to an event whose data does not match the schema."""

    OFF = "off"
    WARN = "warn"
    REFUSE = "refuse"


NameArgument = Annotated[str, typer.Argument(metavar="TYPE", help="Its name, like order.paid.")]
DescriptionFlag = Annotated[str | None, typer.Option(help="When the event happens.")]
SchemaFlag = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A JSON Schema of the data; - is standard input."),
]
SampleFlag = Annotated[
    str | None, typer.Option(metavar="FILE", help="The data of such an event, as JSON.")
]
CheckFlag = Annotated[
    Check | None,
    typer.Option(
        help="What happens to an event that does not match the schema: off, warn or refuse; "
        "default: the setting event_check."
    ),
]
LimitFlag = Annotated[
    int, typer.Option("--limit", min=1, help="The maximum number of items, by tenant and name.")
]


@app.callback(invoke_without_command=True)
@remote_command
def event_types(
    context: typer.Context, *, remote: Remote, tenant: TenantFlag = None, limit: LimitFlag = 200
) -> None:
    """List event types by name; or show, create, change, delete or export them."""
    if context.invoked_subcommand is not None:
        return
    remote.list_items(
        lambda client: client.event_types(tenant=tenant),
        limit=limit,
        columns=("type", "tenant", "description", "schema", "sample", "check", "changed"),
        row=_row,
        empty="There are no event types. "
        "`homing event-types create order.paid --schema FILE` describes one.",
    )


def _row(one: EventTypeSummary) -> tuple[object, ...]:
    first = one.description.strip().partition("\n")[0]
    return (
        one.name,
        one.tenant,
        first if len(first) <= 60 else f"{first[:59]}…",
        "yes" if one.has_schema else dim("no"),
        "yes" if one.has_sample else dim("no"),
        one.check or dim("default"),
        dim(ago(one.updated_at)),
    )


@app.command("show")
@remote_command
def show(name: NameArgument, *, remote: Remote, tenant: OwnerFlag = None) -> None:
    """Show an event type with its schema and sample."""
    remote.show(lambda client: client.event_type(name, tenant=tenant), _view)


def _view(out: Console, one: EventType) -> None:
    out.print(
        fields(
            (
                ("type", one.name),
                ("tenant", one.tenant),
                ("description", one.description or dim("none")),
                ("check", one.check or "as the setting event_check says"),
                ("changed", one.updated_at),
            )
        )
    )
    for title, raw in (("schema", one.schema), ("sample", one.sample)):
        text = msgspec.json.format(bytes(raw)).decode()
        if text != "null":
            out.print(f"\n{title}:", style="dim")
            for line in text.split("\n"):
                out.print(plain(line), soft_wrap=True)


@app.command("create")
@remote_command
def create(
    name: NameArgument,
    *,
    remote: Remote,
    description: DescriptionFlag = None,
    schema: SchemaFlag = None,
    sample: SampleFlag = None,
    check: CheckFlag = None,
    tenant: OwnerFlag = None,
) -> None:
    """Describe a type of events; with a schema, events of this type are checked."""
    remote.show(
        lambda client: client.create_event_type(
            name,
            description=description or "",
            schema=_json(schema, "--schema"),
            sample=_json(sample, "--sample"),
            check=None if check is None else check.value,
            tenant=tenant,
        ),
        lambda out, made: out.print(f"Created {plain(made.name)}."),
    )


@app.command("change")
@remote_command
def change(
    name: NameArgument,
    *,
    remote: Remote,
    description: DescriptionFlag = None,
    schema: SchemaFlag = None,
    sample: SampleFlag = None,
    check: CheckFlag = None,
    tenant: OwnerFlag = None,
) -> None:
    """Change what is said about a type; what is not given stays. A file with null removes it."""
    given: dict[str, Any] = {
        "description": description,
        "schema": _json(schema, "--schema"),
        "sample": _json(sample, "--sample"),
        "check": None if check is None else check.value,
    }
    changes = {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise Usage("Give at least one of --description, --schema, --sample and --check.")
    remote.show(
        lambda client: client.change_event_type(name, tenant=tenant, **changes),
        lambda out, changed: out.print(f"Changed {plain(changed.name)}."),
    )


@app.command("delete")
@remote_command
def delete(name: NameArgument, *, remote: Remote, tenant: OwnerFlag = None) -> None:
    """Delete an event type; events that were accepted stay as they are."""
    remote.do(
        lambda client: client.delete_event_type(name, tenant=tenant),
        document={"name": name, "deleted": True},
        sentence=f"Deleted {plain(name)}.",
    )


@app.command("export")
@remote_command
def export(*, remote: Remote, tenant: OwnerFlag = None) -> None:
    """Print all event types of a tenant as an OpenAPI 3.1 document with webhooks."""
    with remote.connect() as client:
        document = client.event_types_openapi(tenant=tenant)
    if remote.json:
        print_json(document)
    else:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")


def _json(name: str | None, flag: str) -> msgspec.Raw | None:
    """The JSON in a file, as it was written."""
    if name is None:
        return None
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        msgspec.json.decode(content)
    except OSError as error:
        raise Usage(f"{flag} {name} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Usage(f"{flag} {name} is not JSON: {error}.") from None
    return msgspec.Raw(content.strip())
