"""``homing workfront``: sample messages for the development of a Workfront integration."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from homing.cli.errors import Usage

app = typer.Typer(name="workfront", no_args_is_help=True, rich_markup_mode=None)


class Version(StrEnum):
    """The version of a message."""

    V1 = "v1"
    V2 = "v2"


@app.callback()
def workfront() -> None:
    """Make sample messages, to develop a Workfront integration without Workfront."""


@app.command(short_help="Make a sample message, like PROJ.UPDATE.")
def sample(
    name: Annotated[
        str, typer.Argument(help="An object code and CREATE, UPDATE or DELETE, like PROJ.UPDATE.")
    ],
    event: Annotated[
        bool,
        typer.Option("--event", help="Print the event for homing publish --file, not the message."),
    ] = False,
    count: Annotated[
        int, typer.Option("--count", min=1, max=100_000, help="How many, one per line.")
    ] = 1,
    user: Annotated[
        str | None, typer.Option("--user", help="The id of the person who made the change.")
    ] = None,
    version: Annotated[
        Version, typer.Option("--version", help="The version of the message.")
    ] = Version.V2,
    base64: Annotated[
        bool, typer.Option("--base64", help="Encode both states as with base64Encoding.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same number makes the same samples.")
    ] = None,
) -> None:
    """Make a message as Workfront sends it, from the public list of fields, with made-up values."""
    from random import Random

    from msgspec.json import encode

    from homing.errors import Invalid
    from homing.net.clock import SystemClock
    from homing.policy import workfront_sample

    random, now = Random(seed), SystemClock().wall()  # noqa: S311 - values that are made up
    for _ in range(count):
        try:
            made = workfront_sample.sample(name, random, now=now, user=user)
        except Invalid as error:
            raise Usage(f"{error.problems[0].field} {error.problems[0].reason}.") from None
        if event:
            line = encode(made)
        else:
            line = workfront_sample.sample_message(
                made, now=now, version=version.value, base64=base64
            )
        print(line.decode())
