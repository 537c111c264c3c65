"""The options of the use cases, set at start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import structlog
from msgspec import Struct

from homing.app.access import ADMINS, Caller
from homing.app.simulation import Simulate
from homing.languages.sentences import say
from homing.model import Target, Verification
from homing.policy.built_in_receiver import HOST
from homing.policy.networks import Network
from homing.policy.people import PeopleOptions
from homing.policy.quota import Quota
from homing.policy.reach import REFUSED

_log = structlog.get_logger("homing.app")


class SettingShown(Struct, frozen=True):
    """A setting with its value as text, never a secret, and its source."""

    name: str
    value: str
    source: str
    sentence: str


class AppOptions(Struct, frozen=True):
    """The admin key, the clock, the policies, the quotas and the settings to show."""

    admin_key: str
    hash_keys: Sequence[bytes]  # they sign the URLs of built-in receivers
    now: Callable[[], int]  # Unix milliseconds, by the engine's clock
    policies: frozenset[str]  # names that a subscription may use
    refuses: Callable[[Target], str]  # why sending to this target is forbidden, or ""
    egress: tuple[str, ...] = ()  # the addresses that requests come from, as the operator says
    quota: Quota = Quota()  # of a tenant without its own quota
    tenant_quotas: Mapping[str, Quota] = MappingProxyType({})
    metrics_networks: tuple[Network, ...] = ()  # where metrics are read without a key
    settings: tuple[SettingShown, ...] = ()  # for the system page
    mail_problem: str = say("must not be email: this installation sends none")  # empty: it does
    is_draining: Callable[[], bool] = bool  # a stop has begun, and requests are still served
    people: PeopleOptions = PeopleOptions()
    has_receiver: bool = False  # the sender reaches the built-in receiver of this server
    key_file: str = ""  # with the admin key; empty: it is a setting
    simulate: Simulate | None = None  # None: this process has no simulator
    verification: Verification = Verification.NONE  # of every new URL, at least
    origin: str = ""  # of this sender in the handshake of CloudEvents; empty: it has no name
    public_url: str = ""  # where people reach this installation; empty: the URL of each request

    @property
    def can_receive(self) -> bool:
        """Whether tenants may use the built-in receiver, which answers no challenges."""
        target = Target("http", HOST, 80, "/", HOST)
        return (
            self.has_receiver
            and self.verification is Verification.NONE
            and not self.refuses(target)
        )

    def refusal(self, target: Target, *, caller: Caller, tenant: str, url: str) -> str:
        """Why a caller may not send to this target, or ""; the log has the rule and ``url``.

        The rule and the setting are for operators: a tenant must not map their network.
        """
        why = self.refuses(target)
        if not why:
            return ""
        _log.info("URL refused", url=url, tenant=tenant, by=caller.name, why=str(why))
        return say("is not allowed as a target: {why}", why=why) if caller.may(ADMINS) else REFUSED

    def __repr__(self) -> str:
        return "AppOptions(****)"
