"""The text of notices: a subject, a few sentences about each change, and a link.

A message with several notices begins with their counts and describes the first ``LISTED_MAX`` of
them. It is written in the language of its target; times stay in UTC. Text that tenants choose
(URLs, names of people) is escaped for the markup of Slack and Teams.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import msgspec
from msgspec import Struct

from homing.languages.language import ENGLISH, LANGUAGES, Language
from homing.languages.sentences import Sentence, Span, many, say
from homing.model import State, show_id
from homing.policy.certificates import date_text
from homing.policy.explain import explain_change
from homing.policy.notices import OPERATOR, Notice, NoticeKind, NoticeTarget, fact_text
from homing.policy.url import host_of

LISTED_MAX = 50  # notices that a message describes one by one

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|<>~])")


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
    def language(self) -> Language:
        return language_of(self.target)

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
    if message.count == 1 and message.notices:
        text = say("Homing: {headline}", headline=headline(message.notices[0]))
    else:
        text = many(
            "Homing: {count} change: {kinds}",
            "Homing: {count} changes: {kinds}",
            message.count,
            kinds=_counts(message),
        )
    return message.language.text(text)


def headline(notice: Notice) -> Sentence:  # noqa: C901 - a line for each kind
    """What happened to which URL, in one line."""
    host = host_of(notice.url) if notice.url else say("an endpoint")
    match notice.kind:
        case NoticeKind.WARNING:
            return say("{host} is failing", host=host)
        case NoticeKind.DISABLED:
            return say("{host} is disabled", host=host)
        case NoticeKind.FROZEN:
            return say("{host} is frozen", host=host)
        case NoticeKind.REMINDER:
            return _reminder_headline(notice.facts, host)
        case NoticeKind.RECOVERED:
            return say("{host} is enabled again", host=host)
        case NoticeKind.FIRST_DROP:
            return say("Deliveries to {host} are being dropped", host=host)
        case NoticeKind.CERTIFICATE:
            return _certificate_headline(notice)
        case NoticeKind.GONE:
            return say("{host} is gone: a subscription is inactive", host=host)
        case NoticeKind.OUTAGE:
            return say("This installation cannot send: sender outage")
        case NoticeKind.OUTAGE_OVER:
            return say("Sending works again")
        case NoticeKind.COMMITS_LOST:
            return say("The database has lost commits in a failover")


def sentence(notice: Notice) -> Sentence:  # noqa: C901 - a sentence for each kind
    """What happened, and what happens next."""
    facts = notice.facts
    match notice.kind:
        case NoticeKind.WARNING:
            return _warning(facts)
        case NoticeKind.DISABLED:
            return say(
                "{change} Deliveries wait; a probe is sent every few minutes, and the first "
                "success enables the endpoint.",
                change=_change(facts),
            )
        case NoticeKind.FROZEN:
            return say(
                "{change} Nothing is sent until a person enables the endpoint.",
                change=_change(facts),
            )
        case NoticeKind.REMINDER:
            return _reminder(facts)
        case NoticeKind.RECOVERED:
            return say("{change} Waiting deliveries are being sent.", change=_change(facts))
        case NoticeKind.FIRST_DROP:
            return _first_drop(facts.get("count", 1))
        case NoticeKind.CERTIFICATE:
            return _certificate(notice)
        case NoticeKind.GONE:
            return say(
                "The receiver responded with 410, so the subscription {subscription} is inactive "
                "and its pending deliveries are cancelled. If the URL works again, activate the "
                "subscription and replay what was cancelled.",
                subscription=str(facts.get("subscription")),
            )
        case NoticeKind.OUTAGE:
            return say(
                "Nothing is sent but a few test requests: {why}. Failures seen meanwhile count "
                "against no endpoint. Check the network and the resolver of {process}.",
                why=fact_text(facts, "why"),
                process=facts.get("process") or say("this server"),
            )
        case NoticeKind.OUTAGE_OVER:
            lasted = Span(facts.get("outage_ms", 0))
            return say("The outage lasted {lasted}; sending resumes.", lasted=lasted)
        case NoticeKind.COMMITS_LOST:
            return say(
                "A failover went to a standby that did not have all commits. {missing} Confirm it "
                "on the page System, or with `homing lost-commits confirm`.",
                missing=fact_text(facts, "text"),
            )


def _warning(facts: Mapping[str, Any]) -> Sentence:
    numbers = facts.get("numbers", {})
    match facts.get("rule"):
        case "failure_rate":
            return say(
                "Half of a limit has been reached: {failures} of {attempts} attempts failed; over "
                "{limit} % the endpoint is disabled.",
                failures=numbers.get("failures", 0),
                attempts=numbers.get("attempts", 0),
                limit=numbers.get("limit_percent", 0),
            )
        case "consecutive_failures":
            return say(
                "Half of a limit has been reached: {failures} attempts in a row failed; at {limit} "
                "the endpoint is disabled.",
                failures=numbers.get("consecutive_failures", 0),
                limit=numbers.get("limit", 0),
            )
        case _:
            return say(
                "Half of a limit has been reached: {failures} attempts in a row failed and nothing "
                "succeeded for {span}; after {limit} the endpoint is frozen.",
                failures=numbers.get("consecutive_failures", 0),
                span=Span(numbers.get("without_success_ms", 0)),
                limit=Span(numbers.get("limit_ms", 0)),
            )


def _change(facts: Mapping[str, Any]) -> Sentence:
    return explain_change(
        State(facts["before"]),
        State(facts["after"]),
        facts.get("rule", ""),
        facts.get("numbers", {}),
        facts.get("by", ""),
    )


def _reminder_headline(facts: Mapping[str, Any], host: str) -> Sentence:
    days = facts.get("days", 1)
    if facts.get("state") == State.FROZEN:
        if days == 1:
            return say("{host} is still frozen after a day", host=host)
        return many(
            "{host} is still frozen after {count} day",
            "{host} is still frozen after {count} days",
            days,
            host=host,
        )
    if days == 1:
        return say("{host} is still disabled after a day", host=host)
    return many(
        "{host} is still disabled after {count} day",
        "{host} is still disabled after {count} days",
        days,
        host=host,
    )


def _reminder(facts: Mapping[str, Any]) -> Sentence:
    days = facts.get("days", 1)
    if facts.get("state") == State.FROZEN:
        if days == 1:
            return say(
                "The endpoint has been frozen for a day. Nothing is sent until a person enables it."
            )
        return many(
            "The endpoint has been frozen for {count} day. Nothing is sent until a person enables "
            "it.",
            "The endpoint has been frozen for {count} days. Nothing is sent until a person enables "
            "it.",
            days,
        )
    if days == 1:
        return say(
            "The endpoint has been disabled for a day. Only probes are sent until one of them "
            "succeeds."
        )
    return many(
        "The endpoint has been disabled for {count} day. Only probes are sent until one of them "
        "succeeds.",
        "The endpoint has been disabled for {count} days. Only probes are sent until one of them "
        "succeeds.",
        days,
    )


def _first_drop(count: int) -> Sentence:
    if count == 1:
        return say(
            "A delivery was dropped, for the first time in a day: the retries are used up or the "
            "window has ended. Dropped deliveries can be replayed."
        )
    return many(
        "{count} delivery was dropped, for the first time in a day: the retries are used up or the "
        "window has ended. Dropped deliveries can be replayed.",
        "{count} deliveries were dropped, for the first time in a day: the retries are used up or "
        "the window has ended. Dropped deliveries can be replayed.",
        count,
    )


def _certificate_headline(notice: Notice) -> Sentence:
    if notice.url:
        which = say("The client certificate for {host}", host=host_of(notice.url))
    elif notice.tenant:
        which = say("The client certificate of the tenant {tenant}", tenant=notice.tenant)
    else:
        which = say("The client certificate of this installation")
    days = notice.facts.get("days", 0)
    if not days:
        return say("{certificate} has expired", certificate=which)
    if days == 1:
        return say("{certificate} expires within a day", certificate=which)
    return many(
        "{certificate} expires within {count} day",
        "{certificate} expires within {count} days",
        days,
        certificate=which,
    )


def _certificate(notice: Notice) -> Sentence:
    facts = notice.facts
    owner, until = facts.get("subject", ""), date_text(facts.get("expires_at", 0))
    if notice.url:
        step = say("Give the subscription a new certificate and its key.")
    else:
        step = say("The operator replaces its file and that of its key; no restart is needed.")
    if not facts.get("days", 0):
        return say(
            "The client certificate of {subject} expired on {time}; deliveries that need it wait, "
            "and no endpoint is blamed. {next_step}",
            subject=owner,
            time=until,
            next_step=step,
        )
    return say(
        "The client certificate of {subject} expires on {time}; after that, deliveries that need "
        "it wait. {next_step}",
        subject=owner,
        time=until,
        next_step=step,
    )


def plain_text(message: Message) -> str:
    """The text of an e-mail."""
    return "\n".join([*_paragraphs(message, _as_is), "", *_footer(message.target)])


def confirmation(target: NoticeTarget, *, public_url: str) -> tuple[str, str]:
    """The subject and text of the first e-mail to an address."""
    language = language_of(target)
    parts = (
        say(
            "The tenant {tenant} of Homing at {url} wants to send notices about its\n"
            "webhooks to this address: when a URL is disabled, frozen or enabled again.",
            tenant=target.tenant,
            url=public_url,
        ),
        say("Open this page to confirm:"),
        confirmation_url(target, public_url=public_url),
        say(
            "If you did not expect this e-mail, do nothing: without a confirmation, this address\n"
            "gets no notices."
        ),
    )
    text = "\n\n".join(language.text(it) for it in parts)
    return language.text(say("Homing: confirm this address")), text


def confirmation_url(target: NoticeTarget, *, public_url: str) -> str:
    return f"{public_url}/confirm?token={target.secret}"


def test_subject(target: NoticeTarget) -> str:
    return language_of(target).text(say("Homing: test notice"))


def test_text(target: NoticeTarget) -> str:
    """The sentence of a test notice."""
    if target.tenant == OPERATOR:
        text = say("This is a test notice of Homing for the operator. Notices will arrive here.")
    else:
        text = say(
            "This is a test notice of Homing for the tenant {tenant}. Notices will arrive here.",
            tenant=target.tenant,
        )
    return language_of(target).text(text)


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
            "notices": [_as_json(it, message) for it in message.notices],
        }
    )


def test_body(name: str, text: str) -> bytes:
    """A test notice as JSON."""
    return msgspec.json.encode({"id": name, "type": "homing.notices.test", "text": text})


# --- parts -------------------------------------------------------------------------------------


def _as_json(notice: Notice, message: Message) -> dict[str, Any]:
    return {
        "id": show_id("ntc", notice.id),
        "kind": notice.kind.value,
        "at": time_text(notice.at),
        "tenant": notice.tenant or None,
        "endpoint": show_id("ep", notice.endpoint_id) if notice.endpoint_id else None,
        "url": notice.url or None,
        "text": message.language.text(sentence(notice)),
        "link": link(notice, message.public_url) or None,
    }


def _paragraphs(message: Message, escape: Callable[[str], str]) -> list[str]:
    said, lines = message.language.text, list[str]()
    if message.count > 1:
        lines += [said(_changes(message)), ""]
    for notice in message.notices[:LISTED_MAX]:
        lines.append(escape(said(say("{headline}.", headline=headline(notice)))))
        if notice.url:
            which = say("URL: {url} (tenant {tenant})", url=notice.url, tenant=notice.tenant)
            lines.append(escape(said(which)))
        lines.append(escape(said(sentence(notice))))
        if last := fact_text(notice.facts, "last"):
            lines.append(escape(said(say("Last attempt: {failure}.", failure=last))))
        lines.append(said(say("When: {time}", time=time_text(notice.at))))
        if found := link(notice, message.public_url):
            lines.append(said(say("Details: {url}", url=found)))
        lines.append("")
    left = message.count - min(len(message.notices), LISTED_MAX)
    if left:
        further = many(
            "{count} further change is in the dashboard.",
            "{count} further changes are in the dashboard.",
            left,
        )
        lines += [said(further), ""]
    if message.public_url:
        lines += [said(say("What fails now: {url}", url=f"{message.public_url}/incidents")), ""]
    return lines[:-1]


def _footer(target: NoticeTarget) -> list[str]:
    if target.tenant == OPERATOR:
        text = say("You get this e-mail because this address is a notice target of the operator.")
    else:
        text = say(
            "You get this e-mail because this address is a notice target of the tenant {tenant}.",
            tenant=target.tenant,
        )
    return ["--", language_of(target).text(text)]


def language_of(target: NoticeTarget) -> Language:
    """The language of the messages to a target; English if Homing does not have it any more."""
    return LANGUAGES.get(target.language, ENGLISH)


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


def _changes(message: Message) -> Sentence:
    return many(
        "{count} change: {kinds}.",
        "{count} changes: {kinds}.",
        message.count,
        kinds=_counts(message),
    )


def _counts(message: Message) -> str:
    """``3 disabled, 1 recovered``."""
    counts = [_count(kind, count) for kind, count in message.counts()]
    return reduce(
        lambda first, second: say("{first}, {second}", first=first, second=second), counts
    )


def _count(kind: NoticeKind, count: int) -> Sentence:  # noqa: C901 - a line for each kind
    match kind:
        case NoticeKind.WARNING:
            return many("{count} warning", "{count} warning", count)
        case NoticeKind.DISABLED:
            return many("{count} disabled", "{count} disabled", count)
        case NoticeKind.FROZEN:
            return many("{count} frozen", "{count} frozen", count)
        case NoticeKind.REMINDER:
            return many("{count} reminder", "{count} reminder", count)
        case NoticeKind.RECOVERED:
            return many("{count} recovered", "{count} recovered", count)
        case NoticeKind.FIRST_DROP:
            return many("{count} first drop", "{count} first drop", count)
        case NoticeKind.CERTIFICATE:
            return many("{count} expiring certificate", "{count} expiring certificate", count)
        case NoticeKind.GONE:
            return many("{count} gone", "{count} gone", count)
        case NoticeKind.OUTAGE:
            return many("{count} sender outage", "{count} sender outage", count)
        case NoticeKind.OUTAGE_OVER:
            return many("{count} sender outage over", "{count} sender outage over", count)
        case NoticeKind.COMMITS_LOST:
            return many("{count} lost commits", "{count} lost commits", count)


def _as_is(text: str) -> str:
    return text


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)
