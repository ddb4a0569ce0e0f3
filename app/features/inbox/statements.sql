-- name: any_schema
-- Whether rows may wait in the inbox: a topic has a schema, or there are rows.   One row.
SELECT EXISTS (SELECT 1 FROM holdfast.topic_schemas s WHERE s.schema IS NOT NULL)
    OR EXISTS (SELECT 1 FROM holdfast.inbox_unchecked)

-- name: inbox_admit
-- Put valid rows into their queue, through the inbox. Delays count from the time of their insertion.
--   $1   topic's name
--   $2   version of its schema that they fit, 0 for no schema
-- One for each row:
--   $3   payloads
--   $4   content types
--   $5   metadata
--   $6   tags
--   $7   nodes
--   $8   priorities
--   $9   delays in ms
--   $10  run_at
--   $11  TTLs in ms
--   $12  max_deliveries
--   $13  keys
--   $14  tenants
--   $15  groups
--   $16  dedupe ids
--   $17  users
--   $18  webhooks
--   $19  times of insertion
-- If the schema has changed meanwhile, the rows are checked again. Raises the inbox's errors.
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
-- Delete rows that were rejected longer ago than an interval.   $1 interval  $2 rows at most
-- One row: how many.   Index: inbox_rejects_old.
WITH old AS MATERIALIZED (
    SELECT x.ctid AS tid FROM holdfast.inbox_rejects x WHERE x.rejected_at < now() - $1::interval
    ORDER BY x.rejected_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.inbox_rejects x USING old o WHERE x.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: inbox_lock
-- Lock a topic's rows in the inbox for the transaction, so that they keep their order.   $1 topic's name
-- One row: whether the caller has the lock.
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.inbox ' || $1::text, 0))

-- name: inbox_reject
-- Keep rejected rows of the inbox with the reasons.
--   $1   topic's name
-- One for each row:
--   $2   reasons
--   $3   payloads
--   $4   content types
--   $5   metadata
--   $6   tags
--   $7   nodes
--   $8   priorities
--   $9   delays in ms
--   $10  run_at
--   $11  TTLs in ms
--   $12  max_deliveries
--   $13  keys
--   $14  tenants
--   $15  groups
--   $16  dedupe ids
--   $17  users
--   $18  webhooks
--   $19  times of insertion
INSERT INTO holdfast.inbox_rejects (topic, reason, payload, content_type, metadata, tag, node, priority, delay_ms, run_at,
                                    ttl_ms, max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook, inserted_at)
SELECT $1, r.* FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[],
                           $9::bigint[], $10::timestamptz[], $11::bigint[], $12::integer[], $13::text[],
                           $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::timestamptz[]) AS r

-- name: inbox_take
-- Take the next unchecked rows out of the inbox, by id. The caller holds the topic's lock (inbox_lock).
--   $1 topic's name  $2 rows at most   Index: primary key.
WITH next AS MATERIALIZED (
    SELECT u.id FROM holdfast.inbox_unchecked u WHERE u.topic = $1 ORDER BY u.id LIMIT $2::integer
), gone AS (
    DELETE FROM holdfast.inbox_unchecked u USING next n WHERE u.topic = $1 AND u.id = n.id RETURNING u.*
)
SELECT g.id, g.inserted_at, g.payload, g.content_type, g.metadata, g.tag, g.node, g.priority, g.delay_ms, g.run_at,
       g.ttl_ms, g.max_deliveries, g.key, g.tenant, g."group", g.dedupe_id, g.user_id, g.webhook
FROM gone g ORDER BY g.id

-- name: inbox_topics
-- Topics with unchecked rows in the inbox, by name.   $1 only topics after this one  $2 topics at most
-- Steps from topic to topic in the index, however many rows they have.   Index: primary key.
WITH RECURSIVE one AS (
    (SELECT u.topic FROM holdfast.inbox_unchecked u WHERE u.topic > $1 ORDER BY u.topic LIMIT 1)
    UNION ALL
    SELECT (SELECT u.topic FROM holdfast.inbox_unchecked u WHERE u.topic > o.topic ORDER BY u.topic LIMIT 1)
    FROM one o WHERE o.topic IS NOT NULL
)
SELECT o.topic FROM one o WHERE o.topic IS NOT NULL LIMIT $2

-- name: staged_drop
-- Delete rows that were staged more than a day ago and never committed.   $1 rows at most
-- One row: how many. Rows that are being written or committed stay.   Index: primary keys.
SELECT holdfast.drop_stages(NULL, $1::integer)

-- name: writes_forget
-- Delete notes of writes that were committed longer ago than an interval.   $1 interval  $2 rows at most
-- One row: how many.   Index: writes_old.
WITH old AS MATERIALIZED (
    SELECT x.ctid AS tid FROM holdfast.writes x WHERE x.committed_at < now() - $1::interval
    ORDER BY x.committed_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.writes x USING old o WHERE x.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone
