-- How many rows the archive has of days more than $1 days ago, which go as a whole.   $2 most rows to count
--   $3 only days that are kept as files
SELECT count(*) FROM (
    SELECT 1 FROM holdfast.archive a
    WHERE a.finished_at < (date_trunc('day', now() AT TIME ZONE 'UTC') - $1::integer * interval '1 day') AT TIME ZONE 'UTC'
      AND (NOT $3::boolean OR (a.finished_at AT TIME ZONE 'UTC')::date IN (
          SELECT d.day FROM holdfast.archived_days d WHERE d.of_table = 'archive'))
    LIMIT $2::integer
) one
