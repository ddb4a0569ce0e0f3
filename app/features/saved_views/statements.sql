-- name: delete_view
-- Delete a view.   $1 owner  $2 name
-- Returns its address and created_at. No row: it does not exist.   Index: primary key.
DELETE FROM holdfast.saved_views v WHERE v.owner = $1 AND v.name = $2 RETURNING v.address, v.created_at

-- name: lock_views
-- Save one view of an owner at a time, as their number is bounded. Held until the transaction ends.   $1 owner
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.saved_views ' || $1::text, 0))

-- name: page_views
-- The views of an owner, by name.   $1 owner   Index: primary key.
SELECT v.name, v.address, v.created_at FROM holdfast.saved_views v WHERE v.owner = $1 ORDER BY v.name

-- name: put_view
-- Save a view, or change its address. Index: primary key.
--   $1  owner
--   $2  name
--   $3  address
--   $4  most views of an owner
-- Returns created_at. No row: the owner has too many views.
INSERT INTO holdfast.saved_views AS v (owner, name, address)
SELECT $1, $2, $3
WHERE EXISTS (SELECT 1 FROM holdfast.saved_views o WHERE o.owner = $1 AND o.name = $2)
   OR (SELECT count(*) FROM holdfast.saved_views o WHERE o.owner = $1) < $4::integer
ON CONFLICT (owner, name) DO UPDATE SET address = excluded.address
RETURNING v.created_at
