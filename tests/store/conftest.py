"""What store tests share; the stores themselves are in ``stores.py``."""
