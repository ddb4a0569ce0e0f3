"""Groups: jobs that are done one after the other."""
