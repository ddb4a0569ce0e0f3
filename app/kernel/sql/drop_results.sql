-- Drop the days of results that nobody is shown any more.   $1 only those that are kept as files
-- One row: gone, how many there were; held, how many stay for want of files.
SELECT gone, held FROM holdfast.drop_result_partitions($1)
