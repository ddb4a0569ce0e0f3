"""Bars: ratios of rates taken in one run. See `python -m tools.bench --help`."""
