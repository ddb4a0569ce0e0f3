"""The v0 dialect, from outside: HTTP in, HTTP out."""
