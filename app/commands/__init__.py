"""What an operator does at the command line, beside running the service."""
