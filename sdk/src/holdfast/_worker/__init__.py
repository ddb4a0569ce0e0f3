"""Handlers, and the worker that runs them. docs/worker.md."""
