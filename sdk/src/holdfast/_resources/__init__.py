"""The service's calls, by subject."""
