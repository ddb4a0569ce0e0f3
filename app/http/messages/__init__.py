"""The messages dialect's formats."""
