"""Enqueues of jobs."""
