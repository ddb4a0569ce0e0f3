"""How the v0 dialect reads and writes."""
