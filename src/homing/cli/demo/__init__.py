"""``homing demo``: all states of a URL in two minutes."""
