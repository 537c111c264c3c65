"""Reads one cookie out of a ``Cookie`` header, in one pass over it."""

from __future__ import annotations

from urllib.parse import unquote

VALUE_BYTES_MAX = 4 * 1024  # no cookie of ours is as long


def read_cookie(header: bytes, name: str) -> str:
    """The value of the first cookie of this name; empty if there is none, or it is too long."""
    wanted = name.encode() + b"="
    for pair in header.split(b";"):
        found = pair.strip(b" \t")
        if found.startswith(wanted):
            value = found[len(wanted) :]
            return unquote(value.decode("latin-1")) if len(value) <= VALUE_BYTES_MAX else ""
    return ""
