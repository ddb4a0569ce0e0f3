"""Completed jobs that are kept, and replays of them."""
