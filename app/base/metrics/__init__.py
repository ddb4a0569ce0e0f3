"""What the service counts of itself. docs/metrics.md has every metric.

The hot path adds to plain numbers (numbers.py); a scrape brings several processes' numbers together (slots.py) and
writes them for Prometheus (exposition.py). Imports nothing of the rest, so that every layer can count.
"""
