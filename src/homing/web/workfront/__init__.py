"""The Workfront-compatible API: Adobe's event subscription API, on Homing's subscriptions."""
