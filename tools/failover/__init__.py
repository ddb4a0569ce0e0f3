"""Primaries that are lost, as docs/operations/failover.md has it: beside the traffic of tools/chaos, whose history is
checked by the same rules."""
