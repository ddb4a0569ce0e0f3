-- name: add_lanes
-- Record lanes before the first job in them is written.
--   $1  topic
--   $2  its id
--   $3  tenant per lane
--   $4  priority per lane
-- Writes nothing for a deleted topic. The lock on the topic's row makes a deletion wait.
INSERT INTO holdfast.lanes (topic, tenant, priority)
SELECT $1, l.tenant, l.priority
FROM (SELECT t.id FROM holdfast.topics t WHERE t.name = $1 AND t.id = $2 FOR KEY SHARE) live
CROSS JOIN (SELECT DISTINCT * FROM unnest($3::text[], $4::smallint[]) AS l(tenant, priority) ORDER BY 1, 2) l
ON CONFLICT DO NOTHING

-- name: depth
-- How much a queue holds.   $1 topic id  $2 tallies above this id
-- Answers one row: jobs (ready, leased, scheduled and blocked) and the bytes of their payloads as stored. Expired jobs
-- count until they are marked.   Index: primary key of tallies.
SELECT coalesce(sum(t.ready + t.scheduled + t.blocked + t.leased), 0)::bigint AS held,
       coalesce(sum(t.bytes), 0)::bigint AS bytes
FROM holdfast.tallies t WHERE t.topic_id = $1 AND t.id > $2::bigint

-- name: hook
-- Store the webhooks of jobs.   Answers one row: how many.
--   $1  topic
--   $2  seqs, ascending
--   $3  URL per job
-- Runs in the transaction that added or updated these jobs: it has them locked.   Index: primary key (see ack).
WITH own AS MATERIALIZED (
    SELECT x.tid, r.url FROM unnest($2::bigint[], $3::text[]) AS r(seq, url)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = r.seq) x
), hooked AS (
    UPDATE holdfast.jobs j SET webhook = o.url FROM own o WHERE j.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM hooked

-- name: lock_depth
-- Serialize enqueues to a queue with a limit, until commit.   $1 topic id
-- Later statements of the transaction then count all added jobs.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.depth ' || $1::integer, 0))

-- name: sweep_dedupe
-- Forget dedupe ids whose window has passed.   $1 most ids   Answers one row: how many.   Index: dedupe_expiring.
WITH picked AS MATERIALIZED (
    SELECT d.ctid AS tid FROM holdfast.dedupe d WHERE d.expires_at < now()
    ORDER BY d.expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.dedupe d USING picked p WHERE d.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
