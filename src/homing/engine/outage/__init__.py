"""Sender-outage detection: distinguishes failing receivers from a sender that is cut off."""
