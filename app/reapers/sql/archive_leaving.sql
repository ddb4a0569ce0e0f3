-- How many rows the archive has of days more than $1 days ago, which go as a whole.   $2 most rows to count
SELECT count(*) FROM (
    SELECT 1 FROM holdfast.archive a
    WHERE a.finished_at < (date_trunc('day', now() AT TIME ZONE 'UTC') - $1::integer * interval '1 day') AT TIME ZONE 'UTC'
    LIMIT $2::integer
) one
