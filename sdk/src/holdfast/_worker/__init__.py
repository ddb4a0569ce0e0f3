"""Handlers, and the worker that runs them. docs/sdk.md."""
