"""Callers with their role and tenant, and the roles that may call each use case."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import Struct

from homing.errors import Forbidden, NotFound
from homing.languages.sentences import say
from homing.policy.admission import DEFAULT_TENANT
from homing.policy.audit import Who
from homing.policy.keys import Role
from homing.policy.sent_form import SentForm
from homing.ports.audit import acting, present_act

ADMINS = frozenset({Role.ADMIN})
PUBLISHERS = frozenset({Role.ADMIN, Role.PUBLISHER})
MANAGERS = frozenset({Role.ADMIN, Role.MANAGER})
METRICS = frozenset({Role.ADMIN, Role.METRICS})
READERS = frozenset({Role.ADMIN, Role.MANAGER, Role.VIEWER})

NO_TENANT = " "  # a name that no tenant can have,
OPERATORS = "*"  # and another one, under which the work for callers of all tenants counts

_S = TypeVar("_S")
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Caller(Struct, frozen=True):
    """The holder of a key; ``tenant`` is None for a caller of all tenants."""

    name: str
    role: Role
    tenant: str | None
    key_id: int | None = None  # None: the admin key of the settings, or no key
    address: str = ""  # of the connection
    person: str = ""  # as an authenticating proxy names the person
    chosen: str | None = None  # the tenant whose lists a caller of all tenants wants to see
    form: SentForm | None = None  # with which a person asks for a change
    # Counts a changing call of the tenant, and raises TooMany; None: no limit.
    on_change: Callable[[str], None] | None = None
    # Raises TenantMoved if the tenant is served by another installation; None: it is here.
    check_tenant: Callable[[str], None] | None = None
    # Raises NotAuthorized once the key, session or link has ended; None: it does not end.
    lives: Callable[[], Awaitable[object]] | None = None

    async def must_live(self) -> None:
        """Raises NotAuthorized if the caller's key, session or link has ended meanwhile.

        Whatever has waited asks this before it goes on.
        """
        if self.check_tenant is not None and self.tenant is not None:
            self.check_tenant(self.tenant)
        if self.lives is not None:
            await self.lives()

    @property
    def who(self) -> Who:
        """The caller as the audit log names it."""
        return Who(self.name, self.key_id, self.tenant, self.address, self.person)

    @property
    def by(self) -> str:
        """The caller as a tenant may see it: without the names of the operator's people."""
        return "an operator" if self.person and self.tenant is None else self.name

    def may(self, roles: frozenset[Role]) -> bool:
        """Whether the caller's role is one of these."""
        return self.role in roles

    def must_be(self, roles: frozenset[Role]) -> None:
        """Raises Forbidden if the caller's role is none of these."""
        if self.role not in roles:
            raise Forbidden(
                say("A key with the role {role} may not do this.", role=self.role.value)
            )

    def count_change(self) -> None:
        """Counts a changing call; raises TooMany. The operator's callers have no limit."""
        if self.tenant is not None and self.on_change is not None:
            self.on_change(self.tenant)

    def must_be_here(self) -> None:
        """Raises TenantMoved or TenantMoving if the data of the caller's tenant is not here."""
        if self.check_tenant is not None and self.tenant is not None:
            self.check_tenant(self.tenant)

    def must_write(self, tenant: str) -> None:
        """Raises Forbidden for a tenant other than the caller's own, whether it exists or not."""
        if not self.sees(tenant):
            raise Forbidden(
                say("This key may only write to the tenant {tenant}.", tenant=str(self.tenant))
            )

    @property
    def payer(self) -> str:
        """Whose share of time its requests use; empty: it has no key, and sees nobody's data."""
        return OPERATORS if self.tenant is None else self.tenant

    def sees(self, tenant: str) -> bool:
        """Whether the caller may see objects of this tenant."""
        return self.tenant is None or self.tenant == tenant

    def scope(self, tenant: str | None) -> str | None:
        """The tenant that a query is limited to; None: all tenants.

        To a caller of one tenant, every other tenant looks like one that does not exist.
        """
        if self.tenant is None:
            return self.chosen if tenant is None else tenant
        return self.tenant if tenant in {None, self.tenant} else NO_TENANT

    def scope_one(self, tenant: str | None) -> str:
        """Like ``scope``, but always one tenant: by default the caller's, else `default`."""
        return self.scope(tenant) or DEFAULT_TENANT

    def tenant_or_default(self, tenant: str | None) -> str:
        """The tenant of a new object: the given one, else the caller's, else `default`."""
        return tenant if tenant is not None else self.tenant or self.chosen or DEFAULT_TENANT


ANONYMOUS = Caller("", Role.VIEWER, "")  # the caller of operations that need no key


# Every use case by its qualified name, like ``Subscriptions.create``, with its roles.
USE_CASES: dict[str, frozenset[Role]] = {}
# The use cases that change something: each leaves an entry in the audit log with every change.
CHANGING: set[str] = set()


def use_case(
    roles: frozenset[Role], *, changes: bool = False, counted: bool = True, reads: bool = True
) -> Callable[
    [Callable[Concatenate[_S, Caller, _P], _R]], Callable[Concatenate[_S, Caller, _P], _R]
]:
    """Decorates a use case, which then raises Forbidden for callers with any other role.

    With ``changes``, the audit log names the caller and the use case with every change it makes.
    Without it, the store refuses to make a change. A changing call is counted, and raises TooMany
    if the tenant makes too many: each leaves entries in the audit log.

    What a reading use case found is given only if the caller's key, session or link still lives,
    which is asked after the read and before each page: so nothing that waits or stays open needs a
    check of its own. Without ``reads``, the result of a use case stands, as that of a change does.
    """

    def mark(
        method: Callable[Concatenate[_S, Caller, _P], _R],
    ) -> Callable[Concatenate[_S, Caller, _P], _R]:
        @wraps(method)
        def checked(self: _S, caller: Caller, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            caller.must_be(roles)
            caller.must_be_here()
            if not changes and not waits:
                return method(self, caller, *args, **kwargs)
            if not changes:
                reading = cast("Awaitable[Any]", method(self, caller, *args, **kwargs))
                reading = _read(caller, reading) if reads else reading
                return cast("_R", _told_where(caller, reading))
            if counted and present_act() is None:  # A use case may call another one.
                caller.count_change()
            changing = cast("Awaitable[Any]", method(self, caller, *args, **kwargs))
            return cast("_R", _told_where(caller, _act(caller, action, changing)))

        action, waits = action_of(method), iscoroutinefunction(method)
        USE_CASES[method.__qualname__] = roles
        if changes:
            CHANGING.add(method.__qualname__)
        return checked

    return mark


async def _told_where(caller: Caller, calling: Awaitable[Any]) -> Any:
    """What a call finds; if its tenant was moved while it ran, that is why it finds nothing."""
    try:
        return await calling
    except NotFound:
        caller.must_be_here()
        raise


async def _act(caller: Caller, action: str, changing: Awaitable[Any]) -> Any:
    with acting(caller.who, action, caller.form, caller.must_live):
        return await changing


async def _read(caller: Caller, reading: Awaitable[Any]) -> Any:
    found = await reading
    await caller.must_live()
    return _paged(caller, found) if isinstance(found, AsyncGenerator) else found


async def _paged(caller: Caller, pages: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
    async with aclosing(pages):
        async for page in pages:
            await caller.must_live()
            yield page
            del page  # Nothing of it is kept in memory while the next one is waited for.


def action_of(use_case: Callable[..., Any]) -> str:
    """The name of a use case in the audit log: ``subscriptions.create``."""
    noun, _, verb = use_case.__qualname__.partition(".")
    return f"{re.sub(r'(?<!^)(?=[A-Z])', '_', noun).lower()}.{verb}"


def roles_of(*use_cases: Callable[..., Any]) -> frozenset[Role]:
    """The roles that may call all of these use cases."""
    return frozenset.intersection(*(USE_CASES[one.__qualname__] for one in use_cases))
