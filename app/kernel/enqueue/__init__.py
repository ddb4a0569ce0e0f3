"""How jobs get in."""
