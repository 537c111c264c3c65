"""The outside world: sockets, names, time."""
