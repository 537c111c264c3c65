"""Fixtures of the store tests; the stores themselves are in ``stores.py``."""
