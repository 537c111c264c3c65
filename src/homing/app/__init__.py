"""The use cases: everything that a caller may do or see, decided once for every transport.

The API, the dashboard, the Workfront-compatible API and the outbox relay parse a request, call a
use case of ``App`` and show its result. A use case checks the caller's role and tenant, the fields,
the quotas and the defaults, and then calls the verbs of the engine or reads from the store.

- ``access``: callers, roles, and the decorator ``use_case``, which names the roles of a method.
- ``auth``, ``sessions``: which caller a key or a session of the dashboard belongs to.
- One class per noun: ``Publishing``, ``Events``, ``Subscriptions``, ``WorkfrontSubscriptions``,
  ``Endpoints``, ``Deliveries``, ``Replays``, ``Keys``, ``Figures``, ``Status``, ``Simulations``.
"""
