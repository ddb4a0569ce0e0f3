-- name: delete_view
-- Delete a view.   $1 owner  $2 name
-- Answers one row: address and created_at, as they were. No row: there is none.   Index: primary key.
DELETE FROM holdfast.saved_views v WHERE v.owner = $1 AND v.name = $2 RETURNING v.address, v.created_at

-- name: lock_views
-- Let an owner's views be saved one at a time, to the end of the transaction: their number is bounded.   $1 owner
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.saved_views ' || $1::text, 0))

-- name: page_views
-- The views that somebody has saved, by name.   $1 owner   Index: primary key.
SELECT v.name, v.address, v.created_at FROM holdfast.saved_views v WHERE v.owner = $1 ORDER BY v.name

-- name: put_view
-- Save a view, or change the address of one.   $1 owner  $2 name  $3 address  $4 most that there may be
-- Answers one row: created_at. No row: there are as many as there may be.   Index: primary key.
INSERT INTO holdfast.saved_views AS v (owner, name, address)
SELECT $1, $2, $3
WHERE EXISTS (SELECT 1 FROM holdfast.saved_views o WHERE o.owner = $1 AND o.name = $2)
   OR (SELECT count(*) FROM holdfast.saved_views o WHERE o.owner = $1) < $4::integer
ON CONFLICT (owner, name) DO UPDATE SET address = excluded.address
RETURNING v.created_at
