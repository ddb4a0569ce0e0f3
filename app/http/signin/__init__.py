"""Sign-in: the keys that are kept in the database, and what a process knows of them. docs/semantics.md, section 21."""
