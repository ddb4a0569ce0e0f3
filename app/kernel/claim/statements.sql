-- name: database
-- A unique name for this database: the system identifier of its server, and its oid.   Answers one row.
SELECT s.system_identifier || '.' || d.oid
FROM pg_control_system() s CROSS JOIN pg_database d WHERE d.datname = current_database()

-- name: held
-- Which leases are still valid?
--   $1  topic
--   $2  seqs
--   $3  lease id per seq
-- Answers one row: the places in $2 (from 1) with a valid lease.   Index: primary key (see ack).
-- The LIMIT keeps the planner from a join that would scan the topic for every lease.
SELECT array(
    SELECT r.ord FROM unnest($2::bigint[], $3::uuid[]) WITH ORDINALITY AS r(seq, lease, ord)
    CROSS JOIN LATERAL (
        SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased'
        AND j.lease_id = r.lease AND j.visible_at >= now() LIMIT 1
    ) x
) AS held

-- name: in_flight
-- How many jobs of each tenant are in flight: leased, before their deadline.
--   $1  topic
--   $2  tenants
--   $3  count at most so many, per tenant
-- One row per tenant: tenant, held. Only for tenants with a name: the others are not in the index.   Index: jobs_held.
SELECT t.tenant, held.held
FROM unnest($2::text[], $3::bigint[]) AS t(tenant, most) CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = t.tenant AND j.tenant <> '' AND j.state = 'leased' AND j.visible_at >= now()
        ORDER BY j.visible_at LIMIT t.most
    ) one
) held

-- name: leases
-- The leases of jobs that their holders name.
--   $1  topic
--   $2  seqs
--   $3  lease id per seq, or NULL for any
--   $4  node per seq, or NULL for any
-- One row per job that the caller still holds: `ord`, its place in $2 (from 1); lease_id; whether it was cancelled; the
-- deadline in ms since 1970, as in show_jobs. Takes no locks.   Index: primary key (see ack).
SELECT r.ord, x.lease_id, x.cancelled, x.until_ms
FROM unnest($2::bigint[], $3::uuid[], $4::text[]) WITH ORDINALITY AS r(seq, lease, node, ord)
CROSS JOIN LATERAL (
    SELECT j.lease_id, j.cancelled_at IS NOT NULL AS cancelled,
           (date_part('epoch', j.visible_at) * 1000)::bigint AS until_ms
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND j.visible_at >= now()
      AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
    LIMIT 1
) x

-- name: lock_tenants
-- Serialize claims of tenants that have limits, until commit.   $1 topic id
-- Later statements of the transaction then count all jobs in flight.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.tenants ' || $1::integer, 0))

-- name: peek_tokens
-- How long until a topic's bucket has a token?   $1 topic id  $2 tokens per second
-- Answers one row: wait_ms, by the rule of take_tokens; 0 if there is a token or the bucket was never used. Takes no
-- token and does not wait for locks.   Index: primary key.
SELECT coalesce((
    SELECT greatest(ceil((1 - b.tokens) / $2::double precision * 1000
                         - greatest(date_part('epoch', clock_timestamp() - b.at), 0) * 1000), 0)::bigint
    FROM holdfast.buckets b WHERE b.topic_id = $1::integer
), 0) AS wait_ms

-- name: return_tokens
-- Put back tokens that were taken and not used, up to the size of the bucket.
--   $1  topic id
--   $2  how many
--   $3  tokens per second
-- Answers nothing.   Index: primary key.
UPDATE holdfast.buckets SET tokens = least(tokens + $2::integer, $3::double precision)
WHERE topic_id = $1

-- name: take_tokens
-- Take tokens from a topic's bucket.
--   $1  topic id
--   $2  how many are wanted, 1 or more
--   $3  tokens per second, 1 or more
-- Answers one row: granted, whole tokens, possibly fewer than wanted; wait_ms until there is one more.
-- Callers wait for each other, so no token is taken twice. A bucket holds the tokens of one second, and a new one is
-- full.
-- app/kernel/claim/redis_tokens.py has the same rule.   Index: primary key.
INSERT INTO holdfast.buckets AS b (topic_id, at, tokens, granted)
SELECT $1::integer, clock_timestamp(), $3::double precision - f.granted, f.granted
FROM (SELECT least($2::integer, floor($3::double precision)) AS granted) f
ON CONFLICT (topic_id) DO UPDATE SET (at, tokens, granted) = (
    SELECT greatest(b.at, e.at), e.tokens - least($2::integer, floor(e.tokens)), least($2::integer, floor(e.tokens))
    FROM (
        SELECT c.at, least(b.tokens + greatest(date_part('epoch', c.at - b.at), 0) * $3::double precision,
                           $3::double precision) AS tokens
        FROM (SELECT clock_timestamp() AS at) c
    ) e
)
RETURNING b.granted, greatest(ceil((1 - b.tokens) / $3::double precision * 1000), 0)::bigint AS wait_ms

-- name: turns
-- How many of the next jobs are ready jobs and how many are due jobs, if all are taken in the order of time?
--   $1  topic
--   $2  most jobs to read from each part of a lane, which is also how many next jobs are looked for
--   Lanes, in claim order, each once:
--   $3  tenants
--   $4  priorities
--   $5  ready jobs above this position
--   $6  due jobs after this time, in µs since 1970; NULL skips the due part
-- One row per lane that has some of the next jobs: `ord`, its place in $3 (from 1); `next`, how many; `due`, how many
-- of these are due jobs; `more`, whether further due jobs wait behind them.
-- A ready job's time is when it was enqueued, but never earlier than that of a job at a lower position, so ready jobs
-- keep their order.
-- Takes no locks, as heads.   Indexes: jobs_due, jobs_ready. Needs the planner settings of the hot pool.
WITH lane AS MATERIALIZED (
    SELECT l.tenant, l.priority, l.after, l.ord,
           timestamptz 'epoch' + l.due_after * interval '1 microsecond' AS due_after
    FROM unnest($3::text[], $4::smallint[], $5::bigint[], $6::bigint[])
        WITH ORDINALITY AS l(tenant, priority, after, due_after, ord)
), next AS MATERIALIZED (
    SELECT l.ord, x.due, x.dues FROM lane l CROSS JOIN LATERAL (
        SELECT b.due, count(*) FILTER (WHERE b.due) OVER () AS dues
        FROM (
            SELECT true AS due, d.visible_at AS at, 0 AS position FROM (
                SELECT j.visible_at FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_after AND j.visible_at < now()
                ORDER BY j.visible_at LIMIT $2::integer
            ) d
            UNION ALL
            SELECT false, max(r.visible_at) OVER (ORDER BY r.position), r.position FROM (
                SELECT j.visible_at, j.position FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state = 'ready' AND j.position > l.after
                ORDER BY j.position LIMIT $2::integer
            ) r
        ) b
        ORDER BY b.at, b.due, b.position LIMIT $2::integer
    ) x LIMIT $2::integer
)
SELECT ord, count(*) AS next, count(*) FILTER (WHERE due) AS due, count(*) FILTER (WHERE due) < max(dues) AS more
FROM next GROUP BY ord
