"""The operations of the API, one module per kind of object."""
