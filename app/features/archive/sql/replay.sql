-- Enqueue the next batch of a replay, as new jobs, in the order in which they were completed.
--   $1 topic  $2 topic id  $3 oid of the topic's sequence  $4 from which time it was asked for, or NULL  $5 its end
--   $6, $7 the place it has come to: a time and a seq  $8 most jobs  $9 most bytes of their payloads (one may have more)
--   $10 the topic's TTL in ms, 0 for none
-- Of several with one key, the last that was completed counts, and a pending job of the key goes before it: the others
-- are skipped. A dead letter's key and group are data, and are left behind. A job with a group comes back as blocked, and is
-- let through by `promote`.
-- Answers one row: the new place, count and bytes of this batch, enqueued and skipped in all, and done: there was nothing left.
-- No row: it is no longer at $6, $7. Another process has taken that batch, and nothing was done here.
-- The lock on the replay's row and the look at its place make batches of one replay follow each other. That is all in
-- one statement with the jobs: after a crash it goes on at its place, and no batch comes twice.
-- Raises undefined_object when the topic was deleted meanwhile.
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
