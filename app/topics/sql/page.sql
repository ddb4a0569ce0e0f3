-- A page of topics by name.   $1 name prefix  $2 names after this one  $3 most rows   Index: primary key.
-- Every character that a name may have sorts before '~'.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
WHERE t.name >= $1 AND t.name < $1 || '~' AND t.name > $2 ORDER BY t.name LIMIT $3
