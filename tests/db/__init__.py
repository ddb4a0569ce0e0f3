"""Tests of how the process reaches PostgreSQL."""
