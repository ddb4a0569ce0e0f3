"""Users, passwords, tokens and tries, each by itself."""
