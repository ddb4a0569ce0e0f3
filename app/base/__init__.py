"""Loops, caches, signals and outages: for every part of the service, whatever it does with them."""
