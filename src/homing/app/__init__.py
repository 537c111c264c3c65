"""The use cases: everything that callers can do or read, the same for every transport.

The API, the dashboard, the Workfront-compatible API and the outbox relay parse a request, call a
use case of ``App`` and show its result. A use case checks the caller's role and tenant, the fields
and the quotas, applies defaults, and then calls the engine or reads from the store.

- ``access``: callers, roles, and the decorator ``use_case``, which sets the roles of a method.
- ``auth``, ``sessions``: find the caller of a key or of a dashboard session.
- One class per kind of object: ``Publishing``, ``Events``, ``Subscriptions``,
  ``WorkfrontSubscriptions``, ``Endpoints``, ``Deliveries``, ``Replays``, ``Search``,
  ``NoticeTargets``, ``Keys``, ``Figures``, ``Status``, ``Simulations``.
"""
