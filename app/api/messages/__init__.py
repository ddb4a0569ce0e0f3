"""The messages dialect: /api/…, the same jobs as v0's with other names. docs/messages.md."""
