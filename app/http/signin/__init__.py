"""Sign-in: API keys and users in the database, and each process's copy of them. docs/semantics.md, section 21."""
