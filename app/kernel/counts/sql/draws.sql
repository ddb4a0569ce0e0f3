-- How far have topics' sequences been drawn?   $1 topic ids  $2 oids of their sequences; one each per topic
-- One row a topic: topic_id, drawn (0 for never), tally (the last id of any topic's tallies), and `at`, the clock in µs
-- since 1970, taken before any later statement's snapshot. Left out: a sequence that is gone, and one whose topic is being
-- deleted, which may take minutes: nobody waits for its lock.
SELECT t.topic_id, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS drawn,
       coalesce(pg_sequence_last_value('holdfast.tallies_id_seq'::regclass), 0) AS tally,
       (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS at
FROM unnest($1::integer[], $2::oid[]) AS t(topic_id, sequence)
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.sequence)
  AND NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = t.sequence AND l.mode = 'AccessExclusiveLock'
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  )
