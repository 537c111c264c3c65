"""The text of notices: a subject, a few sentences about each change, and a link.

A message with several notices begins with their counts and describes the first ``LISTED_MAX`` of
them. Text that tenants choose (URLs, names of people) is escaped for the markup of Slack and Teams.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from homing.model import State, show_id
from homing.policy.certificates import date_text
from homing.policy.explain import explain_change, span_text
from homing.policy.notices import OPERATOR, Notice, NoticeKind, NoticeTarget
from homing.policy.url import host_of

LISTED_MAX = 50  # notices that a message describes one by one

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|<>~])")

_NAMES = {
    NoticeKind.WARNING: "warning",
    NoticeKind.DISABLED: "disabled",
    NoticeKind.FROZEN: "frozen",
    NoticeKind.REMINDER: "reminder",
    NoticeKind.RECOVERED: "recovered",
    NoticeKind.FIRST_DROP: "first drop",
    NoticeKind.CERTIFICATE: "expiring certificate",
    NoticeKind.GONE: "gone",
    NoticeKind.OUTAGE: "sender outage",
    NoticeKind.OUTAGE_OVER: "sender outage over",
    NoticeKind.COMMITS_LOST: "lost commits",
}


class Message(Struct, frozen=True):
    """The notices of one message, with the target and the URL that their text needs."""

    id: int
    target: NoticeTarget
    notices: Sequence[Notice]
    more: Mapping[NoticeKind, int]  # further changes that were only counted
    public_url: str  # of the dashboard; empty: no links

    @property
    def name(self) -> str:
        """The id of the message, the same each time that it is sent."""
        return show_id("msg", self.id)

    @property
    def count(self) -> int:
        return len(self.notices) + sum(self.more.values())

    def counts(self) -> list[tuple[NoticeKind, int]]:
        """How many notices of each kind, in the order of kinds."""
        found = Counter(it.kind for it in self.notices)
        found.update(self.more)
        return [(kind, found[kind]) for kind in NoticeKind if found[kind]]


def subject(message: Message) -> str:
    """One line: what happened, or how many changes of which kinds."""
    if message.count == 1:
        (notice,) = message.notices or (None,)
        if notice is not None:
            return f"Homing: {headline(notice)}"
    return f"Homing: {message.count:,} changes: {_counts(message)}"


def headline(notice: Notice) -> str:  # noqa: C901 - a line for each kind
    """What happened to which URL, in one line."""
    host = host_of(notice.url) if notice.url else "an endpoint"
    match notice.kind:
        case NoticeKind.WARNING:
            return f"{host} is failing"
        case NoticeKind.DISABLED:
            return f"{host} is disabled"
        case NoticeKind.FROZEN:
            return f"{host} is frozen"
        case NoticeKind.REMINDER:
            days = notice.facts.get("days", 1)
            return f"{host} is still {notice.facts.get('state', 'disabled')} after {_days(days)}"
        case NoticeKind.RECOVERED:
            return f"{host} is enabled again"
        case NoticeKind.FIRST_DROP:
            return f"Deliveries to {host} are being dropped"
        case NoticeKind.CERTIFICATE:
            days = notice.facts.get("days", 0)
            what = "has expired" if not days else f"expires within {_days(days)}"
            return f"The client certificate {_whose(notice)} {what}"
        case NoticeKind.GONE:
            return f"{host} is gone: a subscription is inactive"
        case NoticeKind.OUTAGE:
            return "This installation cannot send: sender outage"
        case NoticeKind.OUTAGE_OVER:
            return "Sending works again"
        case NoticeKind.COMMITS_LOST:
            return "The database has lost commits in a failover"


def sentence(notice: Notice) -> str:  # noqa: C901 - a sentence for each kind
    """What happened, and what happens next."""
    facts = notice.facts
    match notice.kind:
        case NoticeKind.WARNING:
            return f"Half of a limit has been reached: {_numbers(facts)}"
        case NoticeKind.DISABLED:
            return (
                f"{_change(facts)} Deliveries wait; a probe is sent every few minutes, and the "
                "first success enables the endpoint."
            )
        case NoticeKind.FROZEN:
            return f"{_change(facts)} Nothing is sent until a person enables the endpoint."
        case NoticeKind.REMINDER:
            then = (
                "Nothing is sent until a person enables it."
                if facts.get("state") == State.FROZEN
                else "Only probes are sent until one of them succeeds."
            )
            days = facts.get("days", 1)
            return f"The endpoint has been {facts.get('state')} for {_days(days)}. {then}"
        case NoticeKind.RECOVERED:
            return f"{_change(facts)} Waiting deliveries are being sent."
        case NoticeKind.FIRST_DROP:
            count = facts.get("count", 1)
            what = "A delivery was" if count == 1 else f"{count:,} deliveries were"
            return (
                f"{what} dropped, for the first time in a day: the retries are used up or the "
                "window has ended. Dropped deliveries can be replayed."
            )
        case NoticeKind.CERTIFICATE:
            until = date_text(facts.get("expires_at", 0))
            over = not facts.get("days", 0)
            then = (
                "deliveries that need it wait, and no endpoint is blamed"
                if over
                else "after that, deliveries that need it wait"
            )
            return (
                f"The client certificate of {facts.get('subject', '')} "
                f"{'expired' if over else 'expires'} on {until}; {then}. "
                f"{_where_to_renew(notice)}"
            )
        case NoticeKind.GONE:
            return (
                f"The receiver responded with 410, so the subscription {facts.get('subscription')} "
                "is inactive and its pending deliveries are cancelled. If the URL works again, "
                "activate the subscription and replay what was cancelled."
            )
        case NoticeKind.OUTAGE:
            return (
                f"Nothing is sent but a few test requests: {facts.get('why', '')}. Failures seen "
                "meanwhile count against no endpoint. Check the network and the resolver of "
                f"{facts.get('process') or 'this server'}."
            )
        case NoticeKind.OUTAGE_OVER:
            return f"The outage lasted {span_text(facts.get('outage_ms', 0))}; sending resumes."
        case NoticeKind.COMMITS_LOST:
            return (
                "A failover went to a standby that did not have all commits. "
                f"{facts.get('text', '')} Confirm it on the page System, or with `homing "
                "lost-commits confirm`."
            )


def _whose(notice: Notice) -> str:
    if notice.url:
        return f"for {host_of(notice.url)}"
    return f"of the tenant {notice.tenant}" if notice.tenant else "of this installation"


def _where_to_renew(notice: Notice) -> str:
    if not notice.url:
        return "The operator replaces its file and that of its key; no restart is needed."
    return "Give the subscription a new certificate and its key."


def plain_text(message: Message) -> str:
    """The text of an e-mail."""
    return "\n".join([*_paragraphs(message, _as_is), "", *_footer(message.target)])


def confirmation(target: NoticeTarget, *, public_url: str) -> tuple[str, str]:
    """The subject and text of the first e-mail to an address."""
    return "Homing: confirm this address", "\n".join(
        (
            f"The tenant {target.tenant} of Homing at {public_url} wants to send notices about its",
            "webhooks to this address: when a URL is disabled, frozen or enabled again.",
            "",
            "Open this page to confirm:",
            "",
            confirmation_url(target, public_url=public_url),
            "",
            "If you did not expect this e-mail, do nothing: without a confirmation, this address",
            "gets no notices.",
        )
    )


def confirmation_url(target: NoticeTarget, *, public_url: str) -> str:
    return f"{public_url}/confirm?token={target.secret}"


def test_text(target: NoticeTarget) -> str:
    """The sentence of a test notice."""
    whose = "the operator" if target.tenant == OPERATOR else f"the tenant {target.tenant}"
    return f"This is a test notice of Homing for {whose}. Notices will arrive here."


# --- bodies of requests ------------------------------------------------------------------------


def slack_body(text: str) -> bytes:
    """A message of a Slack incoming webhook."""
    return msgspec.json.encode({"text": text})


def teams_body(text: str) -> bytes:
    """A message of a Teams workflow ("post to a channel when a webhook request is received")."""
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": text, "wrap": True}],
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return msgspec.json.encode({"type": "message", "attachments": [content]})


def slack_text(message: Message) -> str:
    return "\n".join(_paragraphs(message, _slack))


def teams_text(message: Message) -> str:
    return "\n\n".join(line for line in _paragraphs(message, _markdown) if line)


def webhook_body(message: Message) -> bytes:
    """All notices of a message as JSON."""
    return msgspec.json.encode(
        {
            "id": message.name,
            "type": "homing.notices",
            "count": message.count,
            "counts": {kind.value: count for kind, count in message.counts()},
            "notices": [_as_json(it, message.public_url) for it in message.notices],
        }
    )


def test_body(name: str, text: str) -> bytes:
    """A test notice as JSON."""
    return msgspec.json.encode({"id": name, "type": "homing.notices.test", "text": text})


# --- parts -------------------------------------------------------------------------------------


def _as_json(notice: Notice, public_url: str) -> dict[str, Any]:
    return {
        "id": show_id("ntc", notice.id),
        "kind": notice.kind.value,
        "at": time_text(notice.at),
        "tenant": notice.tenant or None,
        "endpoint": show_id("ep", notice.endpoint_id) if notice.endpoint_id else None,
        "url": notice.url or None,
        "text": sentence(notice),
        "link": link(notice, public_url) or None,
    }


def _paragraphs(message: Message, escape: Any) -> list[str]:
    lines = []
    if message.count > 1:
        lines += [f"{message.count:,} changes: {_counts(message)}.", ""]
    for notice in message.notices[:LISTED_MAX]:
        lines.append(escape(f"{headline(notice)}."))
        if notice.url:
            lines.append(escape(f"URL: {notice.url} (tenant {notice.tenant})"))
        lines.append(escape(sentence(notice)))
        if last := notice.facts.get("last"):
            lines.append(escape(f"Last attempt: {last}."))
        lines.append(f"When: {time_text(notice.at)}")
        if found := link(notice, message.public_url):
            lines.append(f"Details: {found}")
        lines.append("")
    left = message.count - min(len(message.notices), LISTED_MAX)
    if left:
        lines += [f"{left:,} further changes are in the dashboard.", ""]
    if message.public_url:
        lines += [f"What fails now: {message.public_url}/incidents", ""]
    return lines[:-1]


def _footer(target: NoticeTarget) -> list[str]:
    whose = "the operator" if target.tenant == OPERATOR else f"the tenant {target.tenant}"
    return ["--", f"You get this e-mail because this address is a notice target of {whose}."]


def link(notice: Notice, public_url: str) -> str:
    """The page about a notice; empty if this installation has no public URL."""
    if not public_url:
        return ""
    if not notice.endpoint_id:
        return f"{public_url}/system"
    return f"{public_url}/endpoints/{show_id('ep', notice.endpoint_id)}"


def time_text(at: int) -> str:
    """A time in UTC, with its zone."""
    return f"{_EPOCH + timedelta(milliseconds=at):%Y-%m-%d %H:%M:%S} UTC"


def _counts(message: Message) -> str:
    return ", ".join(f"{count:,} {_NAMES[kind]}" for kind, count in message.counts())


def _days(days: int) -> str:
    return "a day" if days == 1 else f"{days} days"


def _change(facts: Mapping[str, Any]) -> str:
    return explain_change(
        State(facts["before"]),
        State(facts["after"]),
        facts.get("rule", ""),
        facts.get("numbers", {}),
        facts.get("by", ""),
    )


def _numbers(facts: Mapping[str, Any]) -> str:
    numbers = facts.get("numbers", {})
    match facts.get("rule"):
        case "failure_rate":
            return (
                f"{numbers.get('failures', 0):,} of {numbers.get('attempts', 0):,} attempts failed;"
                f" over {numbers.get('limit_percent', 0)} % the endpoint is disabled."
            )
        case "consecutive_failures":
            return (
                f"{numbers.get('consecutive_failures', 0):,} attempts in a row failed; at"
                f" {numbers.get('limit', 0):,} the endpoint is disabled."
            )
        case _:
            return (
                f"{numbers.get('consecutive_failures', 0):,} attempts in a row failed and nothing"
                f" succeeded for {span_text(numbers.get('without_success_ms', 0))}; after"
                f" {span_text(numbers.get('limit_ms', 0))} the endpoint is frozen."
            )


def _as_is(text: str) -> str:
    return text


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)
