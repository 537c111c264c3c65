"""People whom an authenticating proxy in front of the dashboard names in a header.

The header counts only if the connection comes from a listed address: anybody else could write it,
too. Homing has no login of its own: the proxy knows who the person is, and the operator's rules
say what the person may do. The proxy also knows when the person signs out, and Homing does not. So
a response that stays open ends after ten minutes, and the next request passes the proxy again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import IPv6Address

from homing.app.access import Caller
from homing.errors import Forbidden, NotAuthorized
from homing.languages.sentences import say
from homing.policy.people import PeopleOptions, is_name, read_groups, rule_of
from homing.policy.reach import read_address

NAMED_FOR_MS = 10 * 60_000  # how long the word of the proxy holds for one request


class People:
    """Finds the callers of requests that come through the proxy."""

    def __init__(self, options: PeopleOptions, now: Callable[[], int]) -> None:
        self._now = now
        self._user = options.user_header.lower().encode()
        self._groups = options.groups_header.lower().encode()
        self._networks, self._rules = options.networks, options.rules
        # Counts a changing call of a tenant; raises TooMany.
        self.on_change: Callable[[str], None] | None = None
        self.check_tenant: Callable[[str], None] | None = None
        # Called when a person whom the proxy names is refused, with the address and the reason.
        self.on_refused: Callable[[str, str], None] = lambda _source, _why: None

    def caller_of(self, headers: Mapping[bytes, bytes], source: str) -> Caller | None:
        """The person whom the proxy names; None if the request is not from the proxy.

        Raises Forbidden for a person whom no rule admits, and for a header that is not one name.
        """
        if not self._user or not self._is_proxy(source):
            return None
        name = headers.get(self._user)
        if not name:
            return None  # The proxy lets some paths through without a sign-in.
        person = _text(name)
        if not is_name(person):
            self.on_refused(source, "no name from the proxy")
            raise Forbidden(say("The proxy does not name one person."))
        groups: tuple[str, ...] = ()
        if self._groups:
            groups = read_groups(_text(headers.get(self._groups, b"")))
        rule = rule_of(self._rules, person, groups)
        if rule is None:
            self.on_refused(source, "a person without a rule")
            raise Forbidden(say("No rule of this installation admits {person}.", person=person))
        return Caller(
            person,
            rule.role,
            rule.tenant,
            address=source,
            person=person,
            on_change=self.on_change,
            check_tenant=self.check_tenant,
            lives=partial(self._must_be_recent, self._now()),
        )

    async def _must_be_recent(self, asked_at: int) -> None:
        if self._now() - asked_at >= NAMED_FOR_MS:
            raise NotAuthorized

    def _is_proxy(self, source: str) -> bool:
        found = read_address(source)
        if found is None:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in it for it in self._networks if it.version == found.version)


def _text(value: bytes) -> str:
    """The text of a header; empty if it is not UTF-8."""
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        return ""
