"""The error tree: one root, and a class's docstring is its message.

HomingError
├── BadRequest                400  the request cannot be read
├── NotAuthorized             401  no key, or a wrong one
├── Forbidden                 403  the key may not do this
├── NotFound                  404
├── TooSlow                   408  the body did not arrive in time
├── Conflict                  409
│   ├── EventConflict              another event has this id
│   ├── StillPending               a pending delivery cannot be replayed
│   ├── AlreadyFinished            a finished delivery cannot be cancelled
│   ├── FormOutdated               a form was made from an older state
│   ├── FormSent                   a form that is used once was sent before
│   ├── DuplicateSubscription      a second one with equal fields (Workfront-compatible API)
│   └── SubscriptionGone           a deleted subscription cannot be sent to
├── Gone                      410  past retention
│   ├── BehindRetention            events after a cursor are past retention
│   └── PortalClosed               a link or a session of the customer portal that has ended
├── TooLarge                  413
├── UrlTooLong                414
├── Invalid                   422  the request can be read, and a field of it is wrong
│   └── UnstorableText             a database cannot hold a text
├── TooMany                   429  slow down: a quota, or too many wrong keys
├── TooManyHeaders            431
├── HeaderTooLarge            431
├── HeadersTooLarge           431
├── Unavailable               503
│   ├── StoreUnavailable           the store cannot commit now
│   ├── Busy                       too many bytes of requests are held
│   ├── TenantMoving               the tenant is being moved to another installation
│   ├── TenantMoved                the tenant is served by another installation
│   └── ShuttingDown
├── BadSetting                     a setting stops the start
│   ├── BadScenario                a scenario cannot be simulated
│   └── CannotDecrypt              a secret is encrypted with a key that this process does not have
├── DataInUse                      another process holds the data directory
└── Stale                          a value that was read has changed; the engine reads it again
    ├── StaleCatalog
    ├── Fenced
    ├── StaleEndpoints
    └── LostLeases
"""

from __future__ import annotations

from typing import ClassVar


class FieldProblem(tuple[str, str]):
    """A wrong field and the reason: ``("events[3].type", "must be 1 to 256 …")``."""

    __slots__ = ()

    def __new__(cls, field: str, reason: str) -> FieldProblem:
        return super().__new__(cls, (field, reason))

    def __getnewargs__(self) -> tuple[str, str]:
        """The arguments that make the same value in another process."""
        return self[0], self[1]

    @property
    def field(self) -> str:
        return self[0]

    @property
    def reason(self) -> str:
        return self[1]


class HomingError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(self, detail: str = "", *, problems: tuple[FieldProblem, ...] = ()) -> None:
        self.title = (type(self).__doc__ or "").strip()
        self.detail = detail
        self.problems = problems
        super().__init__(f"{self.title} {detail}".strip())

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps every attribute: errors come from the worker processes of the store, too."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[HomingError], args: tuple[object, ...], facts: dict[str, object]
) -> object:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class BadRequest(HomingError):
    """The request cannot be read."""

    code = "bad_request"
    http_status = 400


class NotAuthorized(HomingError):
    """This needs a valid key."""

    code = "not_authorized"
    http_status = 401


class Forbidden(HomingError):
    """This key may not do this."""

    code = "forbidden"
    http_status = 403


class NotFound(HomingError):
    """There is nothing with this id."""

    code = "not_found"
    http_status = 404


class TooSlow(HomingError):
    """The request did not arrive in time."""

    code = "too_slow"
    http_status = 408


class Conflict(HomingError):
    """The request conflicts with the present state."""

    code = "conflict"
    http_status = 409


class EventConflict(Conflict):
    """Another event already has this id."""

    code = "event_conflict"


class FormOutdated(Conflict):
    """Something has changed since this page was opened, so nothing was done."""

    code = "form_outdated"


class FormSent(Conflict):
    """This form was sent before, and was done once."""

    code = "form_sent"


class StillPending(Conflict):
    """The delivery is still pending."""

    code = "still_pending"


class AlreadyFinished(Conflict):
    """The delivery is already finished."""

    code = "already_finished"


class DuplicateSubscription(Conflict):
    """There is already a subscription with all of these fields."""

    code = "duplicate_subscription"


class SubscriptionGone(Conflict):
    """The subscription of this delivery no longer exists."""

    code = "subscription_gone"


class Gone(HomingError):
    """The data of this event is past retention."""

    code = "gone"
    http_status = 410


class BehindRetention(Gone):
    """Events after this cursor are past retention."""

    code = "behind_retention"

    def __init__(self, oldest: int) -> None:
        super().__init__()
        self.oldest = oldest  # the position before the oldest event that can be read


class PortalClosed(Gone):
    """This access to the customer portal no longer works."""

    code = "portal_closed"

    def __init__(self, detail: str = "", *, tenant: str = "") -> None:
        super().__init__(detail)
        self.tenant = tenant  # whose portal it was; empty: unknown


class TooLarge(HomingError):
    """The request is too large."""

    code = "too_large"
    http_status = 413


class UrlTooLong(HomingError):
    """The URL of the request is too long."""

    code = "url_too_long"
    http_status = 414


class Invalid(HomingError):
    """A field of the request is wrong."""

    code = "invalid"
    http_status = 422


class NotVerified(Invalid):
    """The receiver has not proved that it owns the URL."""

    code = "not_verified"


class UnstorableText(Invalid):
    """The database cannot hold a text."""

    code = "unstorable_text"


class TooMany(HomingError):
    """Too many requests at a time; slow down."""

    code = "too_many"
    http_status = 429

    def __init__(
        self, detail: str = "", *, after_ms: int = 1_000, problems: tuple[FieldProblem, ...] = ()
    ) -> None:
        super().__init__(detail, problems=problems)
        self.after_ms = after_ms  # when it may be tried again


class TooManyHeaders(HomingError):
    """The request has too many headers."""

    code = "too_many_headers"
    http_status = 431


class HeaderTooLarge(HomingError):
    """A header of the request is too large."""

    code = "header_too_large"
    http_status = 431


class HeadersTooLarge(HomingError):
    """The headers of the request are too large."""

    code = "headers_too_large"
    http_status = 431


class Unavailable(HomingError):
    """The request cannot be served right now; try again shortly."""

    code = "unavailable"
    http_status = 503


class Busy(Unavailable):
    """The server is reading too many large requests; try again shortly."""

    code = "busy"


class StoreUnavailable(Unavailable):
    """The store cannot commit right now."""

    code = "store_unavailable"


class DatabaseBehind(StoreUnavailable):
    """The database is older than what this process has seen: commits were lost in a failover."""

    code = "database_behind"

    def __init__(self, kind: str, *, seen: int, found: int | None) -> None:
        super().__init__("Publish again with the same ids: events that exist are not repeated.")
        self.kind = kind  # of batches: publish or settle; or catalog or leases
        self.seen = seen  # the number of the last batch that this process knows to be committed
        self.found = found  # the number of the last batch that is there; None: unknown


class CommitsLost(Unavailable):
    """Commits were lost in a failover of the database, and no operator has confirmed it yet."""

    code = "commits_lost"


class TenantMoving(Unavailable):
    """The tenant is being moved to another installation; try again shortly."""

    code = "tenant_moving"


class TenantMoved(Unavailable):
    """The tenant was moved to another installation."""

    code = "tenant_moved"


class ShuttingDown(Unavailable):
    """The server is shutting down."""

    code = "shutting_down"


class BadSetting(HomingError):
    """A setting is wrong."""

    code = "bad_setting"


class UnknownPolicy(BadSetting):
    """A subscription uses a policy whose numbers are not known."""

    code = "unknown_policy"


class BadScenario(BadSetting):
    """The scenario is wrong."""

    code = "bad_scenario"


class CannotDecrypt(BadSetting):
    """A secret in the store cannot be decrypted."""

    code = "cannot_decrypt"


class DataInUse(HomingError):
    """Another process uses this data."""

    code = "data_in_use"


class Stale(HomingError):
    """A value has changed since it was read."""

    code = "stale"


class StaleCatalog(Stale):
    """Subscriptions have changed since they were read."""

    code = "stale_catalog"


class Fenced(Stale):
    """This process was no longer waited for: it reads the catalog before it writes again."""

    code = "fenced"


class StaleEndpoints(Stale):
    """Endpoints have changed since they were read."""

    code = "stale_endpoints"

    def __init__(self, endpoint_ids: frozenset[int]) -> None:
        super().__init__()
        self.endpoint_ids = endpoint_ids


class LostLeases(Stale):
    """Another process owns these buckets now."""

    code = "lost_leases"

    def __init__(self, buckets: frozenset[int]) -> None:
        super().__init__()
        self.buckets = buckets
