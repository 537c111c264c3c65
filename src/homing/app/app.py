"""``App``: all use cases of one process. Every transport gets this object."""

from __future__ import annotations

from homing.app.audit import Audit, AuditLog
from homing.app.auth import Authenticator
from homing.app.built_in_receiver import BuiltInReceiver
from homing.app.causes import Causes
from homing.app.deliveries import Deliveries
from homing.app.endpoints import Endpoints
from homing.app.erasures import Erasures
from homing.app.event_types import EventTypes
from homing.app.events import Events
from homing.app.exports import Exports
from homing.app.figures import Figures
from homing.app.keys import Keys
from homing.app.lost_commits import LostCommits
from homing.app.notice_targets import NoticeTargets
from homing.app.options import AppOptions
from homing.app.people import People
from homing.app.portal import PortalLinks, PortalLooks
from homing.app.publishing import Publishing
from homing.app.pull import Pull, PullParts
from homing.app.quotas import Quotas
from homing.app.replays import Replays
from homing.app.search import Search
from homing.app.sessions import Sessions
from homing.app.signing_keys import SigningKeys
from homing.app.simulation import Simulations
from homing.app.status import Status
from homing.app.subscriptions import Subscriptions
from homing.app.tenants import Tenants
from homing.app.workfront import WorkfrontSubscriptions
from homing.engine.engine import Engine
from homing.engine.keys import ApiKeys
from homing.engine.portal import Portal
from homing.ports import ViewStore


class App:
    """The use cases on an engine and its store."""

    def __init__(
        self,
        engine: Engine,
        views: ViewStore,
        api_keys: ApiKeys,
        options: AppOptions,
        audit: AuditLog,
        pull: PullParts,
        portal: Portal,
    ) -> None:
        self.now, self.policies = options.now, options.policies
        quotas = Quotas(views, options.now, default=options.quota, tenants=options.tenant_quotas)
        if engine.fleet is not None:
            engine.fleet.share_quotas(quotas.take_spent, quotas.spent_elsewhere)
        self.audit = Audit(audit, options.now)
        self.authenticator = Authenticator(
            options.admin_key, api_keys, options.now, options.metrics_networks
        )
        self.sessions = Sessions(self.authenticator, api_keys, options.admin_key, options.now)
        self.people = People(options.people, options.now)
        self.publishing = Publishing(engine, quotas)
        self.events = Events(views, options.now)
        self.event_types = EventTypes(engine)
        self.work = engine.work
        self.subscriptions = Subscriptions(engine, views, quotas, options)
        self.signing_keys = SigningKeys(engine)
        self.workfront = WorkfrontSubscriptions(engine, views, self.subscriptions)
        self.endpoints = Endpoints(engine, views, options.now)
        self.deliveries = Deliveries(engine, views, quotas, options.now)
        self.exports = Exports(
            deliveries=self.deliveries,
            endpoints=self.endpoints,
            events=self.events,
            subscriptions=self.subscriptions,
            now=options.now,
        )
        self.causes = Causes(engine, views, options.now)
        self.pull = Pull(engine, views, pull, self.audit.counted, now=options.now)
        self.replays = Replays(engine, views, quotas, options.now)
        self.search = Search(engine, views)
        self.erasures = Erasures(engine, api_keys, portal)
        self.lost_commits = LostCommits(engine)
        self.keys = Keys(api_keys)
        self.portal_links = PortalLinks(portal, options)
        self.portal_looks = PortalLooks(portal, options.now)
        self.notice_targets = NoticeTargets(engine, options, self.audit.counted)
        self.figures = Figures(views, options.now)
        self.status = Status(engine, views, options)
        self.authenticator.on_change = self.people.on_change = quotas.count_change
        self.authenticator.check_tenant = self.people.check_tenant = engine.check_tenant
        self.portal_links.check_tenant = engine.check_tenant
        self.portal_links.on_change = quotas.count_change
        self.authenticator.on_anonymous = self.audit.counted.anonymous
        self.people.on_refused = self.audit.counted.anonymous
        self.sessions.on_refused = self.audit.counted.refused
        self.built_in_receiver = BuiltInReceiver(
            views, self.subscriptions, options.hash_keys, available=options.can_receive
        )
        self.key_file = options.key_file
        self.tenants = Tenants(views)
        self.simulations = Simulations(options.simulate, engine, views, options.now)
