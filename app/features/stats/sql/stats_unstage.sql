-- Forget what a run of Spark has staged and not merged: rows older than $1, an interval, $2 at most.
-- Answers how many.   Index: none; the table is empty but for runs that are under way, and those that died.
WITH old AS MATERIALIZED (
    SELECT s.ctid AS tid FROM holdfast.topic_stats_staged s
    WHERE s.staged_at < now() - $1::interval LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.topic_stats_staged s USING old o WHERE s.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone
