-- End a measurement.   $1 its id  $2 what was measured, JSON; NULL for nothing: then it is forgotten  $3 how many are kept
-- Index: primary key; reads the whole table, which is small.
WITH gone AS (
    DELETE FROM holdfast.benches b
    WHERE CASE WHEN $2::text IS NULL THEN b.id = $1 ELSE b.id IN (
        SELECT o.id FROM holdfast.benches o WHERE o.finished_at IS NOT NULL
        ORDER BY o.started_at DESC OFFSET $3::integer - 1) END
)
UPDATE holdfast.benches SET finished_at = clock_timestamp(), figures = $2 WHERE id = $1 AND $2::text IS NOT NULL
