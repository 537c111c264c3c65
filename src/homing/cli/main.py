"""The command line: all commands under one name, and the exit code of a failed one.

A command imports what it needs when it runs, so that ``homing --help`` responds at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from homing import __version__
from homing.cli import (
    audit,
    causes,
    deliveries,
    endpoints,
    erase,
    event_types,
    filters,
    find,
    keys,
    local,
    lost_commits,
    migrate,
    move,
    notices,
    outbox,
    portal,
    publish,
    pull,
    replay,
    serve,
    signing_keys,
    simulate,
    subscriptions,
    tail,
    workfront,
)
from homing.cli.hide_secrets import hide_secrets

app = typer.Typer(
    name="homing",
    help="Delivers every event to every matching URL, retries for 48 hours, loses nothing.",
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
    """Delivers every event to every matching URL, retries for 48 hours, loses nothing."""


app.command(short_help="Serve the API and deliver events.")(serve.serve)
app.command(short_help="See all states of a URL in two minutes.")(local.demo)
app.command(short_help="Receive, verify and show events here.")(local.listen)
app.command(short_help="Publish an event, or a file of them.")(publish.publish)
app.command(short_help="Send events to a URL.")(subscriptions.subscribe)
app.command(short_help="Delete a subscription.")(subscriptions.unsubscribe)
app.command(short_help="List subscriptions.")(subscriptions.subscriptions)
app.command(short_help="List the readers of a subscription.")(pull.readers)
app.command(short_help="Ask a receiver whether it owns its URL.")(subscriptions.verify)
app.command(short_help="Let the deliveries of a subscription wait.")(subscriptions.pause)
app.command(short_help="End a pause.")(subscriptions.resume)
app.add_typer(event_types.app, short_help="Describe and check types of events.")
app.add_typer(filters.app, short_help="Try or change filters, or see why not.")
app.command(short_help="Sign with a new secret.")(subscriptions.rotate_secret)
app.add_typer(lost_commits.app, short_help="What a failover of the database has lost.")
app.add_typer(signing_keys.app, short_help="Show or rotate Ed25519 keys.")
app.add_typer(endpoints.app, short_help="List, show, enable or freeze URLs.")
app.command(short_help="List why URLs fail, and since when.")(causes.causes)
app.add_typer(deliveries.app, short_help="List, show or cancel deliveries.")
app.command(short_help="Find anything by an id, URL, type or value.")(find.find)
app.command(short_help="Replay finished deliveries.")(replay.replay)
app.command(short_help="Deliver past events to a subscription.")(replay.backfill)
app.command(short_help="Erase events or a tenant for good.")(erase.erase)
app.add_typer(notices.app, short_help="Choose who is told of failing URLs.")
app.add_typer(portal.app, short_help="Show or change the customer portal.")
app.add_typer(portal.links, short_help="Make, list or revoke portal links.")
app.add_typer(keys.app, short_help="Create, list or revoke API keys.")
app.add_typer(audit.app, short_help="See who changed what, and verify it.")
app.add_typer(outbox.app, short_help="Publish in your own transaction.")
app.command(short_help="Publish the rows of an outbox.")(local.relay)
app.command(short_help="Follow attempts as they happen.")(tail.tail)
app.command(short_help="Play a scenario on virtual time.")(simulate.simulate)
app.add_typer(workfront.app, short_help="Make sample messages of Workfront.")
app.command(short_help="Find out what is wrong, and what to do.")(local.doctor)
app.command(short_help="Copy the database while it is in use.")(local.backup)
app.command(short_help="Restore the database from a backup.")(local.restore)
app.command(short_help="Upgrade the database, or plan it.")(migrate.migrate)
app.command(short_help="Move everything to another database.")(move.move)
app.command(hidden=True)(local.reference)


def main() -> None:
    """The ``homing`` command."""
    hide_secrets()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # Nobody reads the output any more.
        sys.exit(0)
    except Exception as error:
        from homing.cli.errors import print_error

        code = print_error(error)
        if code is None:
            raise
        sys.exit(code)


if __name__ == "__main__":
    main()
