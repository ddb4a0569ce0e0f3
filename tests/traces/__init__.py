"""Traces: what becomes a span, where it is sent, and that nothing is done while they are off."""
