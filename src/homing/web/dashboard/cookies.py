"""Reads one cookie from a ``Cookie`` header in one pass."""

from __future__ import annotations

from urllib.parse import unquote

VALUE_BYTES_MAX = 4 * 1024  # longer than every cookie of the dashboard


def read_cookie(header: bytes, name: str) -> str:
    """The value of the first cookie with this name; empty if there is none or it is too long."""
    wanted = name.encode() + b"="
    for pair in header.split(b";"):
        found = pair.strip(b" \t")
        if found.startswith(wanted):
            value = found[len(wanted) :]
            return unquote(value.decode("latin-1")) if len(value) <= VALUE_BYTES_MAX else ""
    return ""
