-- Delete a batch of a topic's archive, for good, the oldest first.
--   $1 topic  $2 topic id  $3 what finished from this time on  $4 and before this one  $5 most rows
-- Answers one row: how many. What another call deletes at this moment is left to it.
-- The bounds on the time keep the look-up by place to the days that are concerned.
-- Index: archive_finished.
WITH picked AS MATERIALIZED (
    SELECT a.tableoid AS day, a.ctid AS tid, a.finished_at FROM holdfast.archive a
    WHERE a.topic = $1 AND a.topic_id = $2::integer AND a.finished_at >= $3::timestamptz AND a.finished_at < $4::timestamptz
    ORDER BY a.finished_at, a.seq LIMIT $5::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.archive a USING picked p
    WHERE a.ctid = p.tid AND a.tableoid = p.day
      AND a.finished_at >= (SELECT min(finished_at) FROM picked) AND a.finished_at <= (SELECT max(finished_at) FROM picked)
    RETURNING 1
)
SELECT count(*) FROM gone
