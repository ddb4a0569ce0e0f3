"""Events for users: what became of their jobs."""
