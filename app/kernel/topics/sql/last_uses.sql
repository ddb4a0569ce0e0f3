-- When topics were last read and written to, in ms since 1970.   $1 their ids
-- NULL: never. No row: neither.   Index: primary key.
SELECT r.topic_id, (date_part('epoch', r.read_at) * 1000)::bigint AS read_ms,
       (date_part('epoch', r.written_at) * 1000)::bigint AS written_ms
FROM holdfast.topic_reads r WHERE r.topic_id = ANY ($1::integer[])
