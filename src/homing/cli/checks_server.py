"""Checks that ask a running server: does it answer, does it deliver, what waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from homing.cli.checks import Check, Verdict
from homing.cli.trouble import Usage
from homing.cli.where import Where, find, local_address
from homing.client import Homing, NotAuthorized
from homing.client.errors import HomingClientError
from homing.server.settings import Settings
from homing.store.inspect import holder

PATIENCE_S = 5.0
COUNTED = 100
LATE_S = 5.0
SOON = "6h"


def check_server(settings: Settings, *, server: str | None, key: str | None) -> list[Check]:
    """Without a server the rest is unknown, not wrong, unless one should be there."""
    try:
        where = _where(settings, server, key)
        client = Homing(where.url, where.key, timeout=PATIENCE_S)
    except Usage as error:
        return [Check("server", Verdict.UNKNOWN, error.detail)]
    except ValueError as error:
        return [Check("server", Verdict.WRONG, f"--server {server}: {error}.")]
    with client:
        try:
            return list(_ask(client, where.url))
        except HomingClientError as error:
            return [_absent(settings, where.url, error, wanted=server is not None)]


def _where(settings: Settings, server: str | None, key: str | None) -> Where:
    if server is None and key is None and settings.security.admin_key:
        return Where(local_address(settings), settings.security.admin_key)
    return find(server, key, settings)


def _absent(settings: Settings, url: str, error: HomingClientError, *, wanted: bool) -> Check:
    held = None if settings.database.url else holder(settings.database.file)
    if held is not None and not wanted:
        return Check(
            "server",
            Verdict.WRONG,
            f"Process {held} holds the data, and nothing answers at {url}.",
            "It may listen elsewhere (give --server), be starting or stopping, or hang.",
        )
    verdict = Verdict.WRONG if wanted else Verdict.UNKNOWN
    advice = "`homing serve` starts one." if not wanted else str(error)
    return Check("server", verdict, f"No server answers at {url}.", advice)


def _ask(client: Homing, url: str) -> Iterator[Check]:
    if client.ready():
        yield Check("server", Verdict.WELL, f"{url} answers and takes requests.")
    else:
        advice = "It is stopping, or its store does not commit: its log tells why."
        yield Check("server", Verdict.WRONG, f"{url} answers, but is not ready.", advice)
    if client.healthy():
        yield Check("engine", Verdict.WELL, "What is due goes.")
    else:
        advice = "Look at its log; a restart loses nothing."
        yield Check("engine", Verdict.WRONG, "Something is due and has not gone.", advice)
    try:
        yield from _inside(client)
    except NotAuthorized:
        yield Check(
            "access",
            Verdict.WRONG,
            "The server does not accept the key that was found here.",
            "Is it another server? Give its key with --key or HOMING_ADMIN_KEY.",
        )


def _gate(client: Homing) -> Check:
    gate = client.status().gate
    if gate.state == "closed":
        return Check(
            "gate",
            Verdict.WRONG,
            f"Closed since {gate.since}, our own outage: {gate.why}.",
            "Look at this machine's network and name servers; it opens by itself, nothing is lost.",
        )
    if gate.state == "judging":
        return Check("gate", Verdict.LOOK, f"In doubt since {gate.since}: {gate.why}.")
    return Check("gate", Verdict.WELL, "Open: what is sent gets out.")


def _inside(client: Homing) -> Iterator[Check]:
    yield _gate(client)
    ledger = client.ledger()
    pending = sum(one.pending for one in ledger)
    crooked = [one.tenant for one in ledger if not one.balanced]
    if crooked:
        yield Check(
            "ledger",
            Verdict.WRONG,
            f"Accepted is not delivered + pending + dropped + cancelled for {crooked[0]}.",
            "Please report it with this output and the log: it must never happen.",
        )
    else:
        yield Check("ledger", Verdict.WELL, "Every accepted delivery is accounted for.")
    yield _backlog(client, pending)
    for state, meaning in (("disabled", "probed until it heals"), ("frozen", "only you end that")):
        yield _endpoints(client, state, meaning)
    yield _expiring(client)


def _backlog(client: Homing, pending: int) -> Check:
    late = _metric(client.metrics(), "homing_late_seconds")
    sentence = f"{pending:,} deliveries are pending"
    if late >= LATE_S:
        advice = "More work than this machine does: look at its CPU and disk."
        return Check("backlog", Verdict.LOOK, f"{sentence}; sending is {late:.0f} s late.", advice)
    return Check("backlog", Verdict.WELL, f"{sentence}; nothing is late.")


def _endpoints(client: Homing, state: str, meaning: str) -> Check:
    found = list(islice(client.endpoints(state=state), COUNTED + 1))  # type: ignore[arg-type]
    if not found:
        return Check(state, Verdict.WELL, f"No URL is {state}.")
    many = f"{COUNTED}+" if len(found) > COUNTED else str(len(found))
    sentence = f"{many} {'URL is' if many == '1' else 'URLs are'} {state} ({meaning})"
    return Check(state, Verdict.LOOK, f"{sentence}.", f"homing endpoints --state {state}")


def _expiring(client: Homing) -> Check:
    soon = client.deliveries(status="pending", expiring_within=SOON)
    found = sum(1 for _ in islice(soon, COUNTED + 1))
    if not found:
        return Check("expiry", Verdict.WELL, "Nothing ends undelivered within 6 hours.")
    many = f"{COUNTED}+" if found > COUNTED else str(found)
    sentence = f"The window of {many} pending deliveries ends within 6 hours."
    return Check("expiry", Verdict.LOOK, sentence, f"homing deliveries --expiring-within {SOON}")


def _metric(text: str, name: str) -> float:
    found = re.search(rf"^{name} ([0-9.eE+-]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
