"""Utilities for every part of the service: loops, caches, signals, times, logging, the database."""
