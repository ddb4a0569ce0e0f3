"""The v0 dialect: topics, records and leased jobs."""
