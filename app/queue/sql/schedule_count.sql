-- How many schedules there are. Reads the whole index, which is small.
SELECT count(*) FROM holdfast.schedules
