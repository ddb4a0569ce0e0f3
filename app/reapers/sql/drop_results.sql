-- Drop the days of results that nobody is shown any more.   Answers how many there were.
SELECT holdfast.drop_result_partitions()
