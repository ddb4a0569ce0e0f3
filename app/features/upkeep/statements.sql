-- name: beat
-- Write the heartbeat of a run. Index: primary key.
--   $1  sweep
--   $2  run
--   $3  moved so far
-- One row: true. No row: another process has taken the run over.
UPDATE holdfast.sweeps SET heartbeat_at = clock_timestamp(), moved = $3
WHERE name = $1 AND run = $2 AND finished_at IS NULL RETURNING true

-- name: begin_run
-- Begin a run of a sweep, unless a live process has one in progress or the last one is too recent. An abandoned run is
-- continued: it keeps its start and its count. Index: primary key.
--   $1  sweep
--   $2  id of the new run
--   $3  interval since the end of the last run, unless that failed
--   $4  interval: a process without a heartbeat for this long counts as dead
--   $5  scheduled time of this run, or NULL; it must not be done yet
--   $6  schedule of $5, which must still be in effect
-- One row: moved so far. No row: the run can't begin now.
INSERT INTO holdfast.sweeps AS s (name, run, started_at, heartbeat_at)
VALUES ($1, $2, clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET run = excluded.run, heartbeat_at = excluded.heartbeat_at, finished_at = NULL, error = NULL,
    started_at = CASE WHEN s.run IS NULL OR s.finished_at IS NOT NULL THEN excluded.started_at ELSE s.started_at END,
    moved = CASE WHEN s.finished_at IS NULL THEN s.moved ELSE 0 END,
    due_after = coalesce($5::timestamptz, s.due_after)
WHERE (s.run IS NULL OR s.error IS NOT NULL OR s.finished_at <= now() - $3::interval
       OR (s.finished_at IS NULL AND s.heartbeat_at < now() - $4::interval)
       OR s.heartbeat_at > now() + interval '1 minute')  -- the clock was set back
  AND ($5::timestamptz IS NULL OR (s.due_after < $5 AND s.schedule IS NOT DISTINCT FROM $6::text))
RETURNING s.moved

-- name: create_partitions
-- Create a table's partitions of today and the next days.   $1 table  $2 days   Returns how many were missing.
SELECT holdfast.create_day_partitions($1, $2)

-- name: earlier_runs
-- The runs of a sweep that moved something or failed, newest first.   $1 sweep  $2 most rows
-- Index: primary key, from its end.
SELECT r.name, r.run, r.started_at, r.finished_at, r.moved, r.error, false AS running
FROM holdfast.sweep_runs r WHERE r.name = $1 ORDER BY r.finished_at DESC, r.run DESC LIMIT $2

-- name: end_run
-- End a run, and store it if it has moved something or failed. Index: primary keys.
--   $1  sweep
--   $2  run
--   $3  moved
--   $4  error, NULL for success
--   $5  number of stored runs per sweep
-- One row: the end time. No row: another process has taken the run over.
WITH ended AS (
    UPDATE holdfast.sweeps SET finished_at = clock_timestamp(), heartbeat_at = clock_timestamp(), moved = $3, error = $4
    WHERE name = $1 AND run = $2 AND finished_at IS NULL
    RETURNING name, run, started_at, finished_at, moved, error
), kept AS (
    INSERT INTO holdfast.sweep_runs (name, run, started_at, finished_at, moved, error)
    SELECT e.name, e.run, e.started_at, e.finished_at, e.moved, e.error FROM ended e
    WHERE e.moved > 0 OR e.error IS NOT NULL
    RETURNING name
), gone AS (
    DELETE FROM holdfast.sweep_runs r USING (
        SELECT o.finished_at, o.run FROM holdfast.sweep_runs o
        WHERE o.name = $1 ORDER BY o.finished_at DESC, o.run DESC OFFSET $5::integer - 1
    ) AS old
    WHERE r.name = $1 AND r.finished_at = old.finished_at AND r.run = old.run AND EXISTS (SELECT FROM kept)
)
SELECT e.finished_at FROM ended e

-- name: events_kept
-- For how many days before today the ledger is kept: the longest of all topics' settings. NULL: for ever.
--   $1  days if there are no topics
SELECT CASE WHEN count(*) = 0 THEN $1::integer
            WHEN min(event_ttl_ms) > 0 THEN ceil(max(event_ttl_ms) / 86400000.0)::integer END
FROM holdfast.topics

-- name: expiring
-- Topics that have jobs with a time to live.   $1 only names after this one  $2 most topics
-- One row per topic, by name: its name, and whether the earliest time has passed. Index: jobs_expiring, one entry per
-- topic.
WITH RECURSIVE first AS (
    SELECT f.topic, f.expires_at, 1 AS n FROM (
        SELECT j.topic, j.expires_at FROM holdfast.jobs j
        WHERE j.topic > $1 AND j.expires_at IS NOT NULL AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.topic, j.expires_at LIMIT 1
    ) f
    UNION ALL
    SELECT f.topic, f.expires_at, p.n + 1 FROM first p CROSS JOIN LATERAL (
        SELECT j.topic, j.expires_at FROM holdfast.jobs j
        WHERE j.topic > p.topic AND j.expires_at IS NOT NULL AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.topic, j.expires_at LIMIT 1
    ) f
    WHERE p.n < $2::integer
)
SELECT topic, expires_at <= now() AS due FROM first

-- name: keyed_leases
-- Topics that have jobs with a key.   $1 only names after this one  $2 most topics
-- One row per topic, by name: its name, and whether a job with a key is leased. Index: jobs_keyed, two entries per topic.
-- It sorts by all columns of the index, so that the planner can't choose another one.
WITH RECURSIVE keyed AS (
    SELECT f.topic, 1 AS n FROM (
        SELECT j.topic FROM holdfast.jobs j WHERE j.topic > $1 AND j.key IS NOT NULL
        ORDER BY j.topic, j.state, j.tenant, j.key, j.seq LIMIT 1
    ) f
    UNION ALL
    SELECT f.topic, k.n + 1 FROM keyed k CROSS JOIN LATERAL (
        SELECT j.topic FROM holdfast.jobs j WHERE j.topic > k.topic AND j.key IS NOT NULL
        ORDER BY j.topic, j.state, j.tenant, j.key, j.seq LIMIT 1
    ) f
    WHERE k.n < $2::integer
)
SELECT k.topic, l.seq IS NOT NULL AS leased
FROM keyed k
LEFT JOIN LATERAL (
    SELECT j.seq FROM holdfast.jobs j WHERE j.topic = k.topic AND j.state = 'leased' AND j.key IS NOT NULL
    ORDER BY j.tenant, j.key, j.seq LIMIT 1
) l ON true
ORDER BY k.n

-- name: leave_run
-- Abandon a run, so that another process can continue it. Index: primary key.
--   $1  sweep
--   $2  run
--   $3  moved, NULL to leave it as it is
-- One row: true. No row: another process has taken the run over.
UPDATE holdfast.sweeps SET heartbeat_at = '-infinity', moved = coalesce($3, moved)
WHERE name = $1 AND run = $2 AND finished_at IS NULL RETURNING true

-- name: orphans
-- Delete the tallies, token buckets and groups of deleted topics. A statement that runs while its topic is deleted can
-- leave tallies. Returns how many tallies. Folding locks tallies in the same order.
WITH picked AS MATERIALIZED (
    SELECT t.ctid AS tid FROM holdfast.tallies t
    WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = t.topic_id)
    ORDER BY t.topic_id, t.id
    FOR UPDATE
), gone AS (
    DELETE FROM holdfast.tallies t USING picked p WHERE t.ctid = p.tid
    RETURNING 1
), emptied AS (
    DELETE FROM holdfast.buckets b WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = b.topic_id)
), freed AS (
    DELETE FROM holdfast.freed_groups f WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = f.topic_id)
), over AS (
    DELETE FROM holdfast.groups g WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = g.topic_id)
)
SELECT count(*) FROM gone

-- name: read_runs
-- The last runs of sweeps.   $1 names  $2 interval: a process without a heartbeat for this long counts as dead
-- One row per sweep that has ever run. `running`: it has not ended and its process is alive. Index: primary key.
SELECT s.name, s.run, s.started_at, s.finished_at, s.moved, s.error,
       s.finished_at IS NULL AND s.heartbeat_at >= now() - $2::interval AS running
FROM holdfast.sweeps s WHERE s.name = ANY ($1::text[]) AND s.run IS NOT NULL

-- name: read_schedule
-- A sweep's schedule. Creates the sweep's row if it is missing. Index: primary key.
--   $1  sweep
--   $2  interval: a process without a heartbeat for this long counts as dead
-- One row: `schedule` (NULL: the default), `due_after` (scheduled times up to this one are done), `at` (the time), and
-- `abandoned` (whether a run was abandoned).
WITH made AS (
    INSERT INTO holdfast.sweeps (name) SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM holdfast.sweeps s WHERE s.name = $1)
    ON CONFLICT (name) DO NOTHING RETURNING schedule, due_after, run, finished_at, heartbeat_at
)
SELECT s.schedule, s.due_after, now() AS at,
       s.run IS NOT NULL AND s.finished_at IS NULL AND s.heartbeat_at < now() - $2::interval AS abandoned
FROM (
    SELECT schedule, due_after, run, finished_at, heartbeat_at FROM made
    UNION ALL
    SELECT o.schedule, o.due_after, o.run, o.finished_at, o.heartbeat_at FROM holdfast.sweeps o WHERE o.name = $1
) s

-- name: write_schedule
-- Set a sweep's schedule. If it changes, times before now count as done. Index: primary key.
--   $1  sweep
--   $2  schedule, '' for none
--   $3  default schedule, in effect if none was set
-- One row: the schedule `before`, and `after`.
WITH old AS MATERIALIZED (SELECT s.schedule FROM holdfast.sweeps s WHERE s.name = $1 FOR UPDATE)
INSERT INTO holdfast.sweeps AS s (name, schedule) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE
SET schedule = excluded.schedule,
    due_after = CASE WHEN coalesce(s.schedule, $3) = excluded.schedule THEN s.due_after ELSE excluded.due_after END
RETURNING coalesce((SELECT schedule FROM old), $3) AS before, s.schedule AS after
