"""The fleet of processes on one database: buckets, membership, notifications, catalog barrier."""
