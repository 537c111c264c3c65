"""The fields of a subscription as text, for the form and for the page that shows them.

A secret value is never written into a page. The form shows ``****`` instead, and ``****`` in a
submitted form keeps the value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import EnumType
from itertools import groupby
from typing import Any

import msgspec

from homing.errors import FieldProblem
from homing.languages.sentences import Sentence, many, say
from homing.model import SPEC, Field, Format, Kind, Subscription, TextEnum
from homing.policy.admission import MASK, WITHOUT_URL
from homing.policy.certificates import date_text, facts_of
from homing.policy.exact import decoder, encode
from homing.web.dashboard.words import word

_NOT_OFFERED = frozenset((Format.WORKFRONT,))  # only the Workfront-compatible API creates these


def form_rows() -> list[tuple[str, list[tuple[bool, list[Field]]]]]:
    """The fields in order, by group, in rows: True for fields that are shown side by side.

    The connector is not among them: the form shows it with the filters.
    """
    fields = [field for field in SPEC.values() if field.name != "filter_connector"]
    return [
        (name, [(narrow, list(row)) for narrow, row in groupby(group, _is_narrow)])
        for name, group in groupby(fields, lambda field: field.group)
    ]


def open_groups(texts: Mapping[str, str], problems: Collection[str]) -> set[str]:
    """The groups of the form in which a field has another text than its default, or a problem."""
    return {
        it.group
        for name, it in SPEC.items()
        if it.group and (name in problems or texts.get(name, "") not in {"", _text(it, it.default)})
    }


def _is_narrow(field: Field) -> bool:
    if field.kind is Kind.TEXT:
        return not field.required and field.default is None
    return field.kind in {Kind.CHOICE, Kind.NUMBER}


def form_choices(policies: list[str]) -> dict[str, dict[str, str]]:
    """The options of each field that is a choice, as people read them."""
    choices = {"policy": {name: name for name in policies}}
    for name, field in SPEC.items():
        if isinstance(field.type, EnumType):
            options: list[TextEnum] = list(field.type)
            choices[name] = {it.value: _word(it) for it in options if it not in _NOT_OFFERED}
    return choices


def _word(option: TextEnum) -> str:
    """A word of the language, or the name that a standard gave it."""
    said = word(option)
    return said if isinstance(said, Sentence) else option.value


# --- values as text --------------------------------------------------------------------------


def form_texts(subscription: Subscription | None) -> dict[str, str]:
    """The text of every field in the form; the defaults for a new subscription."""
    if subscription is None:
        defaults = {name: field.default for name, field in SPEC.items() if not field.required}
        defaults["types"] = ("*",)
        return {name: _text(SPEC[name], value) for name, value in defaults.items()}
    return {
        "tenant": subscription.tenant,
        **{name: _text(SPEC[name], value) for name, value in subscription.spec().items()},
    }


def _text(field: Field, value: Any) -> str:
    match field.kind:
        case Kind.WORDS:
            return " ".join(value)
        case Kind.PAIRS:
            return "\n".join(f"{name}: {MASK if field.secret else text}" for name, text in value)
        case Kind.FLAG:
            return "on" if value else ""
        case Kind.FILTERS:
            return "" if value == field.default else msgspec.json.format(value, indent=2)
        case Kind.NUMBER:
            return "" if value is None else str(value).removesuffix(".0")
        case Kind.TEXT | Kind.CHOICE | Kind.PEM:
            return "" if value is None else MASK if field.secret else str(value)


def page_facts(subscription: Subscription) -> list[tuple[Field, str]]:
    """Every field that the page of a subscription lists, with its text.

    For a secret value the text says only that it is set; for secret pairs, it lists their names. A
    group of which nothing is set is left out.
    """
    facts: list[tuple[Field, str]] = []
    groups = open_groups(form_texts(subscription), ())
    for name, value in subscription.spec().items():
        field = SPEC[name]
        if field.group and field.group not in groups:
            continue
        if name in {"url", "filter_connector"}:
            continue
        if not subscription.url and name not in WITHOUT_URL:
            continue
        text: str
        if field.kind is Kind.PAIRS and field.secret:
            text = "\n".join(key for key, _ in value)
        elif field.kind is Kind.FLAG:
            text = say("yes") if value else say("no")
        elif field.secret:
            text = "" if value is None else say("set")
        elif field.kind is Kind.PEM:
            text = "" if value is None else _pem_facts(subscription, field, value)
        elif isinstance(field.type, EnumType):
            text = _word(value)
        else:
            text = _text(field, value)
        facts.append((field, text or field.unset or say("none")))
    return facts


def _pem_facts(subscription: Subscription, field: Field, value: str) -> Sentence:
    """Who a client certificate names, and until when it is valid; the number of authorities."""
    facts = facts_of(subscription) if field.name == "client_certificate" else None
    if facts is None:
        count = value.count("-----BEGIN CERTIFICATE-----")
        return many("{count} certificate", "{count} certificates", count)
    return say(
        "{subject}\nissued by {issuer}\nexpires {time}\nSHA-256 {fingerprint}",
        subject=facts.subject,
        issuer=facts.issuer,
        time=date_text(facts.expires_at),
        fingerprint=facts.fingerprint,
    )


# --- text as values --------------------------------------------------------------------------


def read_form(
    form: Mapping[str, str], before: Subscription | None
) -> tuple[dict[str, Any], list[FieldProblem], frozenset[str]]:
    """The values of a submitted form, the problems of those that cannot be read, and what is sent.

    The last are the secrets that the form gives and does not keep, as ``sent_by`` names them.

    A field that is absent keeps its value, except a flag: browsers do not send a checkbox that is
    not ticked.
    """
    values: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    sent: set[str] = set()
    for name, field in SPEC.items():
        if field.secret and name in form:
            sent.update(_sent(field, form[name]))
        kept = field.default if before is None else getattr(before, name)
        if field.kind is Kind.FLAG:
            values[name] = form.get(name) == "on"
        elif name in form or field.required:
            values[name] = kept
            try:
                values[name] = _read(field, form.get(name, ""), kept)
            except ValueError as error:
                problems.append(FieldProblem(name, error.args[0]))
        else:
            values[name] = kept
    return values, problems, frozenset(sent)


def _sent(field: Field, text: str) -> Iterator[str]:
    """The names of the secrets in the text of a field that are not ``****``."""
    if field.kind is not Kind.PAIRS:
        if text.strip() != MASK:
            yield field.name
        return
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if value != MASK:
            yield f"{field.name}.{name}".lower()


def _read(field: Field, text: str, kept: Any) -> Any:
    """The value of a field; raises ValueError with the reason."""
    match field.kind:
        case Kind.WORDS:
            return tuple(text.replace(",", " ").split())
        case Kind.PAIRS:
            return _pairs(field, text, kept)
        case Kind.FILTERS:
            return read_filters_text(text.strip())
        case Kind.NUMBER:
            return _number(field, text.strip())
        case Kind.CHOICE:
            return _choice(field, text.strip(), kept)
        case _:
            text = text.strip().replace("\r\n", "\n")
            if field.secret and text == MASK:
                return kept
            return text if text or field.required else field.default


def _pairs(field: Field, text: str, kept: tuple[tuple[str, str], ...]) -> Any:
    """Pairs from lines like ``name: value``; an unchanged line keeps its pair exactly."""
    before = dict(zip(_text(field, kept).split("\n"), kept, strict=False))
    values = {name.lower(): value for name, value in kept}
    found: list[tuple[str, str]] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line.strip():
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            raise ValueError(say("must have one name: value per line"))
        if field.secret and value == MASK:
            value = values.get(name.lower(), MASK)
        found.append(before.get(line, (name, value)))
    return tuple(found)


def _number(field: Field, text: str) -> float | None:
    if not text:
        return None
    whole = field.type == int | None
    try:
        return int(text) if whole else float(text)
    except ValueError:
        reason = say("must be a whole number") if whole else say("must be a number")
        raise ValueError(reason) from None


def _choice(field: Field, text: str, kept: Any) -> Any:
    if not isinstance(field.type, EnumType):
        return text or None
    if not text:
        return kept
    try:
        return field.type(text)
    except ValueError:
        options = ", ".join(field.type)
        raise ValueError(say("must be one of {names}", names=options)) from None


def read_filters_text(text: str) -> str:
    """Filters as the JSON that is stored; raises ValueError with the reason."""
    if not text:
        return "[]"
    try:
        return encode(decoder(list[dict[str, Any]]).decode(text)).decode()
    except (msgspec.DecodeError, RecursionError) as error:
        reason = say("must be a JSON list of conditions: {error}", error=str(error))
        raise ValueError(reason) from None
