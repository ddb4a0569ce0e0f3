"""Log topics: records appended and read in order."""
