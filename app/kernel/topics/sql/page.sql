-- A page of topics by name.   $1 name prefix  $2 names after this one  $3 most rows
--   $4 only names that start with one of these; empty for all   Index: primary key.
-- Every character that a name may have sorts before '~'.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
WHERE t.name >= $1 AND t.name < $1 || '~' AND t.name > $2
  AND ($4::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS allowed WHERE starts_with(t.name || '$', allowed)))
ORDER BY t.name LIMIT $3
