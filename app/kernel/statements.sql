-- name: as_of
-- The counts of a queue at an instant.
--   $1  topic
--   $2  topic id
--   $3  the instant
-- Answers one row: its jobs by state; oldest_ms, how long the oldest ready one had been claimable (NULL: there was
-- none, or it is unknown); from_ms, since when its events are shown, in ms since 1970. For an instant before from_ms
-- the other fields mean nothing. A job counts as expired once it was marked.
-- The function: functions/as_of.sql. Reads the events of all topics from from_ms, or the topic's beginning, to the
-- instant. If the topic is older than its events, it reads events up to now, and its jobs.   Index: lease_events_read.
SELECT a.ready, a.in_flight, a.scheduled, a.blocked, a.failed, a.expired, a.dead,
       (date_part('epoch', $3::timestamptz - a.oldest) * 1000)::bigint AS oldest_ms,
       (date_part('epoch', f.first_at) * 1000)::bigint AS from_ms
FROM holdfast.events_from($2::integer) AS f(first_at)
CROSS JOIN holdfast.as_of($1, $2::integer, $3::timestamptz) a

-- name: count_all
-- How many jobs there are in all topics, with finished ones that are kept: one row.   Reads the tallies.
SELECT coalesce(sum(ready + scheduled + blocked + leased + failed + expired), 0)::bigint FROM holdfast.tallies

-- name: drop_partitions
-- Drop a table's partitions of past days.
--   $1  table
--   $2  older than so many days
--   $3  only days that are kept as files
-- One row: gone, how many were dropped; held, how many stay because they have no files.
SELECT gone, held FROM holdfast.drop_day_partitions($1, $2, $3)

-- name: drop_results
-- Drop the days of results that can't be shown any more.   $1 only days that are kept as files
-- One row: gone, how many were dropped; held, how many stay because they have no files.
SELECT gone, held FROM holdfast.drop_result_partitions($1)

-- name: find_data
-- Jobs of a topic that have certain values in their payloads, in the given order.
--   $1  topic
--   $2  topic id
--   $3  their seqs
--   $4  keys, as in holdfast.has_data
--   $5  ends, as in holdfast.has_data
--   $6  values, as in holdfast.has_data
--   $7  most bytes of payloads to read; at least one job is read
--   $8  most jobs
-- Answers one row: their seqs, in that order; last_seq, the last seq that was read, NULL if all were.
-- Index: primary key.
WITH sized AS MATERIALIZED (
    SELECT l.seq, l.ord, sum(x.bytes) OVER (ORDER BY l.ord) - x.bytes AS before
    FROM unnest($3::bigint[]) WITH ORDINALITY AS l(seq, ord)
    CROSS JOIN LATERAL (
        SELECT octet_length(j.payload) AS bytes FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = l.seq
        LIMIT 1  -- otherwise a plan that was made for an empty table scans all jobs of the topic
    ) x
), found AS MATERIALIZED (
    SELECT l.seq, l.ord FROM (SELECT s.seq, s.ord FROM sized s WHERE s.before < $7::bigint ORDER BY s.ord) l
    CROSS JOIN LATERAL (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = l.seq
          AND holdfast.has_data(j.payload, j.content_type, $4::text[], $5::integer[], $6::text[])
        LIMIT 1
    ) x
    LIMIT $8::integer
)
SELECT array(SELECT f.seq FROM found f ORDER BY f.ord) AS seqs,
       (SELECT s.seq FROM sized s
        WHERE s.before < $7::bigint AND EXISTS (SELECT 1 FROM sized n WHERE n.before >= $7::bigint)
        ORDER BY s.ord DESC LIMIT 1) AS last_seq

-- name: find_letters
-- Where dead letters are now.   $1 ids of the topics that they were in at first  $2 their seqs there; one each per job
-- One row per dead letter: its place in $2 (from 1), topic, topic's id and seq. Deleted ones are left out.
-- Index: jobs_first. Names no topic, as it looks for one: if the table is distributed, all nodes are asked.
SELECT r.ord, j.topic, j.topic_id, j.seq
FROM unnest($1::integer[], $2::bigint[]) WITH ORDINALITY AS r(topic_id, seq, ord)
CROSS JOIN LATERAL (
    SELECT j.topic, j.topic_id, j.seq FROM holdfast.jobs j
    WHERE j.first_topic_id = r.topic_id AND j.first_seq = r.seq LIMIT 1
) j

-- name: history
-- A job's events, the oldest first.
--   $1  topic id
--   $2  seq
--   $3  no earlier than this
--   $4  most events
-- One row per event; `at` and `until` in ms since 1970. No row: the job never existed, or its days were dropped.
-- The function: functions/ledger.sql.   Index: lease_events_read.
SELECT (date_part('epoch', e.at) * 1000)::bigint AS at_ms, e.event::text AS event, e.deliveries,
       (date_part('epoch', e.until) * 1000)::bigint AS until_ms, e.node, e.detail
FROM holdfast.job_events($1::integer, $2::bigint, $3::timestamptz, $4::integer) e

-- name: jobs_as_of
-- The jobs of a queue at an instant, by seq.
--   $1  topic
--   $2  topic id
--   $3  the instant
--   $4  only in this state, NULL for any
--   $5  after this seq
--   $6  most jobs
-- One row per job, times in ms since 1970: since_ms, when it came into its state (NULL: no stored event says so);
-- until_ms, of a leased or scheduled job; node, its holder; key, of a job that still exists. No row: there are no more,
-- or the instant is before events_from.
-- The function: functions/as_of.sql. Costs as much as as_of, and $6 jobs.   Index: lease_events_read, jobs_pkey.
SELECT a.seq, a.state, (date_part('epoch', a.began) * 1000)::bigint AS since_ms, a.deliveries,
       (date_part('epoch', a.until) * 1000)::bigint AS until_ms, a.node, k.key
FROM holdfast.jobs_as_of($1, $2::integer, $3::timestamptz, $4::text, $5::bigint, $6::integer) a
LEFT JOIN LATERAL (
    SELECT j.key FROM holdfast.jobs j WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = a.seq
) k ON true
ORDER BY a.seq

-- name: key_seqs
-- The seqs of jobs with a key, in no order.
--   $1  topic
--   $2  tenant, or NULL for any
--   $3  key
--   $4  most seqs
-- Answers one row. Includes jobs without a tenant, such as dead letters.     Indexes: jobs_keyed, primary key of lanes.
SELECT array(
    SELECT k.seq FROM (SELECT DISTINCT l.tenant FROM holdfast.lanes l
                       WHERE l.topic = $1 AND ($2::text IS NULL OR l.tenant IN ($2::text, ''))) t
    CROSS JOIN LATERAL (
        SELECT j.seq FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.state = ANY (enum_range(NULL::holdfast.job_state)) AND j.tenant = t.tenant
          AND j.key = $3::text
        LIMIT $4::integer
    ) k LIMIT $4::integer
) AS seqs

-- name: last_events
-- A job's last events, the newest first.
--   $1  topic id
--   $2  seq
--   $3  most events
-- Rows as in history.   The function: functions/ledger.sql.   Index: lease_events_read.
SELECT (date_part('epoch', e.at) * 1000)::bigint AS at_ms, e.event::text AS event, e.deliveries,
       (date_part('epoch', e.until) * 1000)::bigint AS until_ms, e.node, e.detail
FROM holdfast.last_events($1::integer, $2::bigint, $3::integer) e

-- name: list_finished
-- A page of a topic's failed or expired jobs, newest first.
--   $1  topic
--   $2  seqs below this one
--   $3  failed or expired
--   $4  most seqs
--   $5  leave out so many first
--   $6  most jobs to read
-- Answers one row: the seqs, descending. Reads the jobs that ended last; expired jobs need not be marked yet.
-- Indexes: jobs_finished, jobs_expiring.
SELECT array(
    SELECT f.seq FROM (
        SELECT * FROM (
            SELECT j.seq, j.state::text AS status FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.state IN ('failed', 'expired')
            ORDER BY j.updated_at DESC LIMIT $6::integer
        ) marked
        UNION ALL
        SELECT * FROM (
            SELECT j.seq, 'expired' FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.expires_at IS NOT NULL AND j.expires_at <= now()
              AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
              AND (j.state <> 'leased' OR j.visible_at < now())
            ORDER BY j.expires_at DESC LIMIT $6::integer
        ) unmarked
    ) f
    WHERE f.status = $3::text AND f.seq < $2::bigint
    ORDER BY f.seq DESC LIMIT $4::integer OFFSET $5::integer
) AS seqs

-- name: list_held
-- A page of a topic's jobs with a valid lease, newest first.
--   $1  topic
--   $2  seqs below this one
--   $3  most seqs
--   $4  leave out so many first
--   $5  most jobs of a lane to read
-- Answers one row: the seqs, descending. Reads the leases that end first.   Index: jobs_due.
SELECT array(
    SELECT h.seq FROM holdfast.lanes l CROSS JOIN LATERAL (
        SELECT j.seq, j.state::text AS state FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
          AND j.state IN ('leased', 'scheduled') AND j.visible_at >= now()
        ORDER BY j.visible_at LIMIT $5::integer
    ) h
    WHERE l.topic = $1 AND h.state = 'leased' AND h.seq < $2::bigint
    ORDER BY h.seq DESC LIMIT $3::integer OFFSET $4::integer
) AS seqs

-- name: list_jobs
-- A page of a topic's jobs, newest first.
--   $1  topic
--   $2  seqs below this one
--   $3  only jobs in these states, or NULL
--   $4  most seqs
--   $5  leave out so many first
--   $6  most jobs to read
--   $7  only jobs that crashed two workers or more; for dead letters, in the topic they came from
-- Answers one row: the seqs, descending; looked, how many jobs were read; last_seq, the lowest of them; with $7,
-- matched, how many it would list without $4 and $5.
-- States are by the database's clock, not as stored (see explain_job).   Index: primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq, holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
           greatest(j.crashes + (j.state::text = 'leased' AND j.visible_at < now())::integer, j.original_crashes) >= 2
               AS suspect
    FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq < $2::bigint
    ORDER BY j.seq DESC LIMIT $6::integer
)
SELECT array(SELECT l.seq FROM looked l WHERE ($3::text[] IS NULL OR l.state = ANY ($3::text[])) AND (l.suspect OR NOT $7::boolean)
             ORDER BY l.seq DESC LIMIT $4::integer OFFSET $5::integer) AS seqs,
       (SELECT count(*) FROM looked) AS looked, (SELECT min(l.seq) FROM looked l) AS last_seq,
       CASE WHEN $7::boolean THEN
           (SELECT count(*) FROM looked l WHERE l.suspect AND ($3::text[] IS NULL OR l.state = ANY ($3::text[])))
       END AS matched

-- name: list_newest
-- A page of all topics' jobs, newest first.
--   $1  most jobs
--   $2  leave out so many first
--   $3  both together
-- One row per job: its topic, the topic's id and its seq. All jobs of the page are among the $3 newest jobs of the $3
-- topics with the newest jobs.   Index: primary keys.
WITH t AS MATERIALIZED (
    SELECT l.topic, newest.created_at
    FROM (SELECT name AS topic FROM holdfast.topics WHERE type = 'queue') l
    CROSS JOIN LATERAL (
        SELECT j.created_at FROM holdfast.jobs j WHERE j.topic = l.topic ORDER BY j.seq DESC LIMIT 1
    ) newest
    ORDER BY newest.created_at DESC LIMIT $3::integer
)
SELECT f.topic, f.topic_id, f.seq FROM t CROSS JOIN LATERAL (
    SELECT j.topic, j.topic_id, j.seq, j.created_at FROM holdfast.jobs j WHERE j.topic = t.topic
    ORDER BY j.seq DESC LIMIT $3::integer
) f
ORDER BY f.created_at DESC, f.topic, f.seq DESC LIMIT $1::integer OFFSET $2::integer

-- name: past_begins
-- Since when a topic has a past: since its events are shown, or since it was created.   $1 topic  $2 topic id
-- One row: in ms since 1970. No row: the topic was deleted.   Index: primary key of topics.
SELECT (date_part('epoch', greatest(f.first_at, t.created_at)) * 1000)::bigint AS begins_ms
FROM holdfast.topics t CROSS JOIN LATERAL holdfast.events_from(t.id) AS f(first_at)
WHERE t.name = $1 AND t.id = $2::integer

-- name: past_from
-- Since when a topic's events are shown, in ms since 1970.   $1 topic id
-- Answers one row. The function: functions/ledger.sql.   Index: topics_id_key.
SELECT (date_part('epoch', f.first_at) * 1000)::bigint AS from_ms FROM holdfast.events_from($1::integer) AS f(first_at)

-- name: purge
-- Delete a batch of a queue's jobs in certain states for good, also leased ones if asked for.
--   $1  topic
--   $2  after this seq
--   $3  up to this seq
--   $4  states, by the clock (see explain_job)
--   $5  most jobs to read
-- Answers one row: deleted; ready and in_flight, how many of these were; picked, how many were locked; last_seq, the
-- last seq that was read, NULL at the end. If picked is more than deleted, another statement changed a job meanwhile,
-- and the caller runs the statement again from the same place.   Index: primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq > $2::bigint AND j.seq <= $3::bigint
    ORDER BY j.seq LIMIT $5::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM looked l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               j.lease_id, j.node
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = l.seq
          AND holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) = ANY ($4::text[])
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.held, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node, 'was ' || was FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'),
           -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired'),
           -coalesce(sum(bytes) FILTER (WHERE was NOT IN ('failed', 'expired')), 0)
    FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT count(*) FROM done d WHERE d.was = 'ready') AS ready,
       (SELECT count(*) FROM done d WHERE d.held) AS in_flight, (SELECT count(*) FROM picked) AS picked,
       (SELECT max(l.seq) FROM looked l) AS last_seq

-- name: recent_events
-- How many jobs of a topic were claimed, acked and enqueued in the last seconds.   $1 topic id  $2 seconds
-- Answers one row, with span_ms since the first claim in that time, and idle_ms since the last one (NULL: there was
-- none). Reads the events of all topics in that time.   The function: functions/ledger.sql.   Index: lease_events_read.
SELECT r.claimed, r.acked, r.enqueued,
       (date_part('epoch', clock_timestamp() - r.first_claim) * 1000)::bigint AS span_ms,
       (date_part('epoch', clock_timestamp() - r.last_claim) * 1000)::bigint AS idle_ms
FROM holdfast.recent_events($1::integer, $2::double precision) r

-- name: show_jobs
-- Jobs with all their fields, for pages and the API.
--   $1  topic per job
--   $2  its id
--   $3  seq per job
--   $4  most bytes of payloads; at least one job is returned
-- One row per job, by its place; times in ms since 1970. Deleted jobs are left out. The state, and whether a lease
-- ended in a crash, are by the database's clock (see explain_job).   Index: primary key.
SELECT p.topic, p.topic_id, p.seq, p.state, p.cancelled, p.node, p.leased_ms, p.original_seq,
       p.original_deliveries, p.deliveries, p.priority, p.max_deliveries, p.last_error, p.tag, p.metadata,
       p.payload, p.content_type, p.created_ms, p.updated_ms, p.visible_ms, p.expires_ms, p.original_topic, p.dlq_moved_ms,
       p.first_topic_id, p.first_seq, p.key, p.grp AS "group", p.tenant, p.crashes, p.original_crashes,
       p.percent, p.note, p.progress_ms
FROM (
    SELECT l.topic, l.topic_id, l.ord, s.*, sum(octet_length(s.payload)) OVER (ORDER BY l.ord) - octet_length(s.payload) AS before
    FROM unnest($1::text[], $2::integer[], $3::bigint[])
        WITH ORDINALITY AS l(topic, topic_id, seq, ord)
    CROSS JOIN LATERAL (
        SELECT j.seq,
               holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
               j.cancelled_at IS NOT NULL AS cancelled, j.node,
               (date_part('epoch', j.leased_at) * 1000)::bigint AS leased_ms, j.original_seq, j.original_deliveries,
               j.deliveries, j.priority, j.max_deliveries, j.last_error, j.tag, j.metadata, j.payload, j.content_type,
               (date_part('epoch', j.created_at) * 1000)::bigint AS created_ms,
               (date_part('epoch', j.updated_at) * 1000)::bigint AS updated_ms,
               (date_part('epoch', j.visible_at) * 1000)::bigint AS visible_ms,
               (date_part('epoch', j.expires_at) * 1000)::bigint AS expires_ms,
               j.original_topic, (date_part('epoch', j.dlq_moved_at) * 1000)::bigint AS dlq_moved_ms, j.first_topic_id,
               j.first_seq, j.key, coalesce(j.grp, j.left_grp) AS grp, coalesce(j.original_tenant, j.tenant) AS tenant,
               j.crashes + (j.state::text = 'leased' AND j.visible_at < now())::integer AS crashes, j.original_crashes,
               CASE WHEN j.progress_lease = j.lease_id AND j.visible_at >= now() THEN j.progress END AS percent,
               j.progress_note AS note, (date_part('epoch', j.progress_at) * 1000)::bigint AS progress_ms
        FROM holdfast.jobs j WHERE j.topic = l.topic AND j.topic_id = l.topic_id AND j.seq = l.seq
    ) s
) p
WHERE p.before < $4::bigint
ORDER BY p.ord

-- name: statuses
-- How many jobs topics have of each status.
--   $1  topics
--   $2  their ids
--   $3  most due or expired jobs of a topic to read
-- One row per topic: pending, processing, failed, expired, by the database's clock. The tallies have the number of jobs
-- in each state. Changes by time alone are counted.
-- Indexes: primary key of tallies, primary key of lanes, jobs_expiring, jobs_due.
SELECT t.topic, (stored.waiting + due.ended - stale.n)::bigint AS pending,
       (stored.leased - due.ended)::bigint AS processing, stored.failed::bigint AS failed,
       (stored.expired + stale.n)::bigint AS expired
FROM unnest($1::text[], $2::integer[]) AS t(topic, topic_id)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(y.ready + y.scheduled + y.blocked), 0) AS waiting, coalesce(sum(y.leased), 0) AS leased,
           coalesce(sum(y.failed), 0) AS failed, coalesce(sum(y.expired), 0) AS expired
    FROM holdfast.tallies y WHERE y.topic_id = t.topic_id
) stored CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.expires_at IS NOT NULL AND j.expires_at <= now()
          AND j.state IN ('ready', 'scheduled', 'blocked', 'leased') AND (j.state <> 'leased' OR j.visible_at < now())
        ORDER BY j.expires_at LIMIT $3::integer
    ) e
) stale CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE d.leased) AS ended FROM (
        SELECT one.leased FROM holdfast.lanes l CROSS JOIN LATERAL (
            SELECT j.state::text = 'leased' AS leased FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at < now()
            ORDER BY j.visible_at LIMIT $3::integer
        ) one WHERE l.topic = t.topic LIMIT $3::integer
    ) d
) due
