"""Tells others over HTTP of jobs that have ended. docs/webhooks.md, docs/adr/0041."""
