-- name: delete_records
-- Delete a batch of a log's records for good.
--   $1  topic
--   $2  topic id
--   $3  up to this seq
--   $4  only with this tag, or NULL
--   $5  only with tags that start with this, or NULL
--   $6  after this tag
--   $7  and this seq
--   $8  most records
-- Answers one row: deleted; last_tag and last_seq, after which the next batch begins, NULL if none was found.
-- Raises undefined_object if the topic was deleted meanwhile.
-- Indexes: primary key, records_tagged.   The function: functions/records.sql.
SELECT d.deleted, d.last_tag, d.last_seq
FROM holdfast.delete_records($1::text, $2::integer, $3::bigint, $4::text, $5::text, $6::text, $7::bigint,
                             $8::integer) d

-- name: log_states
-- The states of logs.
--   $1  topics
--   $2  topic ids
--   $3  their TTLs in ms, 0 for none
--   $4  most records of each to read that are too old and not deleted yet
-- One row per log: topic; head_seq; earliest_seq, as in read_records; count and bytes without records that are too old;
-- last_write_ms, NULL if never. Deleted topics are left out.   Indexes: primary keys; the state's from its end.
SELECT t.topic, s.head_seq, CASE WHEN t.ttl_ms = 0 THEN s.earliest_seq ELSE coalesce(first.seq, s.head_seq + 1) END
           AS earliest_seq,
       s.count - stale.count AS count, (s.bytes - stale.bytes)::bigint AS bytes, s.last_write_ms
FROM unnest($1::text[], $2::integer[], $3::bigint[]) AS t(topic, id, ttl_ms)
CROSS JOIN LATERAL (
    SELECT l.head_seq, l.earliest_seq, l.count, l.bytes,
           (date_part('epoch', l.written_at) * 1000)::bigint AS last_write_ms
    FROM holdfast.log_state l WHERE l.topic = t.topic AND l.topic_id = t.id ORDER BY l.version DESC LIMIT 1
) s
LEFT JOIN LATERAL (
    SELECT r.seq FROM holdfast.records r
    WHERE t.ttl_ms > 0 AND r.topic = t.topic AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq
      AND r.created_at >= now() - t.ttl_ms * interval '1 ms'
    ORDER BY r.seq LIMIT 1
) first ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS count, coalesce(sum(o.size), 0) AS bytes FROM (
        SELECT octet_length(r.payload) + coalesce(octet_length(r.metadata::text), 0) AS size FROM holdfast.records r
        WHERE t.ttl_ms > 0 AND r.topic = t.topic AND r.seq >= s.earliest_seq
          AND r.seq < coalesce(first.seq, s.head_seq + 1)
        ORDER BY r.seq LIMIT $4::integer
    ) o
) stale

-- name: newest
-- The last seqs of topics that are read.
--   $1  logs
--   $2  their ids
--   $3  queues' ids
--   $4  oids of the queues' sequences
-- One row per topic: topic_id; seq, 0 for none. Deleted topics are left out.   Index: primary key.
SELECT t.id AS topic_id, s.head_seq AS seq
FROM unnest($1::text[], $2::integer[]) AS t(topic, id)
CROSS JOIN LATERAL (
    SELECT l.head_seq FROM holdfast.log_state l
    WHERE l.topic = t.topic AND l.topic_id = t.id ORDER BY l.version DESC LIMIT 1
) s
UNION ALL
SELECT q.id, coalesce(pg_sequence_last_value(q.sequence::regclass), 0)
FROM unnest($3::integer[], $4::oid[]) AS q(id, sequence)
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = q.sequence)

-- name: sweep_keys
-- Forget idempotency keys whose window has passed.   $1 most keys   Answers one row: how many.
-- Index: idempotency_expiring.
WITH picked AS MATERIALIZED (
    SELECT k.ctid AS tid FROM holdfast.idempotency k WHERE k.expires_at < now()
    ORDER BY k.expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.idempotency k USING picked p WHERE k.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: trim_log
-- Delete records of a log that are too old or above its caps.
--   $1  topic
--   $2  topic id
--   $3  cap_records, 0 for none
--   $4  cap_bytes, 0 for none
--   $5  whether a full log refuses: its caps then delete nothing
--   $6  its TTL in ms, 0 for none
--   $7  most records to delete
-- Answers one row: how many were deleted. Raises undefined_object if the topic was deleted meanwhile.
-- Index: primary key, from earliest_seq on.   The function: functions/records.sql.
SELECT holdfast.trim_log($1::text, $2::integer, $3::bigint, $4::bigint, $5::boolean, $6::bigint, $7::bigint)
