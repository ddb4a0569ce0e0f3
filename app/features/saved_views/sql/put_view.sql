-- Save a view, or change the address of one.   $1 owner  $2 name  $3 address  $4 most that there may be
-- Answers one row: created_at. No row: there are as many as there may be.   Index: primary key.
INSERT INTO holdfast.saved_views AS v (owner, name, address)
SELECT $1, $2, $3
WHERE EXISTS (SELECT 1 FROM holdfast.saved_views o WHERE o.owner = $1 AND o.name = $2)
   OR (SELECT count(*) FROM holdfast.saved_views o WHERE o.owner = $1) < $4::integer
ON CONFLICT (owner, name) DO UPDATE SET address = excluded.address
RETURNING v.created_at
