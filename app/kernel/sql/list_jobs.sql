-- A page of a topic's jobs, newest first: their seqs.
--   $1 topic  $2 seqs below this one  $3 only those of these states, or NULL  $4 most seqs  $5 leave out so many first
--   $6 most jobs to look at  $7 whether only those that let two workers or more die are wanted, where they are dead letters
--   in the topic that they came from
-- Answers one row: the seqs, descending; looked, how many jobs were looked at, and last_seq, the lowest of them; where $7,
-- matched, how many of them it would list without $4 and $5.
-- A state is what the database's clock says, not the stored word (see explain_job).   Index: primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq, holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
           greatest(j.crashes + (j.state::text = 'leased' AND j.visible_at < now())::integer, j.original_crashes) >= 2
               AS suspect
    FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq < $2::bigint
    ORDER BY j.seq DESC LIMIT $6::integer
)
SELECT array(SELECT l.seq FROM looked l WHERE ($3::text[] IS NULL OR l.state = ANY ($3::text[])) AND (l.suspect OR NOT $7::boolean)
             ORDER BY l.seq DESC LIMIT $4::integer OFFSET $5::integer) AS seqs,
       (SELECT count(*) FROM looked) AS looked, (SELECT min(l.seq) FROM looked l) AS last_seq,
       CASE WHEN $7::boolean THEN
           (SELECT count(*) FROM looked l WHERE l.suspect AND ($3::text[] IS NULL OR l.state = ANY ($3::text[])))
       END AS matched
