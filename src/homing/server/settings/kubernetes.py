"""Recognises the variables that Kubernetes sets in every container for each service.

A service named ``homing`` gives ``HOMING_PORT=tcp://10.0.0.1:8700``, ``HOMING_SERVICE_HOST`` and
more; one named ``homing-smtp`` gives ``HOMING_SMTP_PORT``, which is the name of a setting, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBER = re.compile(r"[0-9]{1,5}").fullmatch
_ADDRESS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*").fullmatch
_URL = re.compile(r"(tcp|udp|sctp)://\S+:[0-9]{1,5}").fullmatch
_PROTOCOL = re.compile(r"tcp|udp|sctp").fullmatch

_PUBLISHED = r"_PORT_[0-9]+_(TCP|UDP|SCTP)"
_FORMS: tuple[tuple[str, Callable[[str], object]], ...] = (
    (r"_SERVICE_HOST", _ADDRESS),
    (r"_SERVICE_PORT(_[A-Z0-9_]+)?", _NUMBER),
    (r"_PORT", _URL),
    (_PUBLISHED, _URL),
    (_PUBLISHED + r"_PROTO", _PROTOCOL),
    (_PUBLISHED + r"_PORT", _NUMBER),
    (_PUBLISHED + r"_ADDR", _ADDRESS),
)
_NAMES = tuple(
    (re.compile(rf"HOMING(_[A-Z0-9_]+?)?{ending}").fullmatch, has_form)
    for ending, has_form in _FORMS
)


def is_injected(variable: str, value: str) -> bool:
    """Whether name and value are those of a service whose name begins with "homing"."""
    return any(is_name(variable) and has_form(value) for is_name, has_form in _NAMES)
