"""Log topics: read, watched, shortened."""
