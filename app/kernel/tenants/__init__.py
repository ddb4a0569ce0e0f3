"""Tenants of a topic, counted."""
