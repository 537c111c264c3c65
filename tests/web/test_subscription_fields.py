"""Every field of a subscription is in every place that shows or takes one."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from homing.cli.hide_secrets import SECRET_FLAGS
from homing.cli.main import app
from homing.model import (
    SPEC,
    Connector,
    Field,
    Format,
    Kind,
    OAuthMethod,
    Order,
    Signature,
    Subscription,
    Verification,
)
from homing.policy.admission import check_subscription, draft_of, patched
from homing.web.dashboard.subscription_form import (
    form_rows,
    form_texts,
    open_groups,
    page_facts,
    read_form,
)
from homing.web.openapi import openapi
from homing.web.routes import OPERATIONS
from homing_client import subscription as client
from net.certificates import a_client_certificate
from policy.build import a_subscription

# One way to authenticate excludes the others.
WAYS = {
    "token": ("token",),
    "basic": ("basic_user", "basic_password"),
    "oauth": tuple(it for it in SPEC if it.startswith("oauth_") and it != "oauth_client_secret"),
}
KEY = (
    ec.generate_private_key(ec.SECP256R1())
    .private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    .decode()
)
FIELDS = pytest.mark.parametrize("field", SPEC.values(), ids=SPEC)

CERTIFICATE, KEY = a_client_certificate()
SET: dict[str, Any] = {
    "url": "https://example.com/",
    "types": ("a", "b.*"),
    "filters": '[{"field":"data.n","op":"gt","value":0}]',
    "filter_connector": Connector.OR,
    "format": Format.RAW,
    "signature": Signature.BOTH,
    "policy": "workfront",
    "token": "a-long-token",
    "basic_user": "homing",
    "basic_password": "a-long-password",
    "oauth_token_url": "https://auth.example.com/token",
    "oauth_client_id": "homing",
    "oauth_method": OAuthMethod.PRIVATE_KEY_JWT,
    "oauth_client_secret": "a-long-secret",
    "oauth_scope": "events.write",
    "oauth_audience": "https://api.example.com",
    "oauth_key_id": "key-1",
    "oauth_private_key": KEY.strip(),
    "deadline_ms": 2_000,
    "order": Order.LATEST,
    "quiet_ms": 2_000,
    "max_wait_ms": 30_000,
    "rate_per_second": 333.333333333,
    "headers": (("x-team", "billing"),),
    "client_certificate": CERTIFICATE,
    "client_key": KEY,
    "ca_certificates": CERTIFICATE,
    "description": "For the shop",
    "metadata": (("customer", "4711"), ("a: b ", " c: d")),
    "verification": Verification.CHALLENGE,
    "active": False,
}


def a_full_one() -> Subscription:
    assert SET.keys() == SPEC.keys(), "give the new field a value that is not its default"
    return a_subscription(**SET)


@FIELDS
def test_a_field_is_in_the_requests_and_in_the_response_of_the_api(field: Field) -> None:
    schemas = openapi(OPERATIONS)["components"]["schemas"]
    for name in ("SubscriptionIn", "SubscriptionPatch", "SubscriptionView", "SubscriptionCreated"):
        shown = schemas[name]["properties"][field.api_name]
        assert shown["description"] == field.sentence


@FIELDS
def test_a_field_is_in_the_form_and_on_the_page(field: Field) -> None:
    in_form = [one.name for _, rows in form_rows() for _, row in rows for one in row]
    on_page = [one.name for one, _ in page_facts(a_full_one())]
    if field.name not in {"url", "filter_connector"}:  # They stand beside others.
        assert field.name in in_form
        assert field.name in on_page
    assert field.name in form_texts(a_full_one())


@FIELDS
def test_a_field_is_in_the_client_and_on_the_command_line(field: Field) -> None:
    assert field.name in client.Subscription.__struct_fields__
    assert field.name in client.SubscriptionChanges.__annotations__
    if field.name not in {"url", "types"}:  # They are arguments.
        assert field.name in client.SubscriptionOptions.__annotations__
    command: Any = typer.main.get_command(app)
    options = [name for param in command.commands["subscribe"].params for name in param.opts]
    if field.name not in {"url", "types", "filter_connector"}:  # Two arguments, and --any.
        assert "--" + field.option.replace("_", "-") in options


@FIELDS
def test_the_option_of_a_secret_field_is_hidden_from_the_process_list(field: Field) -> None:
    option = "--" + field.option.replace("_", "-")
    is_text = field.kind is not Kind.PEM  # Of a key in PEM the command line has a file's name.
    assert (option in SECRET_FLAGS) is (field.secret and is_text)


def test_the_form_of_a_subscription_sent_back_unchanged_changes_nothing() -> None:
    before = a_full_one()
    sent, problems, _ = read_form(form_texts(before), before)
    assert problems == []
    assert sent == SET


@FIELDS
def test_a_form_without_a_field_leaves_it_as_it_is(field: Field) -> None:
    before = a_full_one()
    form = form_texts(before)
    del form[field.name]
    sent, problems, _ = read_form(form, before)
    if not field.required:
        assert problems == []
        assert sent == SET


@FIELDS
def test_a_patch_of_one_field_leaves_the_others(field: Field) -> None:
    before = a_full_one()
    default = field.default if not field.required else SET[field.name]
    after = patched(before, {field.name: None if not field.required else default})
    assert after == replace(draft_of(before), **{field.name: default})


def test_a_group_of_fields_is_folded_up_while_none_of_them_is_set() -> None:
    basic = a_subscription(basic_user="u", basic_password="p")
    assert open_groups(form_texts(None), ()) == set()
    assert open_groups(form_texts(basic), ()) == {"Basic authentication"}
    assert open_groups(form_texts(None), {"oauth_scope"}) == {"OAuth 2.0"}
    shown = {field.group for field, _ in page_facts(basic)}
    assert shown == {"", "Basic authentication"}


def test_what_is_secret_is_neither_in_the_form_nor_on_the_page() -> None:
    full = a_full_one()
    shown = [*form_texts(full).values(), *(text for _, text in page_facts(full))]
    secret = KEY.splitlines()[1]
    assert not any(word in text for text in shown for word in ("a-long", "billing", secret))


@pytest.mark.parametrize("way", WAYS)
def test_every_field_of_a_draft_reaches_the_subscription(way: str) -> None:
    others = [*(name for it in WAYS if it != way for name in WAYS[it]), "oauth_client_secret"]
    wanted = SET | {name: SPEC[name].default for name in others}
    full = a_subscription(**wanted)
    draft = check_subscription(draft_of(full), policies={"workfront"}, refuses=None)
    assert draft.spec() == full.spec() == wanted
