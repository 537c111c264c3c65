"""A process as one of many: ownership of buckets, membership, notifications, catalog barrier."""
