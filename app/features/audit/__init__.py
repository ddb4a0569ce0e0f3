"""The audit trail, shown."""
