-- The topics that are shown one by one, $2 at most: first those of $1 that exist, then others by name.
--   $1 names  $2 most rows
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
ORDER BY t.name = ANY ($1::text[]) DESC, t.name LIMIT $2
