-- Drop a table's partitions of days long ago.   $1 table  $2 more than so many days   Answers how many there were.
SELECT holdfast.drop_day_partitions($1, $2)
