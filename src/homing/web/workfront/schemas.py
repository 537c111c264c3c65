"""Requests and responses of the Workfront-compatible API, with Adobe's names and spellings."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from homing.web.problems import FieldReason, Problem


class WorkfrontSubscriptionIn(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A subscription to one kind of event of one kind of object."""

    obj_code: str
    event_type: str
    url: str
    auth_token: str | None = None
    obj_id: str | None = None
    filters: list[dict[str, Any]] | None = None
    filter_connector: str | None = None
    base64_encoding: bool | str | None = None


class Created(Struct, frozen=True, omit_defaults=True):
    """A new or changed subscription; warnings only where Adobe would do something else."""

    id: str
    version: str
    warnings: list[FieldReason] = []


class UrlRecord(Struct, frozen=True):
    """A URL with its health, shared by all subscriptions to it."""

    url: str
    date_created: str
    successes: int
    failures: int
    disabled_at: str | None
    frozen_at: str | None


class SubscriptionOut(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subscription, with its dates in both spellings that clients use."""

    id: str
    date_created: str
    date_modified: str
    date_created_camel: str = field(name="dateCreated")
    date_modified_camel: str = field(name="dateModified")
    version: str
    date_version_updated: str | None = field(name="dateVersionUpdated")
    customer_id: str = field(name="customerId")
    obj_id: str | None = field(name="objId")
    obj_code: str = field(name="objCode")
    url: str
    event_type: str = field(name="eventType")
    auth_token: str | None = field(name="authToken")
    base64_encoding: bool = field(name="base64Encoding")
    filters: list[dict[str, Any]]
    filter_connector: str = field(name="filterConnector")
    subscription_url: UrlRecord
    warnings: list[FieldReason] = []  # only where Adobe would do something else


class Meta(Struct, frozen=True):
    """The position of a page in the list."""

    page: int
    page_count: int
    limit: int
    total_count: int


class SubscriptionList(Struct, frozen=True):
    """A page, oldest first."""

    subscriptions: list[SubscriptionOut]
    meta: Meta


class OldSubscription(Struct, frozen=True):
    """A subscription as the deprecated list shows it."""

    id: str
    customer_id: str
    obj_id: str | None
    obj_code: str
    url: str
    event_type: str
    auth_token: str | None


class VersionIn(Struct, frozen=True, forbid_unknown_fields=True):
    """The new version of a subscription."""

    version: str


class VersionsIn(Struct, frozen=True, forbid_unknown_fields=True):
    """The new version of some subscriptions, or of all."""

    version: str
    ids: list[str] | UnsetType = field(name="subscriptionIds", default=UNSET)
    everything: bool | UnsetType = field(name="allCustomerSubscriptions", default=UNSET)


class VersionsOut(Struct, frozen=True, omit_defaults=True):
    """The subscriptions that have this version now, and warnings by id, where there are any."""

    subscription_ids: list[str]
    version: str
    warnings: dict[str, list[FieldReason]] = {}


class UrlIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A URL to enable."""

    url: str


class Fault(Struct, frozen=True):
    """An error in the format that Workfront's clients read."""

    kind: str = field(name="class")
    message: str


class WorkfrontProblem(Problem, frozen=True):
    """A problem document that Workfront's clients can read too."""

    error: Fault
