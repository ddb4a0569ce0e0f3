"""Rows that SQL users insert, made into jobs."""
