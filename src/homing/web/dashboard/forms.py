"""Reads the form of a page, in a few passes over its bytes.

The escapes of a whole value are decoded in one call: the standard library decodes them one by one,
which takes a quarter of a second for a mebibyte of them.
"""

from __future__ import annotations

import re
from binascii import a2b_qp

from homing.errors import BadRequest
from homing.web.texts import check_texts

FORM_BYTES_MAX = 256 * 1024
EVENT_FORM_BYTES_MAX = 1024 * 1024
SIGN_IN_BYTES_MAX = 16 * 1024  # a form that everybody may send
FIELDS_MAX = 200
LONE_MAX = 1_000  # signs % that are no escape, which no browser writes

_LONE_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def read_form(body: bytes, *, most: int = FIELDS_MAX) -> dict[str, str]:
    """The fields of a form; the last one wins where a name is given twice.

    Raises BadRequest, or Invalid with the fields that cannot be stored.
    """
    if body.count(b"&") >= most:
        raise BadRequest(f"A form holds at most {most} fields.")
    fields: dict[str, str] = {}
    for pair in body.split(b"&"):
        name, _, value = pair.partition(b"=")
        if pair:
            fields[_unescaped(name)] = _unescaped(value)
    check_texts(fields.items())
    return fields


def _unescaped(text: bytes) -> str:
    """As a browser wrote it: ``+`` is a space, ``%C3%A9`` is é; a lone ``%`` stays."""
    text = text.replace(b"+", b" ")
    if b"%" in text:
        whole, lone = _LONE_PERCENT.subn(b"%25", text, LONE_MAX)
        if lone == LONE_MAX:
            raise BadRequest("A form writes the sign % as %25.")
        # Quoted-printable is the same with another sign, and its decoder is written in C.
        text = a2b_qp(whole.replace(b"=", b"%3D").replace(b"%", b"="))
    return text.decode("utf-8", "surrogateescape")  # A byte that is not UTF-8 is refused.
