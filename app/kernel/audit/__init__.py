"""The audit trail: an append-only table, written in the transaction of each change."""
