"""A run of hours with few faults: what grows? The traffic and the rules are those of tools/chaos."""
