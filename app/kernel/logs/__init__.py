"""Log topics: records that are appended, and read in order."""
