-- A time of the database's.   $1 how long ago, in ms
SELECT clock_timestamp() - $1::bigint * interval '1 ms'
