"""Worker processes of the store: ``worker`` is the mechanism, the two writers are its users."""
