"""The v0 dialect's formats."""
