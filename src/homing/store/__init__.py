"""All SQL: one schema and one set of operations on SQLite and PostgreSQL."""
