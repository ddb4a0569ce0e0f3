"""The HTTP layer: access checks, parsing of requests, dialects of responses."""
