"""The command line: all commands under one name, and what happens when one fails.

A command imports what it needs when it runs, so that ``homing --help`` is there at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from homing import __version__
from homing.cli import (
    deliveries,
    endpoints,
    filters,
    keys,
    listen,
    local,
    move,
    outbox,
    publish,
    relay,
    replay,
    rotate,
    serve,
    simulate,
    subscriptions,
    tail,
)
from homing.cli.hide import hide_secrets

app = typer.Typer(
    name="homing",
    help="Brings every event to every matching URL, tried for 48 hours, never lost.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"homing {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Brings every event to every matching URL, tried for 48 hours, never lost."""


app.command(short_help="Serve the API and deliver.")(serve.serve)
app.command(short_help="See the whole life of a URL in two minutes.")(local.demo)
app.command(short_help="Receive events here, verified and shown.")(listen.listen)
app.command(short_help="Publish an event, or a file of them.")(publish.publish)
app.command(short_help="Have events sent to a URL.")(subscriptions.subscribe)
app.command(short_help="Delete a subscription.")(subscriptions.unsubscribe)
app.command(short_help="List subscriptions.")(subscriptions.subscriptions)
app.add_typer(filters.app, short_help="Try, change, or see why not.")
app.command(short_help="Sign with a new secret.")(rotate.rotate_secret)
app.add_typer(endpoints.app, short_help="List, show, enable or freeze URLs.")
app.add_typer(deliveries.app, short_help="List, show or cancel deliveries.")
app.command(short_help="Send finished deliveries again.")(replay.replay)
app.add_typer(keys.app, short_help="Make, list or revoke keys of the API.")
app.add_typer(outbox.app, short_help="Publish in your own transaction.")
app.command(short_help="Publish what an outbox holds.")(relay.relay)
app.command(short_help="Follow the attempts, live.")(tail.tail)
app.command(short_help="Play a scenario on virtual time.")(simulate.simulate)
app.command(short_help="What is wrong, and what to do.")(local.doctor)
app.command(short_help="Copy the database, online.")(local.backup)
app.command(short_help="Put a backup into place.")(local.restore)
app.command(short_help="Carry all to another database.")(move.move)
app.command(hidden=True)(local.reference)


def main() -> None:
    """The ``homing`` command."""
    hide_secrets()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # Who was reading has gone; there is nobody to tell.
        sys.exit(0)
    except Exception as error:
        from homing.cli.trouble import exit_code

        code = exit_code(error)
        if code is None:
            raise
        sys.exit(code)


if __name__ == "__main__":
    main()
