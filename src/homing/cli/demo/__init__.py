"""``homing demo``: the whole life of a URL in two minutes."""
