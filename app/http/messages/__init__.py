"""How the messages dialect reads and writes."""
