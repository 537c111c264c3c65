"""Homing brings every event to every matching subscriber's URL, and never gives up early."""

__version__ = "0.1.0"
