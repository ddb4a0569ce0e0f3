"""Topics: made, configured, paused, drained, deleted, shown."""
