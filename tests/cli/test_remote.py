"""Commands that speak to a server: they find it and its key by themselves."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from cli.terminal import Terminal
from homing.cli.output import read_ms, sentence
from homing_client import SentencePart

HOUR_MS = 3_600_000

NOWHERE = "http://127.0.0.1:1027/"  # nobody listens there


def test_an_event_is_published_and_its_delivery_found(terminal: Terminal) -> None:
    made = terminal.well("subscribe", f"{NOWHERE}found", "order.*", "--json").document
    assert made["secret"].startswith("whsec_")
    told = terminal.well("publish", "order.paid", '{"n": 1.0}', "--id", "found-1", "--json")
    assert told.document == {"id": "found-1", "deliveries": 1, "duplicate": False, "warning": ""}
    again = terminal.well("publish", "order.paid", '{"n": 1.0}', "--id", "found-1")
    assert again.out.startswith("found-1 was published before: nothing new is sent.\n")
    assert "homing deliveries --event found-1" in again.out
    (listed,) = terminal.well("deliveries", "--event", "found-1", "--json").lines
    assert listed["subscription"] == made["id"]
    shown = terminal.well("deliveries", "show", "found-1", "--json").document
    assert shown["id"] == listed["id"]
    cancelled = terminal.well("deliveries", "cancel", "found-1", "--json").document
    assert cancelled["status"] == "cancelled"
    assert terminal.well("unsubscribe", made["id"], "--json").document["deleted"] is True
    assert made["id"] not in terminal.well("subscriptions", "--json").out


def test_many_events_come_from_a_file_or_a_pipe(terminal: Terminal) -> None:
    lines = '{"type": "a.b", "data": 1, "id": "pipe-1"}\n\n{"type": "a.c", "data": {"x": []}}\n'
    first, second = terminal.well("publish", "--file", "-", "--json", given=lines).lines
    assert first == {"id": "pipe-1", "deliveries": 0, "duplicate": False, "warning": ""}
    assert second["id"]
    again = terminal.well("publish", "--file", "-", given=lines)
    assert again.out == (
        "Published 1 event: 0 deliveries.\n"
        "Not sent again: 1 event with an id that was published before.\n"
    )
    bad = terminal.run("publish", "--file", "-", given='{"type": "a.b"}')
    assert bad.code == 2
    assert "line 1 is not an event: it has no data" in bad.err
    data = terminal.well("publish", "a.b", "-", "--id", "pipe-2", given='{"from": "a pipe"}')
    assert "no subscription with a URL matches it" in data.out


def test_an_endpoint_is_shown_frozen_and_enabled_by_its_url(terminal: Terminal) -> None:
    url = f"{NOWHERE}frozen"
    terminal.well("subscribe", url, "never.published")
    frozen = terminal.well("endpoints", "freeze", url, "--json").document
    assert (frozen["state"], frozen["rule"]) == ("frozen", "frozen_by_person")
    (listed,) = terminal.well("endpoints", "--state", "frozen", "--json").lines
    assert listed["id"] == frozen["id"]
    enabled = terminal.well("endpoints", "enable", frozen["id"])
    assert enabled.out.startswith("The endpoint has been enabled since")
    assert "Enabled (was frozen)" in enabled.out
    unknown = terminal.run("endpoints", "show", "http://unknown.example/")
    assert unknown.code == 1
    assert "No endpoint has the URL" in unknown.err


def test_tables_are_for_people(terminal: Terminal) -> None:
    url = f"{NOWHERE}table"
    terminal.well("subscribe", url, "table.*", "--description", "[red]")
    terminal.well("publish", "table.laid", "--id", "table-1")
    subscriptions = terminal.well("subscriptions").out
    assert subscriptions.splitlines()[0].split()[:3] == ["id", "tenant", "types"]
    assert "[red]" in subscriptions
    assert "\x1b" not in subscriptions
    deliveries = terminal.well("deliveries", "--endpoint", url).out
    assert "table.laid" in deliveries
    assert url in terminal.well("endpoints").out
    empty = terminal.well("deliveries", "--status", "dropped")
    assert empty.out == ""
    assert "There are no such deliveries." in empty.err


@pytest.mark.parametrize(
    ("later_ms", "text"),
    [
        (119_999, "14:01:59 UTC (in 119 s)"),
        (120_000, "14:02 UTC (in 2 min)"),
        (-8 * 60_000, "13:52 UTC (8 min ago)"),
        (9 * HOUR_MS, "23:00 UTC (in 9 h)"),
        (10 * HOUR_MS, "13 Nov 00:00 UTC (in 10 h)"),
        (50 * 24 * HOUR_MS, "1 Jan 2027 14:00 UTC (in 50 days)"),
    ],
)
def test_the_times_of_a_sentence_name_their_zone_and_their_distance(
    later_ms: int, text: str
) -> None:
    now = read_ms("2026-11-12T14:00:00Z")
    at = datetime.fromtimestamp((now + later_ms) / 1000, UTC).isoformat(timespec="milliseconds")
    parts = (SentencePart("retry 5 is due "), SentencePart(at, at), SentencePart("."))
    assert sentence("", parts, now=now) == f"retry 5 is due {text}."
    assert sentence("An older server.", (), now=now) == "An older server."


def test_an_explanation_is_shown_with_an_explicit_zone(terminal: Terminal) -> None:
    terminal.well("subscribe", f"{NOWHERE}zone", "zone.*")
    terminal.well("publish", "zone.crossed", "--id", "zone-1")
    shown = terminal.well("deliveries", "show", "zone-1").out.splitlines()[0]
    assert re.search(r"would be at .*\d\d:\d\d UTC \(in 48 h\)\.", shown)


def test_one_and_many_are_replayed(terminal: Terminal) -> None:
    url = f"{NOWHERE}replay"
    made = terminal.well("subscribe", url, "replay.*", "--json").document
    lines = "".join(f'{{"type": "replay.me", "data": {n}, "id": "replay-{n}"}}\n' for n in range(3))
    terminal.well("publish", "--file", "-", given=lines)
    for n in range(3):
        terminal.well("deliveries", "cancel", f"replay-{n}")
    one = terminal.well("replay", "replay-0", "--json").document
    assert (one["replay"], one["status"]) == (True, "pending")
    where = ("--status", "cancelled", "--subscription", made["id"])
    counted = terminal.well("replay", *where, "--dry-run")
    assert "3 deliveries would be replayed." in counted.out
    asked = terminal.run("replay", *where)
    assert asked.code == 2
    assert "give --yes" in asked.err
    job = terminal.well("replay", *where, "--yes", "--json").document
    assert (job["state"], job["replayed"], job["skipped"]) == ("done", 3, 0)
    neither = terminal.run("replay")
    assert neither.code == 2


@pytest.mark.long
def test_attempts_are_followed(terminal: Terminal) -> None:
    url = f"{NOWHERE}tail"
    terminal.well("subscribe", url, "tail.*")
    terminal.well("publish", "tail.wagged", "--id", "tail-1")
    told = terminal.well("tail", "--for", "1s", "--endpoint", url, "--failed")
    assert "✗ refused" in told.out
    assert "retry 1 in 84 s" in told.out
    (line,) = terminal.well("tail", "--for", "0s", "--endpoint", url, "--json").lines
    assert (line["event"], line["outcome"]) == ("tail-1", "failed")


def test_a_key_is_made_listed_and_revoked(terminal: Terminal) -> None:
    made = terminal.well("keys", "create", "shop", "viewer", "--tenant", "keyed", "--json").document
    assert made["key"].startswith(f"hk_{made['prefix']}_")
    seen = terminal.run("subscriptions", "--key", made["key"], "--json")
    assert (seen.code, seen.out) == (0, "")
    refused = terminal.run("publish", "a.b", "--key", made["key"])
    assert refused.code == 1
    assert "may not do this" in refused.err
    (row,) = terminal.well("keys", "--tenant", "keyed", "--json").lines
    assert row["id"] == made["id"]
    told = terminal.well("keys", "create", "ops", "admin", "--expires", "90d").out
    assert "not shown again" in told
    assert "ops" in terminal.well("keys", "list").out
    assert made["id"] in terminal.well("keys", "revoke", made["id"]).out
    gone = terminal.run("subscriptions", "--key", made["key"])
    assert "does not accept the key" in gone.err
    assert terminal.run("keys", "revoke", made["id"]).code == 1


def test_lost_commits_are_listed_and_confirmed(terminal: Terminal) -> None:
    assert terminal.well("lost-commits", "list").out.strip() == "No lost commits."
    assert "nothing to confirm" in terminal.well("lost-commits", "confirm").out


def test_a_signing_key_is_shown_and_rotated(terminal: Terminal) -> None:
    none = terminal.well("signing-keys", "--tenant", "signed").out
    assert "no signing keys yet" in none
    made = terminal.well(
        "subscribe", f"{NOWHERE}signed", "--tenant", "signed", "--signature", "ed25519"
    ).out
    assert "give receivers the public key" in made
    (key,) = terminal.well("signing-keys", "--tenant", "signed", "--json").document["keys"]
    assert key["value"] in made
    rotated = terminal.well("signing-keys", "rotate", "--tenant", "signed", "--overlap", "1h").out
    assert f"{key['value']}  signs until" in rotated
    assert "/.well-known/jwks.json?tenant=signed" in rotated
    shown = terminal.well("signing-keys", "--tenant", "signed", "--json").document
    assert [it["until"] is None for it in shown["keys"]] == [True, False]
    refused = terminal.run("subscribe", f"{NOWHERE}signed", "--signature", "rsa")
    assert refused.code != 0
    assert "signature is invalid" in refused.err


def test_a_notice_target_is_added_listed_changed_tested_and_removed(terminal: Terminal) -> None:
    url = "https://hooks.invalid/services/secret-part"
    wanted = ("--tenant", "told", "--name", "On call", "--only", "frozen", "--json")
    made = terminal.well("notices", "add", "slack", url, *wanted).document
    assert (made["address"], made["notices"]) == ("https://hooks.invalid/****", ["frozen"])
    (row,) = terminal.well("notices", "targets", "--tenant", "told", "--json").lines
    assert row["id"] == made["id"]
    shown = terminal.well("notices", "targets", "--tenant", "told").out
    assert "On call" in shown
    assert "secret-part" not in shown
    changed = terminal.well("notices", "change", made["id"], "--quiet-hours", "22:00-07:00").out
    assert "22:00-07:00 UTC" in changed
    assert made["language"] == "en"
    terminal.well("notices", "change", made["id"], "--language", "ja", "--only", "certificate")
    (row,) = terminal.well("notices", "targets", "--tenant", "told", "--json").lines
    assert (row["language"], row["notices"]) == ("ja", ["certificate"])
    tested = terminal.run("notices", "test", made["id"])
    assert tested.code == 1
    assert "did not arrive" in tested.err
    own_language = ("--tenant", "told", "--language", "zh")
    webhook = terminal.well("notices", "add", "webhook", url, *own_language).out
    assert "whsec_" in webhook
    assert " zh" in webhook
    refused = terminal.run("notices", "add", "webhook", url, "--language", "tlh")
    assert refused.code == 2
    own = terminal.well("notices", "add", "webhook", url, "--tenant", "told", "--json").document
    rotated = terminal.well("notices", "rotate-secret", own["id"])
    assert "whsec_" in rotated.out
    assert own["secret"] not in rotated.out
    linked = terminal.run("notices", "link", own["id"])
    assert "needs no link" in linked.err
    refused = terminal.run("notices", "add", "email", "ops@a.example")
    assert refused.code == 1
    assert "smtp_host" in refused.err
    assert made["id"] in terminal.well("notices", "remove", made["id"]).out
    assert terminal.well("notices", "--tenant", "told", "--json").out == ""


def test_filters_are_set_tried_and_explained(terminal: Terminal) -> None:
    over = '{"field": "data.amount", "op": "gt", "value": 100}'
    paid = '{"field": "data.paid", "value": true}'
    made = terminal.well(
        "subscribe", f"{NOWHERE}filtered", "filter.*", "--filter", over, "--json"
    ).document
    assert made["filters"] == [{"field": "data.amount", "op": "gt", "value": 100}]
    told = terminal.well("publish", "filter.me", '{"amount": 5}', "--id", "filter-1")
    assert "no subscription with a URL matches it" in told.out
    why = terminal.well("filters", "why", "filter-1", "--json").lines
    (reason,) = [one["reason"] for one in why if one["subscription"] == made["id"]]
    assert reason.endswith("data.amount is greater than 100: no, it is 5.")
    assert "greater" in terminal.well("filters", "why", "filter-1").out
    changed = terminal.well("filters", "set", made["id"], over, paid, "--any")
    assert f"{made['id']} has 2 filters, joined by OR." in changed.out
    tried = terminal.well("filters", "try", over, paid, "--any", "--event", "filter-1")
    assert "It does not match: none of 2 conditions holds." in tried.out
    given = terminal.well("filters", "try", over, "--data", '{"amount": 101}', "--json").document
    assert given["matches"] is True
    refused = terminal.run("filters", "try", '{"field": "amount", "value": 1}', "--data", "1")
    assert refused.code == 1
    assert "filters[0].field must begin with data." in refused.err
    assert terminal.run("filters", "try", "{", "--data", "1").code == 2
    terminal.well("unsubscribe", made["id"])


def test_the_audit_log_is_listed_exported_and_verified(terminal: Terminal) -> None:
    made = terminal.well("keys", "create", "audited", "viewer", "--json").document
    (entry,) = terminal.well("audit", "--object", made["id"], "--json").lines
    assert entry["action"] == "keys.create"
    assert made["key"] not in json.dumps(entry)
    assert "name: audited" in terminal.well("audit", "--action", "keys", "--since", "1h").out
    assert "No change" in terminal.run("audit", "--who", "nobody at all").err
    lines = terminal.well("audit", "export", "--object", made["id"]).out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [entry["id"]]
    assert "as Homing wrote them" in terminal.well("audit", "verify").out
    missing = terminal.run("audit", "verify", "--expect", f"99:{'0' * 64}")
    assert missing.code == 1
    assert "Segment 99, which was expected, is missing." in missing.out
    assert terminal.run("audit", "verify", "--expect", "99").code == 2


def test_a_subscription_without_a_proof_is_shown_and_asked_again(terminal: Terminal) -> None:
    told = terminal.well("subscribe", f"{NOWHERE}proof", "proof.*", "--verification", "challenge")
    assert "It gets no events yet" in told.out
    assert "connection refused" in told.out
    rows = terminal.well("subscriptions", "--json").lines
    (made,) = [it for it in rows if it["url"] == f"{NOWHERE}proof"]
    assert made["unverified"] is True
    assert "unverified" in terminal.well("subscriptions").out
    again = terminal.well("verify", made["id"])
    assert "homing verify" in again.out
    assert terminal.well("verify", made["id"], "--json").document["unverified"] is True
    assert terminal.well("publish", "proof.a", "1", "--json").document["deliveries"] == 0
    terminal.well("unsubscribe", made["id"])


def test_a_subscription_starts_in_the_past(terminal: Terminal) -> None:
    for n in range(2):
        terminal.well("publish", "late.made", "1", "--id", f"late-{n}")
    url = f"{NOWHERE}late"
    told = terminal.well("subscribe", url, "late.*", "--from", "1h", "--per-second", "50")
    assert re.search(r"The job rpl_\w+ delivers 2 past events\.", told.out)
    made = terminal.well("subscribe", url, "late.*", "--from", "1h", "--json").document
    assert (made["backfill"]["count"], made["backfill"]["exact"]) == (2, True)
    for wrong in (("--from", "400d"), ("--from", "soon"), ("--per-second", "5")):
        refused = terminal.run("subscribe", f"{NOWHERE}never", "late.*", *wrong)
        assert refused.code != 0
        assert wrong[0].strip("-").replace("-", "_") in refused.err
    assert f"{NOWHERE}never" not in terminal.well("subscriptions", "--json").out
    for one in terminal.well("subscriptions", "--json").lines:
        if one["url"] == url:
            terminal.well("unsubscribe", one["id"])
