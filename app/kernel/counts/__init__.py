"""Counts of jobs, and what is wrong with a queue."""
