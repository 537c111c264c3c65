"""The flow: publish, dispatch, attempt, settle; and probes, maintenance, replays and commands."""
