-- How many days that are over have no files yet.   One row each: of_table, days; 0 too.
SELECT d.of_table, count(*) FILTER (WHERE d.over AND NOT d.archived) AS days
FROM holdfast.day_partitions d GROUP BY d.of_table
