-- What time it is, by the database's clock.
SELECT clock_timestamp()
