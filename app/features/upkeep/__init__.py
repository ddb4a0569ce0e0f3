"""Housekeeping: one bounded sweep each. SKIP LOCKED makes any number of them at once correct; there is no leader."""
