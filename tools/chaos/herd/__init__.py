"""Two hundred clients of the SDK beside a database that goes away: all come back at once, and to what is left of their
connections."""
