"""Sender-outage detection: tells failing receivers from a sender that is cut off."""
