"""Protection of the dashboard against other sites: security headers, Host and Origin checks."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from homing.errors import HomingError
from homing.languages.sentences import say
from homing.web.response import Headers

CONTENT_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors "
)
NOBODY = b"'none'"


def headers_for(frame_ancestors: bytes) -> Headers:
    """The headers of pages that these sites may show in a frame."""
    headers: Headers = (
        (b"content-security-policy", CONTENT_POLICY + frame_ancestors),
        (b"x-content-type-options", b"nosniff"),
        # Not "no-referrer": browsers would then send "Origin: null" with the dashboard's own forms.
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    )
    # It cannot name a site, so it is left out where one is allowed.
    return (*headers, (b"x-frame-options", b"DENY")) if frame_ancestors == NOBODY else headers


HEADERS = headers_for(NOBODY)


class WrongHost(HomingError):
    """The dashboard is not served under this name."""

    code = "wrong_host"
    http_status = 421


class Forged(HomingError):
    """This request does not come from a page of this dashboard."""

    code = "forged_request"
    http_status = 403


def check_host(host: str, hosts: frozenset[str]) -> None:
    """Raises WrongHost unless the host is an IP address, localhost or a name in the settings.

    This prevents DNS rebinding: another site can point its own name at this server, and its pages
    would then have the same origin as the dashboard. It cannot do that with an IP address or with
    a name that it does not own.
    """
    name = _name(host)
    if name in hosts or is_local(host):
        return
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        raise WrongHost(
            say(
                "To use the name {name}, add it to the setting {setting}.",
                name=repr(name[:253]),
                setting="hosts",
            )
        ) from None


def is_local(host: str) -> bool:
    """Whether browsers look for this host on their own machine only."""
    name = _name(host)
    return name in {"localhost", "127.0.0.1", "[::1]"} or name.endswith(".localhost")


def _name(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].rstrip(".").lower()


def check_origin(headers: Mapping[bytes, bytes]) -> None:
    """Raises Forged for a form that another site sent; every current browser says so."""
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in {b"same-origin", b"none"}:
        raise Forged(say("Open the form on this site and send it again."))
    origin = headers.get(b"origin")
    if origin is None:
        return
    if origin.partition(b"://")[2] != headers.get(b"host", b""):
        raise Forged(say("Open the form on this site and send it again."))
