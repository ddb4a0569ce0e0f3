-- When a topic was last read, in ms since 1970.   $1 its id   No row: nobody has read it.   Index: primary key.
SELECT (date_part('epoch', r.read_at) * 1000)::bigint AS read_ms FROM holdfast.topic_reads r WHERE r.topic_id = $1::integer
