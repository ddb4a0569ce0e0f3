"""The plans of schedules' statements: what is due is found from the start of an index, however many schedules there are."""
