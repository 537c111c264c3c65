"""The flow: publish, dispatch, attempt, settle, and what stands beside it."""
