"""What the ledger tells: jobs' histories and their faults, kinds of errors, counts by minute, demand and waiting."""
