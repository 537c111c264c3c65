"""The request for a token, its response, assertions, and the rules of the fields."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwt
from joserfc.jwk import import_key
from msgspec.structs import replace

from homing.errors import Invalid
from homing.model import Credentials, Failure, OAuthMethod, TlsIdentity
from homing.policy.admission import SubscriptionDraft, check_subscription
from homing.policy.authentication import authorization_lines
from homing.policy.causes import key_of, title
from homing.policy.client_assertion import assertion, key_problem
from homing.policy.failure_text import failure_text
from homing.policy.incidents import what_fails
from homing.policy.oauth import (
    NoToken,
    Token,
    credentials_of,
    no_response,
    read_token,
    token_request,
    wait_s,
)
from homing.policy.outage import Sign, sign
from homing.policy.outcome import SENDER_FAILURES

URL = "https://auth.example/token"


def pem(key: Any, password: bytes | None = None) -> str:
    encryption: Any = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return str(key.private_bytes(encoding, form, encryption).decode())


def public_pem(key: Any) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return str(key.public_key().public_bytes(serialization.Encoding.PEM, form).decode())


RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
OAUTH = {"oauth_token_url": URL, "oauth_client_id": "me", "oauth_client_secret": "s3cret"}
BASIC = {"basic_user": "u", "basic_password": "p"}


def draft(**more: Any) -> SubscriptionDraft:
    return SubscriptionDraft(tenant="acme", url="https://a.example/", types=("*",), **more)


def checked(**more: Any) -> SubscriptionDraft:
    return check_subscription(draft(**more), policies=(), refuses=lambda _: "")


def problems(**more: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        checked(**more)
    return {it.field: it.reason for it in caught.value.problems}


def client(**more: Any) -> Credentials:
    found = credentials_of("acme", checked(**(OAUTH | more)))
    assert found is not None
    return found


# --- the request ----------------------------------------------------------------------------------


def test_the_secret_is_sent_in_the_header_or_in_the_form() -> None:
    odd = {"oauth_client_id": "a b:c", "oauth_client_secret": "x/+&%: y"}
    lines, body = token_request(client(**odd), wall_s=0, unique="")
    basic = next(it for it in lines.split(b"\r\n") if it.startswith(b"authorization: Basic "))
    # RFC 6749, 2.3.1: both are form-encoded before they are joined.
    assert base64.b64decode(basic.split(b" ")[2]) == b"a%20b%3Ac:x%2F%2B%26%25%3A%20y"
    assert body == b"grant_type=client_credentials"

    method = OAuthMethod.CLIENT_SECRET_POST
    more = {"oauth_scope": "a b", "oauth_audience": "https://api", "oauth_method": method}
    lines, body = token_request(client(**(odd | more)), wall_s=0, unique="")
    assert b"authorization" not in lines
    assert parse_qs(body.decode()) == {
        "grant_type": ["client_credentials"],
        "client_id": ["a b:c"],
        "client_secret": ["x/+&%: y"],
        "scope": ["a b"],
        "audience": ["https://api"],
    }


@pytest.mark.parametrize(("key", "kind", "algorithm"), [(RSA, "RSA", "RS256"), (EC, "EC", "ES256")])
@pytest.mark.parametrize("key_id", ["", "k1"])
def test_an_assertion_is_a_jwt_that_another_library_verifies(
    key: Any, kind: Any, algorithm: str, key_id: str
) -> None:
    text = assertion(
        pem(key), client_id="me", audience=URL, key_id=key_id, wall_s=1_000, unique="u1"
    )
    token = jwt.decode(text, import_key(public_pem(key), kind), algorithms=[algorithm])

    assert token.header == {"alg": algorithm, "typ": "JWT"} | ({"kid": "k1"} if key_id else {})
    assert token.claims == {
        "iss": "me",
        "sub": "me",
        "aud": URL,
        "jti": "u1",
        "iat": 1_000,
        "exp": 1_120,
    }


def test_equal_fields_of_one_tenant_are_one_client_and_all_others_are_not() -> None:
    assert client().identity == client().identity
    others = [
        client(oauth_token_url="https://auth.example/token2"),
        client(oauth_client_id="you"),
        client(oauth_client_secret="other"),
        client(oauth_scope="s"),
        client(oauth_audience="s"),
        client(oauth_method=OAuthMethod.CLIENT_SECRET_POST),
        credentials_of("bolt", checked(**OAUTH)),
        credentials_of("acme", checked(**OAUTH), TlsIdentity("fingerprint")),
    ]
    assert len({it.identity for it in (client(), *others) if it is not None}) == 9
    assert "s3cret" not in repr(client())


# --- the response ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expires_in", "renewed", "expired"),
    [
        ("3600", 3540, 3600),
        ('"3600"', 3540, 3600),
        ("60", 48, 60),
        ("0", 0.8, 1),
        ("-5", 0.8, 1),
        ("1e300", 86_340, 86_400),
        ("99999999999999999999", 86_340, 86_400),
        ("null", 240, 300),
        ('"soon"', 240, 300),
        ("true", 240, 300),
    ],
)
def test_a_token_is_renewed_a_minute_or_a_fifth_of_its_life_before_its_end(
    expires_in: str, renewed: float, expired: float
) -> None:
    body = f'{{"access_token": "t", "token_type": "bearer", "expires_in": {expires_in}}}'
    token = read_token("h", 200, body.encode(), now=10.0)

    assert isinstance(token, Token)
    assert (token.renew_at - 10, token.expires_at - 10) == pytest.approx((renewed, expired))
    assert "t" not in repr(token).removeprefix("Token")


def test_only_registered_error_codes_are_shown() -> None:
    def text(code: int, body: bytes) -> str:
        found = read_token("auth.example", code, body, now=0)
        assert isinstance(found, NoToken)
        return found.detail

    begin = "the token endpoint auth.example responded"
    assert text(401, b'{"error": "invalid_client"}') == f"{begin} 401 invalid_client"
    assert text(400, b'{"error": "s3cret", "error_description": "s3cret"}') == f"{begin} 400"
    assert text(500, b"s3cret") == f"{begin} 500"
    assert text(200, b'{"token": "s3cret"}') == f"{begin} 200 without an access_token"


@pytest.mark.parametrize("failure", Failure)
def test_a_fetch_without_a_response_is_ours_only_if_its_failure_is(failure: Failure) -> None:
    found = no_response("auth.example", failure, "why", ours=failure in SENDER_FAILURES).failure

    assert (found in SENDER_FAILURES) is (failure in SENDER_FAILURES)
    if failure not in SENDER_FAILURES and failure is not Failure.FORBIDDEN_ADDRESS:
        assert found is Failure.TOKEN


@pytest.mark.parametrize("failure", Failure)
def test_a_failed_fetch_is_evidence_of_an_outage_only_if_no_target_can_cause_it(
    failure: Failure,
) -> None:
    found = no_response("auth.example", failure, "why", ours=failure in SENDER_FAILURES).failure
    ours_alone = failure in {Failure.SENDER_LIMITS, Failure.SENDER_PROXY}

    assert (sign(None, found, dialled=False) is Sign.NOTHING) is not ours_alone


def test_the_wait_after_failures_doubles_up_to_a_minute() -> None:
    assert [wait_s(it) for it in (1, 2, 3, 6, 7, 1_000)] == [1, 2, 4, 32, 60, 60]


@pytest.mark.parametrize(
    ("code", "body", "text"),
    [
        (
            401,
            b'{"error": "invalid_client"}',
            "the OAuth token endpoint gives no access token (client refused (invalid_client)); "
            "check its oauth_client_id, oauth_method and secret or key",
        ),
        (503, b"", "the OAuth token endpoint gives no access token (server error)"),
        (404, b"", "the OAuth token endpoint gives no access token (request refused)"),
        (
            200,
            b"<html>",
            "the OAuth token endpoint gives no access token (response without a usable token); "
            "check its oauth_token_url",
        ),
    ],
)
def test_a_cause_says_what_the_token_endpoint_did_and_what_to_do(
    code: int, body: bytes, text: str
) -> None:
    found = read_token("auth.example", code, body, now=0)
    assert isinstance(found, NoToken)
    key = key_of(found.failure, found.detail, None)

    assert what_fails(key) == text
    assert title(key).startswith("token endpoint: ")
    assert failure_text(None, found.failure, found.detail) == found.detail
    assert failure_text(None, found.failure) == "no access token"


# --- the fields -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"token": "t"} | BASIC, {"basic_user"}),
        ({"token": "t"} | OAUTH, {"oauth_token_url"}),
        (BASIC | OAUTH, {"oauth_token_url"}),
        ({"token": "t"} | BASIC | OAUTH, {"basic_user", "oauth_token_url"}),
        (OAUTH | {"headers": (("Authorization", "x"),)}, {"headers.Authorization"}),
        (BASIC | {"headers": (("Authorization", "x"),)}, {"headers.Authorization"}),
        ({"token": "t", "headers": (("authorization", "x"),)}, {"headers.authorization"}),
        ({"basic_user": "u"}, {"basic_password"}),
        ({"basic_password": "p"}, {"basic_user"}),
        ({"basic_user": "u:v", "basic_password": "p"}, {"basic_user"}),
        ({"basic_user": "u", "basic_password": "p\n"}, {"basic_password"}),
        ({"basic_user": "u", "basic_password": "****"}, {"basic_password"}),
        ({"oauth_scope": "a"}, {"oauth_token_url", "oauth_client_id", "oauth_client_secret"}),
        (OAUTH | {"oauth_client_secret": None}, {"oauth_client_secret"}),
        (OAUTH | {"oauth_client_secret": "****cret"}, {"oauth_client_secret"}),
        (OAUTH | {"oauth_client_secret": "ü"}, {"oauth_client_secret"}),
        (OAUTH | {"oauth_client_id": "x" * 600}, {"oauth_client_id"}),
        (OAUTH | {"oauth_scope": "a  b"}, {"oauth_scope"}),
        (OAUTH | {"oauth_scope": ""}, {"oauth_scope"}),
        (OAUTH | {"oauth_audience": "a b"}, {"oauth_audience"}),
        (OAUTH | {"oauth_token_url": "auth.example"}, {"oauth_token_url"}),
        (OAUTH | {"oauth_token_url": "http://auth.example/"}, {"oauth_token_url"}),
        (OAUTH | {"oauth_token_url": "https://u:p@auth.example/"}, {"oauth_token_url"}),
        (
            OAUTH | {"oauth_private_key": "k", "oauth_key_id": "k"},
            {"oauth_private_key", "oauth_key_id"},
        ),
        (
            OAUTH | {"oauth_method": OAuthMethod.PRIVATE_KEY_JWT},
            {"oauth_client_secret", "oauth_private_key"},
        ),
    ],
)
def test_exactly_one_way_to_authenticate_with_all_of_its_parts(
    fields: dict[str, Any], refused: set[str]
) -> None:
    found = problems(**fields)

    assert set(found) == refused
    assert "s3cret" not in str(found)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080/t", "http://localhost/t", "http://10.0.0.1/"]
)
def test_http_is_for_token_endpoints_on_no_public_network(url: str) -> None:
    assert checked(**(OAUTH | {"oauth_token_url": url})).oauth_token_url == url


def test_the_token_url_has_a_normal_form_and_is_asked_for_at_the_door_once() -> None:
    asked: list[str] = []

    def refuses(target: Any) -> str:
        asked.append(target.host)
        return "is not allowed" if target.host == "auth.example" else ""

    wanted = draft(**(OAUTH | {"oauth_token_url": "HTTPS://Auth.Example:443/token#x"}))
    with pytest.raises(Invalid) as caught:
        check_subscription(wanted, policies=(), refuses=refuses)
    assert [it.field for it in caught.value.problems] == ["oauth_token_url"]
    assert asked == ["a.example", "auth.example"]
    stored = check_subscription(wanted, policies=(), refuses=None)
    assert stored.oauth_token_url == URL
    before: Any = replace(stored)
    check_subscription(stored, policies=(), refuses=refuses, before=before)
    assert asked == ["a.example", "auth.example"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("no key", "must be a private key in PEM"),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            "must be a key that can sign",
        ),
        (public_pem(RSA), "must be a private key in PEM"),
        (pem(ed25519.Ed25519PrivateKey.generate()), "must be a PEM private key"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "must be a PEM private key"),
        (pem(rsa.generate_private_key(65537, 1024)), "must be an RSA key of 2048 to 4096 bits"),
        (pem(EC, b"passphrase"), "is encrypted"),
    ],
)
def test_a_key_that_cannot_sign_is_refused_with_the_reason(key: str, reason: str) -> None:
    found = key_problem(key)

    assert found is not None
    assert found.startswith(reason)
    method = OAuthMethod.PRIVATE_KEY_JWT
    fields = OAUTH | {"oauth_client_secret": None, "oauth_private_key": key, "oauth_method": method}
    assert set(problems(**fields)) == {"oauth_private_key"}


def test_an_rsa_key_whose_numbers_do_not_fit_is_refused() -> None:
    other = rsa.generate_private_key(65537, 2048).private_numbers()
    good = RSA.private_numbers()
    mixed = rsa.RSAPrivateNumbers(
        good.p, good.q, other.d, good.dmp1, good.dmq1, good.iqmp, good.public_numbers
    )
    bad = mixed.private_key(unsafe_skip_rsa_key_validation=True)

    assert key_problem(pem(bad)) == "must be a valid RSA key: its numbers do not fit together"
    assert key_problem(pem(RSA)) is None
    assert key_problem(pem(EC)) is None


def test_the_authorization_line_is_masked_in_the_log() -> None:
    line, masked = authorization_lines(draft(basic_user="üser", basic_password="pass word"))
    assert base64.b64decode(line.split(b" ")[2]).decode() == "üser:pass word"
    assert masked == b"authorization: Basic ****\r\n"
    assert authorization_lines(draft(**OAUTH)) == (b"", b"authorization: Bearer ****\r\n")
    assert authorization_lines(draft()) == (b"", b"")
