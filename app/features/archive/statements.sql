-- name: archive_kept
-- How many days of the archive the topics need, at least 2; NULL: all days. All queues count, since a topic that is not
-- replayable now may have been before.
SELECT CASE WHEN coalesce(bool_or(t.replay_window_ms = 0), false) THEN NULL
            ELSE greatest(2, ceil(max(t.replay_window_ms) / 86400000.0))::integer END
FROM holdfast.topics t WHERE t.type = 'queue'

-- name: archive_leaving
-- How many rows the archive has in days that are dropped as a whole.
--   $1  days to keep
--   $2  rows to count at most
--   $3  whether to count only days that are kept as files
SELECT count(*) FROM (
    SELECT 1 FROM holdfast.archive a
    WHERE a.finished_at < (date_trunc('day', now() AT TIME ZONE 'UTC') - $1::integer * interval '1 day') AT TIME ZONE 'UTC'
      AND (NOT $3::boolean OR (a.finished_at AT TIME ZONE 'UTC')::date IN (
          SELECT d.day FROM holdfast.archived_days d WHERE d.of_table = 'archive'))
    LIMIT $2::integer
) one

-- name: archive_overdue
-- The topics in the archive, and the times between which their rows must be deleted.
--   $1  only after the topic with this name
--   $2  and this id
--   $3  topics at most
--   $4  days to keep, NULL for all
--   $5  whether days are kept as files; rows stay until their day is a file
-- since: older rows go with their day, by tomorrow. All rows of a deleted topic go, whether in files or not.
-- Index: archive_finished, one look for each topic.
WITH RECURSIVE found AS (
    SELECT $1::text COLLATE "C" AS topic, $2::integer AS topic_id, 0 AS place
    UNION ALL
    SELECT n.topic, n.topic_id, f.place + 1 FROM found f CROSS JOIN LATERAL (
        SELECT a.topic, a.topic_id FROM holdfast.archive a
        WHERE (a.topic, a.topic_id) > (f.topic, f.topic_id) AND f.place < $3::integer
        ORDER BY a.topic, a.topic_id LIMIT 1
    ) n
)
SELECT f.topic, f.topic_id,
       CASE WHEN t.id IS NULL OR $4::integer IS NULL THEN 'epoch'
            ELSE (date_trunc('day', now() AT TIME ZONE 'UTC') - ($4::integer - 1) * interval '1 day') AT TIME ZONE 'UTC'
       END AS since,
       CASE WHEN t.id IS NULL THEN now() WHEN t.replay_window_ms = 0 THEN 'epoch'
            ELSE least(now() - t.replay_window_ms * interval '1 ms', (
                SELECT min(d.day)::timestamp AT TIME ZONE 'UTC' FROM holdfast.day_partitions d
                WHERE $5::boolean AND d.of_table = 'archive' AND NOT d.archived)) END AS before
FROM found f LEFT JOIN holdfast.topics t ON t.name = f.topic AND t.id = f.topic_id
WHERE f.place > 0 ORDER BY f.place

-- name: begin_replay
-- Begin a replay of a topic, or join one from the same time that has not ended.
--   $1  topic's name
--   $2  topic's id
--   $3  replay jobs from this time on, NULL for the whole window
--   $4  replay window in ms, 0 for no limit
--   $5  how long a replay without progress can be joined, in ms
-- One row: from_time, until_time, the place reached (after_time, after_seq), enqueued and skipped so far, and joined.
-- No row: $3 is before the window or in the future.
-- Jobs that are completed after until_time are not replayed, so a replay never replays its own jobs.
-- A caller that waited for another one's INSERT took its time earlier; greatest() makes it count as joined.
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

-- name: count_archive
-- How many rows a topic's archive has.   Index: archive_finished.
--   $1  topic's name
--   $2  topic's id
--   $3  only rows completed within this time in ms, 0 for all
--   $4  rows to count at most
SELECT count(*) FROM (
    SELECT 1 FROM holdfast.archive a
    WHERE a.topic = $1 AND a.topic_id = $2::integer
      AND a.finished_at >= CASE WHEN $3::bigint = 0 THEN '-infinity' ELSE now() - $3::bigint * interval '1 ms' END
    ORDER BY a.finished_at DESC, a.seq DESC LIMIT $4::integer
) one

-- name: delete_archived
-- Delete a batch of a topic's archive, oldest rows first. Skips rows that another call is deleting.
--   $1  topic's name
--   $2  topic's id
--   $3  only rows completed at or after this time
--   $4  and before this time
--   $5  rows at most
-- One row: how many. The bounds on finished_at limit the DELETE to the partitions of these days.   Index: archive_finished.
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

-- name: find_replay
-- The progress of a replay.
--   $1  topic's name
--   $2  topic's id
--   $3  the caller's from_time, or NULL
--   $4  until_time
-- One row: the place reached, enqueued and skipped so far, and done. No row: another replay has begun since.
-- Index: primary key.
SELECT r.after_time, r.after_seq, r.enqueued, r.skipped, r.done FROM holdfast.replays r
WHERE r.topic = $1 AND r.topic_id = $2::integer AND r.asked_from = coalesce($3::timestamptz, '-infinity')
  AND r.until_time = $4::timestamptz

-- name: page_archive
-- A page of a topic's archive, newest rows first.
--   $1  topic's name
--   $2  topic's id
--   $3  only rows completed within this time in ms, 0 for all
--   $4  only before the place with this time, or NULL
--   $5  and this seq, or NULL
--   $6  rows at most
--   $7  rows to skip
--   $8  bytes of payloads at most; a page has one row at least
-- more: whether another row follows.   Index: archive_finished, backwards, one day after the other.
SELECT p.seq, p.created_at, p.finished_at, p.deliveries, p.key, p.content_type, p.original_topic, p.original_seq,
       p.first_topic_id, p.first_seq, p.metadata, p.payload, p.more
FROM (
    SELECT x.*, lead(x.seq) OVER newest IS NOT NULL AS more, row_number() OVER newest AS place,
           sum(octet_length(x.payload)) OVER newest - octet_length(x.payload) AS before
    FROM (
        SELECT a.* FROM holdfast.archive a
        WHERE a.topic = $1 AND a.topic_id = $2::integer
          AND a.finished_at >= CASE WHEN $3::bigint = 0 THEN '-infinity' ELSE now() - $3::bigint * interval '1 ms' END
          AND a.finished_at <= coalesce($4::timestamptz, 'infinity')
          AND (a.finished_at, a.seq) < (coalesce($4::timestamptz, 'infinity'), coalesce($5::bigint, 0))
        ORDER BY a.finished_at DESC, a.seq DESC LIMIT $6::integer + 1 OFFSET $7::bigint
    ) x
    WINDOW newest AS (ORDER BY x.finished_at DESC, x.seq DESC)
) p
WHERE p.place <= $6::integer AND p.before < $8::bigint
ORDER BY p.finished_at DESC, p.seq DESC

-- name: replay
-- Enqueue the next batch of a replay as new jobs, in the order in which they were completed.
--   $1   topic's name
--   $2   topic's id
--   $3   oid of the topic's sequence
--   $4   the caller's from_time, or NULL
--   $5   until_time
--   $6   time of the place reached
--   $7   seq of the place reached
--   $8   jobs at most
--   $9   bytes of payloads at most (a single one may be larger)
--   $10  topic's TTL in ms, 0 for none
-- One row: the new place, count and bytes of this batch, enqueued and skipped in total, and done: the batch was empty.
-- No row: the replay is no longer at $6, $7, because another process has taken this batch. Nothing was done.
-- For each key, only the last completed job is enqueued, and none if a job of the key is pending. The others are skipped.
-- A dead letter's key and group are not enqueued. A job with a group comes back as blocked, for promote to unblock.
-- The batches of a replay follow each other: the statement locks the replay's row, checks its place, and moves it together
-- with the jobs. After a crash the replay continues at its place, and no batch comes twice.
-- Raises undefined_object if the topic was deleted meanwhile.
-- Indexes: primary key of replays, archive_finished, archive_keyed, jobs_pending_key.
WITH run AS MATERIALIZED (
    SELECT r.asked_from FROM holdfast.replays r
    WHERE r.topic = $1 AND r.topic_id = $2::integer AND r.asked_from = coalesce($4::timestamptz, '-infinity')
      AND r.until_time = $5::timestamptz AND r.after_time = $6::timestamptz AND r.after_seq = $7::bigint AND NOT r.done
    FOR UPDATE
), next AS MATERIALIZED (
    SELECT x.* FROM run CROSS JOIN LATERAL (
        SELECT a.*, sum(octet_length(a.payload)) OVER (ORDER BY a.finished_at, a.seq) - octet_length(a.payload) AS before
        FROM (
            SELECT a.finished_at, a.seq, a.max_deliveries, a.priority, a.tenant, a.tag, a.producer, a.content_type,
                   CASE WHEN a.original_topic IS NULL THEN a.key END AS key,
                   CASE WHEN a.original_topic IS NULL THEN a.grp END AS grp, a.metadata, a.payload
            FROM holdfast.archive a
            WHERE a.topic = $1 AND a.topic_id = $2::integer AND a.finished_at >= $6::timestamptz
              AND (a.finished_at, a.seq) > ($6::timestamptz, $7::bigint) AND a.finished_at <= $5::timestamptz
            ORDER BY a.finished_at, a.seq LIMIT $8::integer
        ) a
    ) x WHERE x.before < $9::bigint
), grouped AS MATERIALIZED (
    SELECT g.tenant, g.grp
    FROM (SELECT array_agg(n.tenant) AS tenants, array_agg(n.grp) AS grps FROM next n WHERE n.grp IS NOT NULL) a
    CROSS JOIN LATERAL holdfast.lock_groups($2::integer, a.tenants, a.grps) g
), freed AS (
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) SELECT $2, g.tenant, g.grp FROM grouped g
), wanted AS MATERIALIZED (
    SELECT n.*, CASE WHEN n.key IS NOT NULL THEN (holdfast.lock_pending($1, n.tenant, n.key)).seq END AS pending
    FROM next n CROSS JOIN (SELECT count(*) FROM grouped) locked  -- groups before keys
    WHERE n.key IS NULL OR NOT EXISTS (
        SELECT 1 FROM holdfast.archive a
        WHERE a.topic = $1 AND a.topic_id = $2::integer AND a.tenant = n.tenant AND a.key = n.key
          AND a.finished_at >= n.finished_at AND (a.finished_at, a.seq) > (n.finished_at, n.seq)
          AND a.finished_at <= $5::timestamptz AND a.original_topic IS NULL
    )
), record AS MATERIALIZED (
    SELECT w.*, nextval($3::oid::regclass) AS new_seq, clock_timestamp() AS at
    FROM (SELECT * FROM wanted WHERE pending IS NULL ORDER BY finished_at, seq) w
), lane AS (
    INSERT INTO holdfast.lanes (topic, tenant, priority) SELECT DISTINCT $1, tenant, priority FROM record ORDER BY 2, 3
    ON CONFLICT DO NOTHING
), job AS (
    INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at, created_at,
                               updated_at, expires_at, max_deliveries, tag, producer, metadata, payload, key,
                               content_type, grp)
    SELECT $1, $2, new_seq, new_seq, CASE WHEN grp IS NULL THEN 'ready' ELSE 'blocked' END::holdfast.job_state, tenant, priority, at, at, at,
           at + nullif($10::bigint, 0) * interval '1 ms', max_deliveries, tag, producer, metadata, payload, key,
           content_type, grp
    FROM record
    ON CONFLICT (topic, tenant, key)
        WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
    DO NOTHING
    RETURNING seq, grp, octet_length(payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, grp, max_deliveries, node, tenant, detail)
    SELECT $1, $2, r.new_seq, 'enqueued', 0, r.grp, r.max_deliveries, r.producer, nullif(r.tenant, ''),
           'replay of ' || r.seq || CASE WHEN r.grp IS NULL THEN '' ELSE ', blocked' END
    FROM record r
    WHERE r.key IS NULL OR r.new_seq IN (SELECT seq FROM job)
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, blocked, bytes)
    SELECT $2, count(*) FILTER (WHERE grp IS NULL), count(*) FILTER (WHERE grp IS NOT NULL), sum(bytes) FROM job HAVING count(*) > 0
), last AS (
    SELECT coalesce(max(n.finished_at), $6::timestamptz) AS finished_at,
           coalesce(max(n.seq) FILTER (WHERE n.newest), $7::bigint) AS seq, count(*) AS looked,
           (SELECT count(*) FROM job) AS count, (SELECT coalesce(sum(bytes), 0)::bigint FROM job) AS bytes
    FROM (SELECT seq, finished_at, finished_at = max(finished_at) OVER () AS newest FROM next) n
), moved AS (
    UPDATE holdfast.replays r
    SET after_time = l.finished_at, after_seq = l.seq, enqueued = r.enqueued + l.count,
        skipped = r.skipped + l.looked - l.count, done = l.looked = 0, updated_at = clock_timestamp()
    FROM run, last l
    WHERE r.topic = $1 AND r.topic_id = $2::integer AND r.asked_from = run.asked_from
    RETURNING r.after_time, r.after_seq, l.count, l.bytes, r.enqueued, r.skipped, r.done
)
SELECT m.after_time, m.after_seq, m.count, m.bytes, m.enqueued, m.skipped, m.done FROM moved m

-- name: sweep_replays
-- Delete replays that can't be joined any more. One row: how many.
--   $1  how long a replay without progress can be joined, in ms
--   $2  replays at most
WITH picked AS MATERIALIZED (
    SELECT r.ctid AS tid FROM holdfast.replays r WHERE r.updated_at < now() - $1::bigint * interval '1 ms'
    ORDER BY r.topic, r.topic_id, r.asked_from LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.replays r USING picked p WHERE r.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
