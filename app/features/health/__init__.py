"""Health, version, metrics."""
