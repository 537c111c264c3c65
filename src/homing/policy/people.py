"""People whom an authenticating proxy names: which role and tenant the operator's rules give them.

A rule is ``WHO=ROLE`` or ``WHO=ROLE:TENANT``. ``WHO`` is the name of a person as the proxy sends
it, with ``*`` for any characters, or ``group:`` and the name of a group. The first rule that fits
decides; a person whom no rule fits is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from homing.policy.keys import Role
from homing.policy.networks import Network
from homing.policy.text import ascii_lower

NAME_CHARS_MAX = 200
GROUPS_MAX = 200
GROUP = "group:"
RULE_FORM = "rules like ada@example.com=admin, *@acme.example=manager:acme or group:ops=viewer:acme"

_RULE = re.compile(
    r"(?P<who>[^=,\s][^=,]{0,199})=(?P<role>[a-z]+)(?::(?P<tenant>[A-Za-z0-9_-]{1,64}))?"
)
_ROLES = {Role.ADMIN, Role.MANAGER, Role.VIEWER}  # those that may use the dashboard


class PersonRule(Struct, frozen=True):
    """Which people have a role."""

    who: str
    role: Role
    tenant: str | None  # None: all tenants

    def fits(self, person: str, groups: Sequence[str]) -> bool:
        """Whether the rule is about this person; the case of A to Z does not count."""
        if self.who.startswith(GROUP):
            return ascii_lower(self.who.removeprefix(GROUP)) in map(ascii_lower, groups)
        form = ".*".join(map(re.escape, ascii_lower(self.who).split("*")))
        return re.fullmatch(form, ascii_lower(person)) is not None


class PeopleOptions(Struct, frozen=True):
    """Which headers name a person, from which addresses, and what the person may do."""

    user_header: str = ""  # empty: no proxy names people
    groups_header: str = ""
    networks: tuple[Network, ...] = ()
    rules: tuple[PersonRule, ...] = ()


def read_rule(text: str) -> PersonRule | None:
    """The rule in this text; None if it is not one.

    An admin has all tenants. Every other role needs a tenant.
    """
    found = _RULE.fullmatch(text.strip())
    if found is None or found["role"] not in _ROLES:
        return None
    role, tenant = Role(found["role"]), found["tenant"]
    if (role is Role.ADMIN) is (tenant is not None):
        return None
    if found["who"].startswith(GROUP) and "*" in found["who"]:
        return None
    return PersonRule(found["who"].strip(), role, tenant)


def rule_of(rules: Sequence[PersonRule], person: str, groups: Sequence[str]) -> PersonRule | None:
    """The first rule that fits; None: no rule admits this person."""
    return next((it for it in rules if it.fits(person, groups)), None)


def is_name(text: str) -> bool:
    """Whether this text can be the name of a person."""
    return 1 <= len(text) <= NAME_CHARS_MAX and text.isprintable() and text == text.strip()


def read_groups(text: str) -> tuple[str, ...]:
    """The groups in a header, separated by commas, as oauth2-proxy and Authelia write them."""
    return tuple(it.strip() for it in text.split(",")[:GROUPS_MAX] if it.strip())
