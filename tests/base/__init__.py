"""Tests of what knows nothing of queues."""
