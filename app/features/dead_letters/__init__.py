"""Failed jobs: shown by what failed, requeued, purged."""
