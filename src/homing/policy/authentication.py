"""How a subscription authenticates at its receiver: one way at most, and all parts of it.

The ways are a token, Basic, OAuth 2.0 client credentials, and a custom ``authorization`` header. An
API key in another header is one of ``headers`` and can be combined with each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from ipaddress import ip_address

from msgspec.structs import replace

from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Sentence, say
from homing.model import SPEC, Kind, OAuthMethod, Subscription, SubscriptionSpec, Target
from homing.policy.client_assertion import key_problem
from homing.policy.networks import kinds_of
from homing.policy.oauth import basic_line
from homing.policy.reach import is_loopback_name
from homing.policy.url import parse_url

_VISIBLE = re.compile(r"[!-~]+").fullmatch
_PRINTABLE = re.compile(r"[ -~]+").fullmatch
_SCOPES = re.compile(r"[!#-\[\]-~]+(?: [!#-\[\]-~]+)*").fullmatch
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]").search

_OAUTH = tuple(name for name in SPEC if name.startswith("oauth_"))
_BASIC = ("basic_user", "basic_password")
_AT_TOKEN_URL = ("oauth_client_secret", "oauth_private_key", "client_key")  # sent to it, or used
_MASKED = b"****"
_WITH_OAUTH = say("must be given with the other oauth fields")


def without_authentication(subscription: Subscription) -> Subscription:
    """The subscription without its token, user or client; its own headers stay."""
    return replace(
        subscription, **{name: SPEC[name].default for name in ("token", *_BASIC, *_OAUTH)}
    )


def authorization_lines(spec: SubscriptionSpec) -> tuple[bytes, bytes]:
    """The authorization header line of a subscription, and its logged form.

    With OAuth the sender adds the line itself, when it has a token.
    """
    if spec.token is not None:
        line = b"authorization: Bearer " + spec.token.encode() + b"\r\n"
        return line, b"authorization: Bearer " + _MASKED + b"\r\n"
    if spec.basic_user is not None:
        line = basic_line(spec.basic_user, spec.basic_password or "")
        return line, b"authorization: Basic " + _MASKED + b"\r\n"
    if spec.oauth_token_url is not None:
        return b"", b"authorization: Bearer " + _MASKED + b"\r\n"
    return b"", b""


def authentication_problems(
    spec: SubscriptionSpec, refuses: Callable[[Target], str] | None
) -> Iterator[FieldProblem]:
    """Every problem of the fields by which a subscription authenticates, except its headers.

    ``refuses`` returns why Homing may not send to a target, or ""; None: the token URL was admitted
    before.
    """
    yield from _token_problems(spec.token)
    ways = ways_of(spec)
    for name in ways[1:]:
        if name != "headers":  # This problem is one of the header's.
            reason = say("must not be given together with {field}: remove one", field=ways[0])
            yield FieldProblem(name, reason)
    if any(_is_set(spec, name) for name in _BASIC):
        yield from _basic_problems(spec)
    if any(_is_set(spec, name) for name in _OAUTH):
        yield from _oauth_problems(spec, refuses)


def kept_problems(
    spec: SubscriptionSpec, before: SubscriptionSpec, sent: Collection[str]
) -> Iterator[FieldProblem]:
    """Every secret that a change would send to another origin without having it sent again.

    Otherwise whoever may change a URL would learn what the subscription authenticates with.
    ``sent`` has the names of the fields, and of single headers, that the change gives anew.
    """
    if not before.url or not spec.url:
        return
    moved = _origin(spec.url) != _origin(before.url)
    token_moved = _origin(spec.oauth_token_url) != _origin(before.oauth_token_url)
    for name, field in SPEC.items():
        if not field.secret or not (moved or (token_moved and name in _AT_TOKEN_URL)):
            continue
        kept, value = getattr(before, name), getattr(spec, name)
        if field.kind is Kind.PAIRS:
            names = {key.lower() for key, _ in kept} & {key.lower() for key, _ in value}
            held = [f"{name}.{key}" for key, _ in value if key.lower() in names]
        else:
            held = [name] if kept is not None and value == kept else []
        url = spec.url if moved else spec.oauth_token_url
        for one in held:
            if one.lower() not in sent:
                yield FieldProblem(
                    one,
                    say(
                        "is kept for {before} and is not sent to {after} unasked: send it again, "
                        "or remove it",
                        before=_origin(before.url if moved else before.oauth_token_url),
                        after=_origin(url),
                    ),
                )


def _origin(url: str | None) -> str:
    """The scheme, host and port of a URL in its normal form."""
    return "/".join((url or "").split("/", 3)[:3])


def ways_of(spec: SubscriptionSpec) -> list[str]:
    """The ways that are used, each by its first field that is set."""
    ways = [] if spec.token is None else ["token"]
    for names in (_BASIC, _OAUTH):
        ways += [name for name in names if _is_set(spec, name)][:1]
    if any(name.lower() == "authorization" for name, _ in spec.headers):
        ways.append("headers")
    return ways


def token_url_of(spec: SubscriptionSpec) -> str | None:
    """The token URL in its normal form, if it has one; it may still be refused."""
    if spec.oauth_token_url is None:
        return None
    try:
        return parse_url(spec.oauth_token_url)[0]
    except Invalid:
        return spec.oauth_token_url


def _is_set(spec: SubscriptionSpec, name: str) -> bool:
    return bool(getattr(spec, name) != SPEC[name].default)


def _token_problems(token: str | None) -> Iterator[FieldProblem]:
    limit = SPEC["token"].chars_max
    if token is not None and (len(token) > limit or _VISIBLE(token) is None):
        reason = say("must be 1 to {limit} visible ASCII characters", limit=str(limit))
        yield FieldProblem("token", reason)


def _basic_problems(spec: SubscriptionSpec) -> Iterator[FieldProblem]:
    for name, other in (_BASIC, _BASIC[::-1]):
        value, limit = getattr(spec, name), SPEC[name].chars_max
        if value is None:
            yield FieldProblem(name, say("must be given together with {field}", field=other))
        elif not 1 <= len(value) <= limit or _CONTROL(value):
            reason = say("must be 1 to {limit} characters, no control characters", limit=str(limit))
            yield FieldProblem(name, reason)
        elif name == "basic_user" and ":" in value:
            reason = say("must not contain a colon, which ends the user's name")
            yield FieldProblem(name, reason)


# --- OAuth ----------------------------------------------------------------------------------------


def _oauth_problems(
    spec: SubscriptionSpec, refuses: Callable[[Target], str] | None
) -> Iterator[FieldProblem]:
    yield from _token_url_problems(spec.oauth_token_url, refuses)
    if spec.oauth_client_id is None:
        yield FieldProblem("oauth_client_id", _WITH_OAUTH)
    for name, fits, rule in (
        ("oauth_client_id", _PRINTABLE, _printable_rule),
        ("oauth_client_secret", _PRINTABLE, _printable_rule),
        ("oauth_scope", _SCOPES, _scopes_rule),
        ("oauth_audience", _VISIBLE, _visible_rule),
        ("oauth_key_id", _VISIBLE, _visible_rule),
    ):
        value, limit = getattr(spec, name), SPEC[name].chars_max
        if value is not None and (len(value) > limit or fits(value) is None):
            yield FieldProblem(name, rule(str(limit)))
    yield from _method_problems(spec)


def _printable_rule(limit: str) -> Sentence:
    return say("must be 1 to {limit} characters of visible ASCII and space", limit=limit)


def _scopes_rule(limit: str) -> Sentence:
    return say(
        'must be 1 to {limit} characters of visible ASCII without " and \\, one space between '
        "scopes",
        limit=limit,
    )


def _visible_rule(limit: str) -> Sentence:
    return say("must be 1 to {limit} characters of visible ASCII", limit=limit)


def _token_url_problems(
    url: str | None, refuses: Callable[[Target], str] | None
) -> Iterator[FieldProblem]:
    field = "oauth_token_url"
    if url is None:
        yield FieldProblem(field, _WITH_OAUTH)
        return
    try:
        _, target = parse_url(url)
    except Invalid as error:
        yield from (FieldProblem(field, it.reason) for it in error.problems)
        return
    if target.scheme != "https" and not _is_inner(target.host):
        reason = say(
            "must begin with https://, because the client's secret is sent to it; http:// is for "
            "loopback and private addresses"
        )
        yield FieldProblem(field, reason)
    elif refuses is not None and (why := refuses(target)):
        yield FieldProblem(field, why)


def _is_inner(host: str) -> bool:
    """Whether a host is on no public network: the operator has to allow it first."""
    if is_loopback_name(host):
        return True
    try:
        return any(True for _ in kinds_of(ip_address(host)))
    except ValueError:
        return False


def _method_problems(spec: SubscriptionSpec) -> Iterator[FieldProblem]:
    method, key = spec.oauth_method, spec.oauth_private_key
    if method is not OAuthMethod.PRIVATE_KEY_JWT:
        if spec.oauth_client_secret is None:
            reason = say("must be given for {value}", value=method.value)
            yield FieldProblem("oauth_client_secret", reason)
        for name in ("oauth_private_key", "oauth_key_id"):
            if getattr(spec, name) is not None:
                reason = say(
                    "must not be given for {value}: remove it, or choose {other}",
                    value=method.value,
                    other=OAuthMethod.PRIVATE_KEY_JWT.value,
                )
                yield FieldProblem(name, reason)
        return
    if spec.oauth_client_secret is not None:
        reason = say(
            "must not be given for {value}: remove it, or choose another {field}",
            value=method.value,
            field="oauth_method",
        )
        yield FieldProblem("oauth_client_secret", reason)
    limit = SPEC["oauth_private_key"].chars_max
    if key is None:
        reason = say("must be given for {value}", value=method.value)
        yield FieldProblem("oauth_private_key", reason)
    elif len(key) > limit:
        reason = say("must be at most {limit} characters", limit=str(limit))
        yield FieldProblem("oauth_private_key", reason)
    elif (problem := key_problem(key)) is not None:
        yield FieldProblem("oauth_private_key", problem)
