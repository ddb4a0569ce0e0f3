"""The core: one verb over a connection, one statement each. Knows PostgreSQL; not HTTP, not Redis, not settings."""
