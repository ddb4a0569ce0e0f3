"""What lives in the process and makes the core fast: group commit, claim cohorts, waiters, streams, counters.

It calls the core and holds no truth: a process may be killed at any moment, and nothing acknowledged is lost.
"""
