-- name: database
-- A name for this database that no other has: its server's own number, and its oid there.
-- Answers one row.
SELECT s.system_identifier || '.' || d.oid
FROM pg_control_system() s CROSS JOIN pg_database d WHERE d.datname = current_database()

-- name: held
-- Which leases are still good?   $1 topic  $2 seqs  $3 lease ids; one each per seq
-- Answers one row: the places in $2 (from 1) whose lease is.   Index: primary key (see ack).
-- The LIMIT keeps the planner from making a join of it, which walks the topic for every lease.
SELECT array(
    SELECT r.ord FROM unnest($2::bigint[], $3::uuid[]) WITH ORDINALITY AS r(seq, lease, ord)
    CROSS JOIN LATERAL (
        SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased'
        AND j.lease_id = r.lease AND j.visible_at >= now() LIMIT 1
    ) x
) AS held

-- name: in_flight
-- How many jobs of tenants are in flight: leased, and the lease is good.   $1 topic  $2 tenants  $3 most to count of each
-- One row a tenant: tenant, held. Only named tenants: others are not in the index.   Index: jobs_held.
SELECT t.tenant, held.held
FROM unnest($2::text[], $3::bigint[]) AS t(tenant, most) CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = t.tenant AND j.tenant <> '' AND j.state = 'leased' AND j.visible_at >= now()
        ORDER BY j.visible_at LIMIT t.most
    ) one
) held

-- name: leases
-- Under which leases holders have jobs that they name.
--   $1 topic  $2 seqs  $3 lease ids, or NULL for any  $4 nodes, or NULL for any; one each per seq
-- One row for each that is its holder's: `ord`, its place in $2 (from 1), lease_id, whether it was cancelled, and the
-- deadline in ms since 1970, as show_jobs has it. Locks nothing: the caller names the lease.
-- Index: primary key (see ack).
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
-- Let claims of tenants with limits come one after the other, up to commit.   $1 topic id
-- What a later statement of the same transaction counts is then all that is in flight.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.tenants ' || $1::integer, 0))

-- name: peek_tokens
-- When has a topic's bucket a token?   $1 topic id  $2 tokens that it earns a second
-- Answers one row: wait_ms until there is one, by the rule of take_tokens; 0: there is, as in a bucket that nobody came to
-- yet. Takes none, and waits for nobody.   Index: primary key.
SELECT coalesce((
    SELECT greatest(ceil((1 - b.tokens) / $2::double precision * 1000
                         - greatest(date_part('epoch', clock_timestamp() - b.at), 0) * 1000), 0)::bigint
    FROM holdfast.buckets b WHERE b.topic_id = $1::integer
), 0) AS wait_ms

-- name: return_tokens
-- Put tokens back that were taken and not spent, up to what a bucket holds.
--   $1 topic id  $2 how many  $3 tokens that it earns a second
-- Answers nothing.   Index: primary key.
UPDATE holdfast.buckets SET tokens = least(tokens + $2::integer, $3::double precision)
WHERE topic_id = $1

-- name: take_tokens
-- Take tokens from a topic's bucket.   $1 topic id  $2 how many are wanted, 1 or more  $3 tokens that it earns a second,
-- 1 or more
-- Answers one row: granted, whole tokens, no more than there are; wait_ms until there is one more.
-- Callers wait for each other: no two ever take the same token. A bucket holds a second's worth at most, and a new one
-- is full. app/kernel/claim/redis_tokens.py has the same rule.   Index: primary key.
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
-- How do the next jobs divide into fresh ones and ones whose time has come, if all are taken in the order of time?
--   $1 topic  $2 most jobs to look at in each part of a lane, also how many jobs are next
--   lanes, in claim order, each once:  $3 tenants  $4 priorities  $5 ready jobs above this position
--                                      $6 due jobs after this time, in µs since 1970 (NULL: don't look)
-- One row a lane that has some of them: `ord`, its place in $3 (from 1); how many of it are `next`, and how many of
-- those are `due`; and whether there are `more` due ones behind those.
-- A fresh job's time is when it was enqueued, but not before that of one at an earlier position: fresh ones stay in order.
-- Plain reads, as in heads.   Indexes: jobs_due, jobs_ready. Needs the hot pool's planner settings.
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
