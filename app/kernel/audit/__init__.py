"""Who changed what: an append-only table, written in the transaction of the change itself."""
