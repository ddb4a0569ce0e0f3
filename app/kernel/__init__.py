"""The queue itself, on PostgreSQL. Knows nothing of HTTP."""
