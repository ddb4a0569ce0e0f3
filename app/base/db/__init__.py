"""Access to PostgreSQL: connections, pools, the embedded server, statements, the schema's version."""
