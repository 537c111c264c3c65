"""The version of the client, which is also the version of the server."""

__version__ = "0.1.0"
