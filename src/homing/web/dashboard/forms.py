"""Reads the fields of a submitted form.

All escapes of a value are decoded in one call: the standard library decodes them one by one, which
takes a quarter of a second for a mebibyte of escapes.
"""

from __future__ import annotations

import re
from binascii import a2b_qp
from collections.abc import Mapping

from homing.errors import BadRequest, FormOutdated
from homing.languages.sentences import say
from homing.policy.admission import MASK
from homing.web.texts import check_texts

FORM_BYTES_MAX = 256 * 1024
EVENT_FORM_BYTES_MAX = 1024 * 1024
SIGN_IN_BYTES_MAX = 16 * 1024  # a form that needs no session
FIELDS_MAX = 200
NOTHING_SAVED = say(
    "Nothing was saved: something has changed since this page was opened. "
    "Look at the fields, and save again."
)
LONE_MAX = 1_000  # % characters that begin no escape; browsers never send them

_LONE_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def read_form(body: bytes, *, fields_max: int = FIELDS_MAX) -> dict[str, str]:
    """The fields of a form; the last one wins where a name is given twice.

    Raises BadRequest, or Invalid with the fields that cannot be stored.
    """
    if body.count(b"&") >= fields_max:
        raise BadRequest(say("A form may have at most {limit} fields.", limit=fields_max))
    fields: dict[str, str] = {}
    for pair in body.split(b"&"):
        name, _, value = pair.partition(b"=")
        if pair:
            fields[_unescaped(name)] = _unescaped(value)
    check_texts(fields.items())
    return fields


def outdated(
    sent: Mapping[str, str], error: FormOutdated, present: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of a form that was made from an older state, and what to say at its fields.

    A field that has changed meanwhile shows its present value, and what the form had.
    """
    texts = dict(sent)
    said: dict[str, str] = {"": NOTHING_SAVED}
    for name in (it.field for it in error.problems if it.field in present):
        said[name] = say("Changed meanwhile: this is the present value.")
        if sent.get(name, "") not in {"", "on", MASK, present[name]}:
            said[name] = say(
                "Changed meanwhile: this is the present value. The form had: {text}",
                text=sent[name],
            )
        texts[name] = present[name]
    return texts, said


def _unescaped(text: bytes) -> str:
    """The decoded text: ``+`` is a space, ``%C3%A9`` is é; a ``%`` that begins no escape stays."""
    text = text.replace(b"+", b" ")
    if b"%" in text:
        whole, lone = _LONE_PERCENT.subn(b"%25", text, LONE_MAX)
        if lone == LONE_MAX:
            raise BadRequest(
                say("The form contains too many unescaped % characters: write % as %25.")
            )
        # Quoted-printable differs only in its escape character, and its decoder is written in C.
        text = a2b_qp(whole.replace(b"=", b"%3D").replace(b"%", b"="))
    return text.decode("utf-8", "surrogateescape")  # A byte that is not UTF-8 is refused.
