"""How the process reaches PostgreSQL: pools, the embedded server, and the statements' texts."""
