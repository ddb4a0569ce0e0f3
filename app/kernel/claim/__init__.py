"""How jobs are claimed."""
