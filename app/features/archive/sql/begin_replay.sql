-- Begin to replay a topic, or join a replay of the same that has not come to its end.
--   $1 topic  $2 topic id  $3 from this time on, or NULL for the whole window  $4 the window in ms, 0 for no end
--   $5 for how long one without progress can be joined, in ms
-- Answers one row: from_time, until_time, the place it has come to (after_time, after_seq), enqueued and skipped so far, and
-- whether it was joined. No row: $3 lies before the window, or after now.
-- What finishes later than until_time is not replayed: of what a replay enqueues, nothing comes back in the same one.
-- A caller that waited for the one who began took its own time before: joined all the same.
-- Index: primary key of replays.
WITH clock AS MATERIALIZED (
    SELECT c.at, CASE WHEN $4::bigint = 0 THEN 'epoch' ELSE c.at - $4::bigint * interval '1 ms' END AS earliest
    FROM (SELECT clock_timestamp() AS at) c
)
INSERT INTO holdfast.replays AS r (topic, topic_id, asked_from, from_time, until_time, after_time, after_seq, updated_at)
SELECT $1, $2::integer, coalesce($3::timestamptz, '-infinity'), w.from_time, w.at, w.from_time, 0, w.at
FROM (SELECT c.at, c.earliest, coalesce($3::timestamptz, c.earliest) AS from_time FROM clock c) w
WHERE w.from_time >= w.earliest AND w.from_time <= w.at
ON CONFLICT (topic, topic_id, asked_from) DO UPDATE
SET (from_time, until_time, after_time, after_seq, enqueued, skipped, done, updated_at) = (
    SELECT n.from_time, n.until_time, n.after_time, n.after_seq, n.enqueued, n.skipped, false, n.updated_at
    FROM (VALUES
        (r.from_time, r.until_time, r.after_time, r.after_seq, r.enqueued, r.skipped,
         greatest(excluded.updated_at, r.updated_at + interval '1 microsecond'), true),
        (excluded.from_time, excluded.until_time, excluded.after_time, excluded.after_seq, 0, 0,
         excluded.updated_at, false)
    ) AS n(from_time, until_time, after_time, after_seq, enqueued, skipped, updated_at, old)
    WHERE n.old = (NOT r.done AND r.updated_at >= excluded.updated_at - $5::bigint * interval '1 ms')
)
RETURNING r.from_time, r.until_time, r.after_time, r.after_seq, r.enqueued, r.skipped, r.until_time < r.updated_at AS joined
