"""``homing rotate-secret``: a new signing secret, with the old one beside it for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from homing.cli.duration import read_seconds
from homing.cli.output import console, facts, plain, say_json
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, connect


def rotate_secret(
    subscription: Annotated[str, typer.Argument(help="Its id, like sub_01k9x3w8z4g00.")],
    *,
    overlap: Annotated[
        str | None, typer.Option(help="How long the old secret still signs; default: 24h.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option(help="whsec_…, to sign with; default: a new one is made.")
    ] = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Sign with a new secret; it is shown now and never again."""
    overlap_ms = None if overlap is None else round(read_seconds(overlap, "--overlap") * 1000)
    with connect(server, key) as client:
        made = client.rotate_secret(subscription, secret=secret, overlap_ms=overlap_ms)
    if json:
        say_json(made)
        return
    out = console()
    out.print(f"Rotated the secret of {plain(made.id)}")
    out.print(
        facts(
            (
                ("secret", made.secret),
                *((one.value, f"signs until {one.until}") for one in made.secrets if one.until),
            )
        )
    )
    out.print("Keep the secret: it is not shown again.", style="dim")
