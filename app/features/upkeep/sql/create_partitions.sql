-- Make a table's partitions of today and the next days.   $1 table  $2 days   Answers how many were missing.
SELECT holdfast.create_day_partitions($1, $2)
