"""The options of ``homing subscribe``, made from the list of a subscription's fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import EnumType
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from homing.cli.errors import Usage
from homing.cli.filters import read_filters
from homing.cli.output import counted
from homing.model import SPEC, Field, Kind

if TYPE_CHECKING:
    from homing_client import Subscription

_APART = frozenset(("url", "types", "filter_connector"))  # given as two arguments and ``--any``


def with_field_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds an option for each field; the command gets them as its ``**fields``."""
    signature = inspect.signature(command, eval_str=True)
    own = [it for it in signature.parameters.values() if it.kind is not it.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(field)
        )
        for name, field in SPEC.items()
        if name not in _APART
    ]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*own, *options]
    )
    return command


def _option(field: Field) -> Any:
    name = "--" + field.option.replace("_", "-")
    match field.kind:
        case Kind.PAIRS:
            about = typer.Option(name, help=f"'name: value'. {field.sentence} Repeatable.")
            return Annotated[list[str] | None, about]
        case Kind.FILTERS:
            about = typer.Option(name, help=f"JSON, like '{field.example[1:-1]}'. Repeatable.")
            return Annotated[list[str] | None, about]
        case Kind.FLAG:
            about = typer.Option(f"{name}/--no{name[1:]}", help=field.sentence)
            return Annotated[bool | None, about]
        case Kind.CHOICE if isinstance(field.type, EnumType):
            about = typer.Option(name, help=f"{field.sentence} One of {', '.join(field.type)}.")
            return Annotated[str | None, about]
        case Kind.PEM:
            about = typer.Option(name, help=f"A file. {field.sentence}", metavar="FILE")
            return Annotated[str | None, about]
        case Kind.NUMBER:
            return Annotated[field.type, typer.Option(name, help=field.sentence)]
        case _:
            return Annotated[str | None, typer.Option(name, help=field.sentence)]


def read_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given, as the client takes them; raises Usage."""
    values: dict[str, Any] = {}
    for name, given in options.items():
        field = SPEC[name]
        if given is None or given == []:
            continue
        if field.kind is Kind.PAIRS:
            values[name] = _pairs(field, given)
        elif field.kind is Kind.FILTERS:
            values[name] = read_filters(given)
        elif field.kind is Kind.PEM:
            values[name] = _file(field, given)
        else:
            values[name] = given
    return values


def _file(field: Field, path: str) -> str:
    option = "--" + field.option.replace("_", "-")
    try:
        with Path(path).open("rb") as file:
            content = file.read(4 * field.chars_max + 1)  # The server says what is too long.
        return content.decode()
    except OSError as error:
        raise Usage(f"{option} {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise Usage(f"{option} {path} must be a text file in PEM.") from None


def _pairs(field: Field, lines: list[str]) -> dict[str, str]:
    pairs = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise Usage(f"--{field.option} {line!r} must be like 'name: value'.")
        pairs[name.strip()] = value.strip()
    return pairs


def field_facts(subscription: Subscription) -> list[tuple[str, str]]:
    """The name and the text of every field whose value is not its default."""
    facts = []
    for name, field in SPEC.items():
        value = getattr(subscription, name)
        if not value or value == field.default:
            continue
        if field.kind is Kind.PAIRS:
            text = ", ".join(f"{key}: {one}" for key, one in value.items())
        elif field.kind is Kind.WORDS:
            text = ", ".join(value)
        elif field.kind is Kind.FILTERS:
            text = msgspec.json.encode(value).decode()
        elif field.kind is Kind.PEM:
            text = _pem_text(subscription, field, value)
        else:
            text = str(value)
        facts.append((name, text))
    return facts


def _pem_text(subscription: Subscription, field: Field, value: str) -> str:
    if field.secret:
        return value
    own = subscription.certificate
    if field.name == "client_certificate" and own is not None:
        return f"{own.subject}, expires at {own.expires_at}, SHA-256 {own.fingerprint}"
    return counted(value.count("-----BEGIN CERTIFICATE-----"), "certificate")
