"""Holdfast's tests. They talk to a real PostgreSQL and a real server process."""
