"""Analyses of the ledger: job histories and faults, kinds of errors, counts by minute, demand and waiting."""
