"""Users, their grants, and keys."""
