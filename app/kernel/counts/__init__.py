"""How many jobs there are, and in which states."""
