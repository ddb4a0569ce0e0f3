-- How much a queue holds.   $1 topic id  $2 tallies above this id
-- Answers one row: jobs (ready, leased, scheduled and blocked) and bytes of their payloads, as they are stored: what has
-- outlived its time counts until it is marked.   Index: primary key of tallies.
SELECT coalesce(sum(t.ready + t.scheduled + t.blocked + t.leased), 0)::bigint AS held,
       coalesce(sum(t.bytes), 0)::bigint AS bytes
FROM holdfast.tallies t WHERE t.topic_id = $1 AND t.id > $2::bigint
