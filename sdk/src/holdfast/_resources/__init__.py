"""The verbs of the service, by what they are about."""
