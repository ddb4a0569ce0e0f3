-- Wait for the appends to a log that are under way, and let none begin before this transaction ends.   $1 name  $2 id
SELECT holdfast.lock_log($1, $2)
