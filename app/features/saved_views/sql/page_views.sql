-- The views that somebody has saved, by name.   $1 owner   Index: primary key.
SELECT v.name, v.address, v.created_at FROM holdfast.saved_views v WHERE v.owner = $1 ORDER BY v.name
