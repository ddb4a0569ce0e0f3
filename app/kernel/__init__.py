"""The queue itself, on PostgreSQL; knows nothing of HTTP."""
