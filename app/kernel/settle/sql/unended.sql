-- Which jobs still wait or are worked on.   $1 topics  $2 their ids  $3 seqs; one each per job
-- A row for each: its place in $1 (from 1). By the database's clock: one that has outlived its time is not among them.
-- Index: primary key.
SELECT l.ord FROM unnest($1::text[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS l(topic, topic_id, seq, ord)
CROSS JOIN LATERAL (
    SELECT 1 FROM holdfast.jobs j
    WHERE j.topic = l.topic AND j.seq = l.seq AND j.topic_id = l.topic_id
      AND j.state::text IN ('ready', 'scheduled', 'blocked', 'leased')
      AND (j.expires_at IS NULL OR j.expires_at > now() OR (j.state::text = 'leased' AND j.visible_at >= now()))
) j
