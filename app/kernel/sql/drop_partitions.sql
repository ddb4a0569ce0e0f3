-- Drop a table's partitions of days long ago.   $1 table  $2 more than so many days  $3 only those that are kept as files
-- One row: gone, how many there were; held, how many stay for want of files.
SELECT gone, held FROM holdfast.drop_day_partitions($1, $2, $3)
