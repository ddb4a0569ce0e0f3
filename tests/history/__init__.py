"""The oracle, tested."""
