-- name: any_schema
-- Whether any topic has a schema, so that rows may wait in the inbox to be looked at.   Answers one row.
SELECT EXISTS (SELECT 1 FROM holdfast.topic_schemas s WHERE s.schema IS NOT NULL)
    OR EXISTS (SELECT 1 FROM holdfast.inbox_unchecked)

-- name: inbox_admit
-- Put rows that fit into their queue, as whoever inserts them into the inbox does; counted from when they were inserted.
--   $1 topic  $2 the version of its schema that they fit; 0: there is none
--   one each per row:  $3 payloads  $4 content types  $5 metadata  $6 tags  $7 nodes  $8 priorities  $9 delays in ms
--   $10 run_at  $11 TTLs in ms  $12 max_deliveries  $13 keys  $14 tenants  $15 groups  $16 dedupe ids  $17 users  $18 webhooks
--   $19 when they were inserted
-- If the schema is another one meanwhile, they are looked at once more. Raises what the inbox raises.
INSERT INTO holdfast.inbox (topic, checked, payload, content_type, metadata, tag, node, priority, run_at, ttl_ms,
                            max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook)
SELECT $1, $2::integer, r.payload, r.content_type, r.metadata, r.tag, r.node, r.priority,
       greatest(r.run_at, r.inserted_at + r.delay_ms * interval '1 ms'), r.ttl_ms, r.max_deliveries, r.key, r.tenant,
       r.grp, r.dedupe_id, r.user_id, r.webhook
FROM unnest($3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::bigint[],
            $10::timestamptz[], $11::bigint[], $12::integer[], $13::text[], $14::text[], $15::text[], $16::text[],
            $17::text[], $18::text[], $19::timestamptz[])
    WITH ORDINALITY AS r(payload, content_type, metadata, tag, node, priority, delay_ms, run_at, ttl_ms,
                         max_deliveries, key, tenant, grp, dedupe_id, user_id, webhook, inserted_at, ord)
ORDER BY r.ord

-- name: inbox_forget
-- Forget rows that were rejected long ago.   $1 for how long they are kept  $2 most rows
-- Answers one row: how many went.   Index: inbox_rejects_old.
WITH old AS MATERIALIZED (
    SELECT x.ctid AS tid FROM holdfast.inbox_rejects x WHERE x.rejected_at < now() - $1::interval
    ORDER BY x.rejected_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.inbox_rejects x USING old o WHERE x.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: inbox_lock
-- One at a time looks at the rows of a topic, so that they keep their order.   $1 topic
-- One row: whether it is the caller, up to the end of its transaction.
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.inbox ' || $1::text, 0))

-- name: inbox_reject
-- Keep rows of the inbox that can't go in, with the reason.
--   $1 topic   one each per row:  $2 reasons  $3 payloads  $4 content types  $5 metadata  $6 tags  $7 nodes
--   $8 priorities  $9 delays in ms  $10 run_at  $11 TTLs in ms  $12 max_deliveries  $13 keys  $14 tenants  $15 groups
--   $16 dedupe ids  $17 users  $18 webhooks  $19 when they were inserted
INSERT INTO holdfast.inbox_rejects (topic, reason, payload, content_type, metadata, tag, node, priority, delay_ms, run_at,
                                    ttl_ms, max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook, inserted_at)
SELECT $1, r.* FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[],
                           $9::bigint[], $10::timestamptz[], $11::bigint[], $12::integer[], $13::text[],
                           $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::timestamptz[]) AS r

-- name: inbox_take
-- Take the next rows of the inbox out that nobody has looked at.   $1 topic  $2 most rows
-- One row each, by id: what it is. The caller holds the topic's lock (inbox_lock).   Index: primary key.
WITH next AS MATERIALIZED (
    SELECT u.id FROM holdfast.inbox_unchecked u WHERE u.topic = $1 ORDER BY u.id LIMIT $2::integer
), gone AS (
    DELETE FROM holdfast.inbox_unchecked u USING next n WHERE u.topic = $1 AND u.id = n.id RETURNING u.*
)
SELECT g.id, g.inserted_at, g.payload, g.content_type, g.metadata, g.tag, g.node, g.priority, g.delay_ms, g.run_at,
       g.ttl_ms, g.max_deliveries, g.key, g.tenant, g."group", g.dedupe_id, g.user_id, g.webhook
FROM gone g ORDER BY g.id

-- name: inbox_topics
-- Topics that have rows in the inbox which nobody has looked at.   $1 topics after this one  $2 most topics
-- One row a topic, by name: a step from each to the next, however many rows it has.   Index: primary key.
WITH RECURSIVE one AS (
    (SELECT u.topic FROM holdfast.inbox_unchecked u WHERE u.topic > $1 ORDER BY u.topic LIMIT 1)
    UNION ALL
    SELECT (SELECT u.topic FROM holdfast.inbox_unchecked u WHERE u.topic > o.topic ORDER BY u.topic LIMIT 1)
    FROM one o WHERE o.topic IS NOT NULL
)
SELECT o.topic FROM one o WHERE o.topic IS NOT NULL LIMIT $2

-- name: staged_drop
-- Drop rows that were staged more than a day ago and never committed.   $1 most rows
-- Answers one row: how many went. What somebody is writing or committing stays.   Index: primary keys.
SELECT holdfast.drop_stages(NULL, $1::integer)

-- name: writes_forget
-- Forget writes that were committed long ago.   $1 for how long they are kept  $2 most rows
-- Answers one row: how many went.   Index: writes_old.
WITH old AS MATERIALIZED (
    SELECT x.ctid AS tid FROM holdfast.writes x WHERE x.committed_at < now() - $1::interval
    ORDER BY x.committed_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.writes x USING old o WHERE x.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone
