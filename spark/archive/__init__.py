"""Days of tables in files: `archive` writes, verifies and marks them, and other pipelines read them."""
