-- A page of the queues that somebody has configured, by name.   $1 names after this one  $2 most rows
--   $3 only names that start with one of these; empty for all   Index: primary key.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
WHERE t.name > $1 AND t.type = 'queue' AND t.configured
  AND ($3::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($3::text[]) AS allowed WHERE starts_with(t.name || '$', allowed)))
ORDER BY t.name LIMIT $2
