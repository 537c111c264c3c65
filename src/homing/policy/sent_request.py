"""The request of a logged attempt as it was sent: its header lines, its body, and a curl command.

The log has no bodies. A body is written again from the event and the subscription; the logged
signature proves whether these are the bytes that were sent, because the subscription may have been
changed since.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterator

from msgspec import Struct

from homing.model import Attempt, Event, Format, Subscription
from homing.policy.formats import body_writer
from homing.policy.sent_headers import logged_lines
from homing.policy.signature import Signer, TenantSigner
from homing.policy.workfront import frame_of

INLINE_BYTES_MAX = 64 * 1024  # of a body that is part of a command; a larger one is a file
_MASKED = "****"
_SHELL = re.compile("[^A-Za-z0-9]")


class SentRequest(Struct, frozen=True):
    """A request; ``lines`` have no `host` and no `content-length`, and secrets are masked."""

    url: str
    lines: tuple[tuple[str, str], ...]
    body: bytes
    proven: bool  # the logged signature is one of this body

    @property
    def masked(self) -> tuple[str, ...]:
        """The names of the headers whose values are secret."""
        return tuple(name for name, value in self.lines if value.endswith(_MASKED))


def sent_request(
    attempt: Attempt,
    event: Event,
    subscription: Subscription | None,
    *,
    url: str,
    tenant_signer: TenantSigner | None,
) -> SentRequest:
    """The request of an attempt; ``url`` is the one of its endpoint."""
    lines = tuple(_fields(logged_lines(attempt)))
    named = {name.lower(): value for name, value in lines}
    bodies = list(_bodies(event, subscription))
    for body in bodies:
        if _is_signed(body, named, subscription, tenant_signer):
            return SentRequest(url, lines, body, proven=True)
    return SentRequest(url, lines, bodies[0], proven=False)


def _bodies(event: Event, subscription: Subscription | None) -> Iterator[bytes]:
    """The body in the format of the subscription, then in every other format."""
    current = Format.STANDARD if subscription is None else subscription.format
    for fmt in (current, *(it for it in Format if it is not current)):
        if fmt is not Format.WORKFRONT:
            yield body_writer(fmt)[0](event)
        elif subscription is not None:
            yield body_writer(fmt, frame_of(subscription))[0](event)


def _is_signed(
    body: bytes,
    named: dict[str, str],
    subscription: Subscription | None,
    tenant_signer: TenantSigner | None,
) -> bool:
    logged = set(named.get("webhook-signature", "").encode().split())
    about = (named.get("webhook-id", "").encode(), named.get("webhook-timestamp", "").encode())
    secrets = () if subscription is None else subscription.secrets
    if any(Signer(it.value).sign(*about, body) in logged for it in secrets):
        return True
    return tenant_signer is not None and not logged.isdisjoint(
        tenant_signer.sign(*about, body, now=0)  # Also by keys that no longer sign.
    )


def _fields(block: bytes) -> Iterator[tuple[str, str]]:
    for line in block.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            yield name, value.strip(" ")


def curl_command(request: SentRequest, *, body_file: str) -> str:
    """A shell command that sends the same bytes again.

    A secret value is a variable, and the command fails while it is not set. A body that a terminal
    would change or hide is in base64; a large one is read from ``body_file``.
    """
    curl = ["curl -i --http1.1 --globoff --path-as-is -X POST " + shlex.quote(request.url)]
    curl += [f"-H {_header(name, value)}" for name, value in request.lines]
    curl.append("-H 'accept:'")  # curl adds none
    before, data = _data(request.body, body_file)
    return before + " \\\n  ".join([*curl, f"--data-binary {data}"])


def _header(name: str, value: str) -> str:
    if not value.endswith(_MASKED):
        return shlex.quote(f"{name}: {value}" if value else f"{name};")
    variable = "${" + variable_of(name) + ":?}"
    return f'"{name}: {value.removesuffix(_MASKED)}{variable}"'


def variable_of(name: str) -> str:
    """The shell variable for the secret value of a header."""
    return "VALUE_" + _SHELL.sub("_", name).upper()


def _data(body: bytes, body_file: str) -> tuple[str, str]:
    if len(body) > INLINE_BYTES_MAX:
        return "", shlex.quote("@" + body_file)
    text = _printable(body)
    if text is not None:
        return "", shlex.quote(text)
    coded = base64.b64encode(body).decode()
    return f"printf %s {shlex.quote(coded)} | base64 -d | ", "@-"


def _printable(body: bytes) -> str | None:
    """The body as text, if a terminal takes and shows all of it; None if not."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() and not text.startswith("@") else None
