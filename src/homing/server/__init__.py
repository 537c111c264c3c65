"""What ``homing serve`` is made of: its settings, its database and its running parts."""
