"""Handlers, and the worker that runs them. docs/adr/0052."""
