"""The flow: publish, dispatch, attempt, settle, sweep."""
