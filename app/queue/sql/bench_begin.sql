-- Begin a measurement, unless one is under way.   $1 its id  $2 who asked for it  $3 the version that is measured
-- Answers one row: true. No row: one is under way.   Index: benches_under_way.
INSERT INTO holdfast.benches (id, actor, version) VALUES ($1, $2, $3)
ON CONFLICT ((true)) WHERE finished_at IS NULL DO NOTHING RETURNING true
