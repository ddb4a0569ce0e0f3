"""Counts of jobs, and the troubles of queues."""
