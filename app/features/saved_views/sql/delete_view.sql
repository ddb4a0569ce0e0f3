-- Delete a view.   $1 owner  $2 name
-- Answers one row: address and created_at, as they were. No row: there is none.   Index: primary key.
DELETE FROM holdfast.saved_views v WHERE v.owner = $1 AND v.name = $2 RETURNING v.address, v.created_at
