"""OAuth 2.0 client credentials: the request for an access token, its response, and its renewal.

The client is authenticated by one of three methods (RFC 6749 section 2.3.1, RFC 7523). Of a
response that has no token, only the status and a registered error code are shown: the rest of it is
text of a stranger, and may repeat a secret.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, assert_never
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from homing import __version__
from homing.model import Credentials, Failure, OAuthMethod, SubscriptionSpec, TlsIdentity
from homing.policy.client_assertion import assertion
from homing.policy.failure_text import failure_text
from homing.policy.url import parse_url

RESPONSE_BYTES_MAX = 64 * 1024
TOKEN_CHARS_MAX = 8 * 1024
LIFE_S_DEFAULT = 300.0  # of a token whose response does not give its life
LIFE_S_MIN = 1.0
LIFE_S_MAX = 86_400.0
AHEAD_S_MAX = 60.0  # A token is renewed this long before its end,
AHEAD_PART = 0.2  # or in the last fifth of its life, if that is shorter.
AGAIN_FIRST_S = 1.0  # after a failed fetch, and after a new token that was refused, too
AGAIN_MAX_S = 60.0

# RFC 6749, 6750, 8628 and 8707, and what large providers send besides.
_ERRORS = frozenset(
    (
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_resource",
        "invalid_scope",
        "invalid_target",
        "server_error",
        "slow_down",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_grant_type",
    )
)
_TOKEN = re.compile(r"[!-~]+").fullmatch
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_LINES = (
    b"content-type: application/x-www-form-urlencoded\r\naccept: application/json\r\n"
    b"user-agent: homing/" + __version__.encode() + b"\r\n"
)

# Failures of the network between the sender and one token endpoint.
_ON_THE_WAY = frozenset((Failure.SENDER_DNS, Failure.SENDER_NETWORK, Failure.SENDER_TUNNEL))


class Token(Struct, frozen=True, eq=False):
    """An access token; times are seconds of the monotonic clock. Compared by identity."""

    value: str
    renew_at: float
    expires_at: float

    def __repr__(self) -> str:
        return "Token(****)"


class NoToken(Struct, frozen=True):
    """Why there is no access token: a failure and one line for people."""

    failure: Failure
    detail: str


def credentials_of(
    tenant: str, spec: SubscriptionSpec, tls: TlsIdentity | None = None
) -> Credentials | None:
    """The client of a subscription; None if it uses no OAuth. The fields have been checked."""
    if spec.oauth_token_url is None:
        return None
    url, target = parse_url(spec.oauth_token_url)
    with_key = spec.oauth_method is OAuthMethod.PRIVATE_KEY_JWT
    secret = spec.oauth_private_key if with_key else spec.oauth_client_secret
    parts = (
        tenant,
        url,
        spec.oauth_client_id or "",
        spec.oauth_method.value,
        secret or "",
        spec.oauth_scope or "",
        spec.oauth_audience or "",
        spec.oauth_key_id or "",
        "" if tls is None else tls.fingerprint,
    )
    return Credentials(
        identity=hashlib.sha256(msgspec.json.encode(parts)).digest(),
        tenant=tenant,
        token_url=url,
        target=target,
        client_id=spec.oauth_client_id or "",
        method=spec.oauth_method,
        secret=secret or "",
        scope=spec.oauth_scope or "",
        audience=spec.oauth_audience or "",
        key_id=spec.oauth_key_id or "",
        tls=tls,
    )


def token_request(client: Credentials, *, wall_s: int, unique: str) -> tuple[bytes, bytes]:
    """The header lines and the body of the request for a token."""
    form = {"grant_type": "client_credentials"}
    if client.scope:
        form["scope"] = client.scope
    if client.audience:
        form["audience"] = client.audience
    lines = _LINES
    match client.method:
        case OAuthMethod.CLIENT_SECRET_BASIC:  # Both are form-encoded first: RFC 6749, 2.3.1.
            lines += basic_line(quote(client.client_id, safe=""), quote(client.secret, safe=""))
        case OAuthMethod.CLIENT_SECRET_POST:
            form["client_id"] = client.client_id
            form["client_secret"] = client.secret
        case OAuthMethod.PRIVATE_KEY_JWT:
            form["client_id"] = client.client_id
            form["client_assertion_type"] = _ASSERTION_TYPE
            form["client_assertion"] = assertion(
                client.secret,
                client_id=client.client_id,
                audience=client.token_url,
                key_id=client.key_id,
                wall_s=wall_s,
                unique=unique,
            )
        case _ as never:
            assert_never(never)
    return lines, urlencode(form).encode()


def basic_line(user: str, password: str) -> bytes:
    """The header line of Basic authentication (RFC 7617)."""
    return b"authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()) + b"\r\n"


# --- the response ---------------------------------------------------------------------------------


def read_token(host: str, code: int, body: bytes, *, now: float) -> Token | NoToken:
    """The token of a response, or why it has none; ``host`` is that of the token endpoint."""
    if not 200 <= code <= 299:
        text = f"{code} {_error_code(body)}".rstrip()
        return _theirs(host, f"responded {text}")
    if len(body) > RESPONSE_BYTES_MAX:
        return _theirs(host, "sent a response of over 64 KiB")
    fields = _fields(body)
    if fields is None:
        return _theirs(host, f"responded {code} with a body that is not a JSON object")
    token, kind = fields.get("access_token"), fields.get("token_type", "bearer")
    if not isinstance(token, str) or not token:
        text = f"{code} without an access_token {_error_code(body)}".rstrip()
        return _theirs(host, f"responded {text}")
    if len(token) > TOKEN_CHARS_MAX or _TOKEN(token) is None:
        return _theirs(host, "sent an access_token over 8 KiB, or not of visible ASCII")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        return _theirs(host, "sent a token whose token_type is not bearer")
    life_s = _life_s(fields.get("expires_in"))
    ahead_s = min(AHEAD_S_MAX, AHEAD_PART * life_s)
    return Token(token, now + life_s - ahead_s, now + life_s)


def no_response(host: str, failure: Failure, detail: str, *, ours: bool) -> NoToken:
    """Why there is no token when the request for it got no response.

    ``ours``: the failure is sender-side. A look-up, a route or a tunnel that fails concerns one
    token endpoint, which serves many endpoints: it says nothing about the way to any of these.
    """
    if failure is Failure.FORBIDDEN_ADDRESS:
        return NoToken(failure, f"the token endpoint {host}: {detail}")
    if not ours:
        return _theirs(host, f"failed: {failure_text(None, failure, detail)}")
    found = Failure.SENDER_TOKEN if failure in _ON_THE_WAY else failure
    return NoToken(found, f"the token endpoint {host} could not be asked: {detail}")


def _theirs(host: str, text: str) -> NoToken:
    return NoToken(Failure.TOKEN, f"the token endpoint {host} {text}")


def _fields(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _error_code(body: bytes) -> str:
    found = (_fields(body) or {}).get("error")
    return found if isinstance(found, str) and found in _ERRORS else ""


def _life_s(given: object) -> float:
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 10:
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return LIFE_S_DEFAULT
    return min(max(float(min(given, 1 << 40)), LIFE_S_MIN), LIFE_S_MAX)


def wait_s(failures: int) -> float:
    """How long a token endpoint is not asked again, after this many failures in a row."""
    return min(AGAIN_FIRST_S * float(1 << min(failures - 1, 10)), AGAIN_MAX_S)
