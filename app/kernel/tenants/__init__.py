"""Counts of a topic's tenants."""
