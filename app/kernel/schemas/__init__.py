"""Schemas, and checks of payloads against them."""
