"""The door that speaks Workfront: its event subscription API, on our subscriptions."""
