"""Acks, nacks, fails and extends, and everything else that ends jobs."""
