-- Keep a new operation, which a process of this name runs.   $1 id  $2 owner  $3 topic  $4 its id
--   $5 the topic of its dead letters, or NULL  $6 its id  $7 out by then  $8 seqs, or NULL: by filter
--   $9 starts of the names of topics that it may requeue into, none for all  $10 filter as JSON, NULL of a cancel  $11 jobs a second, 0 for no bound
--   $12 canary as JSON, or NULL  $13 how many match  $14 whether that is exact  $15, $16, $17 who asks: id, name, address
--   $18 of a cancel, what it is to match, as JSON
INSERT INTO holdfast.operations (id, owner, topic, topic_id, dead_topic, dead_id, until_time, seqs, starts, filter, rate,
                                 canary, matched, matched_exact, actor, actor_name, address, cancels, state, started_at,
                                 heartbeat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::json, $13, $14, $15, $16, $17, $18,
        CASE WHEN $12::json IS NULL THEN 'running' ELSE 'canary' END, clock_timestamp(), clock_timestamp())
