"""The stream of a user's events."""
