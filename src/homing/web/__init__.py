"""HTTP: the API, the dashboard, the Workfront-compatible API, metrics."""
