"""The values of the API as words for people: states, statuses, lanes and the like."""

from __future__ import annotations

from homing.languages.sentences import say

_WORDS: dict[str, str] = {
    # states of endpoints
    "enabled": say("enabled"),
    "disabled": say("disabled"),
    "frozen": say("frozen"),
    # statuses of deliveries
    "pending": say("pending"),
    "delivered": say("delivered"),
    "dropped": say("dropped"),
    "cancelled": say("cancelled"),
    "superseded": say("superseded"),
    # why a delivery was dropped or cancelled
    "exhausted": say("exhausted"),
    "expired": say("expired"),
    "by_person": say("by a person"),
    "subscription_deleted": say("subscription deleted"),
    "gone": say("gone"),
    # outcomes of attempts
    "failed": say("failed"),
    "sender_error": say("sender error"),
    # lanes
    "fresh": say("fresh"),
    "retry": say("retry"),
    "probe": say("probe"),
    "test": say("test"),
    # decisions after an attempt
    "unchanged": say("unchanged"),
    "wait": say("wait"),
    "nothing": say("nothing"),
    # numbers that led to a change of state
    "attempts": say("attempts"),
    "failures": say("failures"),
    "consecutive_failures": say("consecutive failures"),
    "limit": say("limit"),
    "limit_percent": say("limit percent"),
    "limit_ms": say("limit ms"),
    "without_success_ms": say("without success ms"),
    "disabled_ms": say("disabled ms"),
    # states of subscriptions, the choices of their fields, connectors of filters
    "active": say("active"),
    "inactive": say("inactive"),
    "unverified": say("unverified"),
    "paused": say("paused"),
    "standard": say("standard"),
    "raw": say("raw"),
    "both": say("both"),
    "none": say("none"),
    "challenge": say("challenge"),
    "key": say("key"),
    "latest": say("latest"),
    "deactivate": say("deactivate"),
    "AND": say("AND"),
    "OR": say("OR"),
    # kinds of objects
    "delivery": say("delivery"),
    "event": say("event"),
    "subscription": say("subscription"),
    "endpoint": say("endpoint"),
    # roles of keys, and of processes
    "admin": say("admin"),
    "publisher": say("publisher"),
    "manager": say("manager"),
    "viewer": say("viewer"),
    "metrics": say("metrics"),
    "api": say("api"),
    "deliver": say("deliver"),
    # replays and erasures
    "running": say("running"),
    "done": say("done"),
    # kinds of notices, and their statuses
    "warning": say("warning"),
    "reminder": say("reminder"),
    "recovered": say("recovered"),
    "first_drop": say("first drop"),
    "certificate": say("certificate"),
    "outage": say("outage"),
    "outage_over": say("outage over"),
    "commits_lost": say("commits lost"),
    "waiting": say("waiting"),
    "sent": say("sent"),
    "skipped": say("skipped"),
    # targets of notices
    "email": say("e-mail"),
    "slack": "Slack",
    "teams": "Teams",
    "webhook": say("webhook"),
    # outages of the sender
    "suspected": say("suspected"),
    "confirmed": say("confirmed"),
    # what happens to events that do not match their type
    "off": say("off"),
    "warn": say("warn"),
    "refuse": say("refuse"),
    "allow": say("allow"),
    # links and themes of the customer portal
    "open": say("open"),
    "ended": say("ended"),
    "revoked": say("revoked"),
    "auto": say("auto"),
    "light": say("light"),
    "dark": say("dark"),
}


def word(value: str) -> str:
    """What people read for a value of the API; a value without a word is shown as it is."""
    return _WORDS.get(value) or value.replace("_", " ")
